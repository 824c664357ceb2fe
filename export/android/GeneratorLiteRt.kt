// Token ids to token ids, through LiteRT alone: takes a generator's file, whose
// default signature has an input "ids", and the outputs "ids", "score",
// "token_score" and "ended".

// package com.example.app: the first line, with your own.

import android.content.Context
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

/** Runs a signature of ids of shape (1, length), as it was exported. */
class GeneratorLiteRt(context: Context, private val length: Int = 64) : AutoCloseable {
    // In app/src/main/assets/.
    private val model = CompiledModel.create(
        context.assets,
        "generator.tflite",
        CompiledModel.Options(Accelerator.CPU),
    )
    private val signature = "serving_default"
    private val source = model.createInputBuffer("ids", signature)
    private val target = model.createOutputBuffer("ids", signature)
    private val score = model.createOutputBuffer("score", signature)
    private val tokenScore = model.createOutputBuffer("token_score", signature)
    private val ended = model.createOutputBuffer("ended", signature)

    /** The ids of the answer, its end symbol among them; 0 is padding. */
    fun generate(tokens: IntArray): List<Int> {
        require(tokens.size <= length) { "${tokens.size} ids, at most $length" }
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
        return target.readInt().takeWhile { it != 0 }
    }

    override fun close() {
        listOf(source, target, score, tokenScore, ended).forEach { it.close() }
        model.close()
    }
}
