// Token ids to scores, through LiteRT alone: takes any exported file whose
// default signature has an input "ids" and an output "scores".

// package com.example.app: the first line, with your own.

import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

/**
 * Runs a signature of ids of shape (1, length), as it was exported. Shorter texts are
 * filled with the tokenizer's id of padding.
 */
class PlainLiteRt(
    private val context: Context,
    private val length: Int = 64,
    private val padding: Int = 0,
) : AutoCloseable {
    private val signature = "serving_default"
    private var loaded: Loaded? = Loaded()

    private inner class Loaded {
        // In app/src/main/assets/.
        val model = CompiledModel.create(
            context.assets,
            "ids.tflite",
            CompiledModel.Options(Accelerator.CPU),
        )
        val ids = model.createInputBuffer("ids", signature)
        val scores = model.createOutputBuffer("scores", signature)
    }

    /** The scores of a text, given as its ids. */
    fun classify(tokens: IntArray): FloatArray {
        require(tokens.size <= length) { "${tokens.size} ids, at most $length" }
        return try {
            with(loaded ?: Loaded().also { loaded = it }) {
                ids.writeInt(IntArray(length) { tokens.getOrElse(it) { padding } })
                model.run(mapOf("ids" to ids), mapOf("scores" to scores), signature)
                scores.readFloat()
            }
        } catch (error: Exception) {
            // It may give wrong scores from now on: the next call loads another.
            close()
            throw error
        }
    }

    override fun close() {
        loaded?.run { listOf<AutoCloseable>(ids, scores, model).forEach { it.close() } }
        loaded = null
    }
}
