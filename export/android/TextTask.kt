// Raw text to scores, through MediaPipe: takes a file exported with
// task="text_classifier".

// package com.example.app: the first line, with your own.

import android.content.Context
import com.google.mediapipe.tasks.text.textclassifier.TextClassifier

class TextTask(context: Context) : AutoCloseable {
    // In app/src/main/assets/.
    private val classifier = TextClassifier.createFromFile(context, "model.tflite")

    /** The labels of the model, else their numbers, and the scores, best first. */
    fun classify(text: String): Map<String, Float> =
        classifier.classify(text)
            .classificationResult()
            .classifications()[0]
            .categories()
            .associate { it.categoryName().ifEmpty { "${it.index()}" } to it.score() }

    override fun close() = classifier.close()
}
