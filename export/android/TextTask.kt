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
private val deleted = Regex("[\\p{Cf}\\p{Co}\\ufffd]")
private val control = Regex("(?![\\t\\n\\r])\\p{Cc}")
private val space = Regex("\\p{Z}")

/**
 * The text as the model's WordpieceTokenizer normalizes it. MediaPipe lowers the
 * letters of ASCII alone, folds no accents, and cuts at white space of ASCII alone.
 */
fun normalize(text: String): String {
    val folded = Normalizer2.getNFKCCasefoldInstance().normalize(text)
    return Normalizer2.getNFDInstance().normalize(folded)
        .replace(dropped, "")
        .replace(blank, " ")
}

/**
 * As [normalize], for a tokenizer with normalization="bert", as encoders of Hugging Face
 * have it. With its strip_accents=False, give stripAccents = false.
 */
fun normalizeBert(text: String, stripAccents: Boolean = true): String {
    val bare =
        if (stripAccents) Normalizer2.getNFDInstance().normalize(text).replace(dropped, "")
        else text
    val lower = StringBuilder()
    // Letter by letter: a Greek word would end in another sigma.
    bare.replace(deleted, "").codePoints().forEach {
        lower.append(String(Character.toChars(it)).lowercase())
    }
    return lower.replace(control, "").replace(space, " ")
}
