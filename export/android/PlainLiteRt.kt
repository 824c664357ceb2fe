// Token ids to scores, through LiteRT alone: takes any exported file whose
// default signature has an input "ids" and an output "scores".

// package com.example.app: the first line, with your own.

import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

/** Runs a signature of ids of shape (1, length), as it was exported. */
class PlainLiteRt(context: Context, private val length: Int = 64) : AutoCloseable {
    // In app/src/main/assets/.
    private val model = CompiledModel.create(
        context.assets,
        "ids.tflite",
        CompiledModel.Options(Accelerator.CPU),
    )
    private val signature = "serving_default"
    private val ids = model.createInputBuffer("ids", signature)
    private val scores = model.createOutputBuffer("scores", signature)

    /** The scores of a text, given as its ids; 0 is padding. */
    fun classify(tokens: IntArray): FloatArray {
        require(tokens.size <= length) { "${tokens.size} ids, at most $length" }
        ids.writeInt(tokens.copyOf(length))
        model.run(mapOf("ids" to ids), mapOf("scores" to scores), signature)
        return scores.readFloat()
    }

    override fun close() {
        ids.close()
        scores.close()
        model.close()
    }
}
