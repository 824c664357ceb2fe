// Raw text to scores, through MediaPipe: takes a file exported with
// task="text_classifier".

// package com.example.app: the first line, with your own.

import android.content.Context
import android.icu.text.Normalizer2
import com.google.mediapipe.tasks.text.textclassifier.TextClassifier

class TextTask(private val context: Context) : AutoCloseable {
    private var loaded: TextClassifier? = load()

    // In app/src/main/assets/.
    private fun load() = TextClassifier.createFromFile(context, "text.tflite")

    /** The labels of the model, else their numbers, and the scores, best first. */
    fun classify(text: String): Map<String, Float> = try {
        (loaded ?: load().also { loaded = it }).classify(normalize(text))
            .classificationResult()
            .classifications()[0]
            .categories()
            .associate { it.categoryName().ifEmpty { "${it.index()}" } to it.score() }
    } catch (error: Exception) {
        // It may give wrong scores from now on: the next call loads another.
        close()
        throw error
    }

    override fun close() {
        loaded?.close()
        loaded = null
    }
}

private val dropped = Regex("\\p{Mn}+")
private val blank = Regex("[\\p{Cc}\\p{Cf}\\p{Z}]")

/**
 * The text as the model's WordpieceTokenizer normalises it. MediaPipe lowers the
 * letters of ASCII alone, folds no accents, and cuts at white space of ASCII alone.
 */
fun normalize(text: String): String {
    val folded = Normalizer2.getNFKCCasefoldInstance().normalize(text)
    return Normalizer2.getNFDInstance().normalize(folded)
        .replace(dropped, "")
        .replace(blank, " ")
}
