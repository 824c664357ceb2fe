// Token ids to token ids, through LiteRT alone: takes a generator's file, whose
// default signature has an input "ids", and the outputs "ids", "score",
// "token_score" and "ended".

// package com.example.app: the first line, with your own.

import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

/** Runs a signature of ids of shape (1, length), as it was exported. */
class GeneratorLiteRt(private val context: Context, private val length: Int = 64) : AutoCloseable {
    private val signature = "serving_default"
    private var loaded: Loaded? = Loaded()

    private inner class Loaded {
        // In app/src/main/assets/.
        val model = CompiledModel.create(
            context.assets,
            "generator.tflite",
            CompiledModel.Options(Accelerator.CPU),
        )
        val source = model.createInputBuffer("ids", signature)
        val target = model.createOutputBuffer("ids", signature)
        val score = model.createOutputBuffer("score", signature)
        val tokenScore = model.createOutputBuffer("token_score", signature)
        val ended = model.createOutputBuffer("ended", signature)
    }

    /** The ids of the answer, its end symbol among them; 0 is padding. */
    fun generate(tokens: IntArray): List<Int> {
        require(tokens.size <= length) { "${tokens.size} ids, at most $length" }
        return try {
            with(loaded ?: Loaded().also { loaded = it }) {
                source.writeInt(tokens.copyOf(length))
                model.run(
                    mapOf("ids" to source),
                    mapOf(
                        "ids" to target,
                        "score" to score,
                        "token_score" to tokenScore,
                        "ended" to ended,
                    ),
                    signature,
                )
                target.readInt().takeWhile { it != 0 }
            }
        } catch (error: Exception) {
            // It may give wrong ids from now on: the next call loads another.
            close()
            throw error
        }
    }

    override fun close() {
        loaded?.run {
            listOf<AutoCloseable>(source, target, score, tokenScore, ended, model)
                .forEach { it.close() }
        }
        loaded = null
    }
}
