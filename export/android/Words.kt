// Ids of texts as Keras's TextVectorization makes them: A to Z alone are lowercased, and
// punctuation and white space are those of ASCII.

// package com.example.app: the first line, with your own.

class Words(vocabulary: List<String>) {
    private val number = vocabulary.withIndex().associate { (n, word) -> word to n.toLong() }

    fun ids(text: String, length: Int? = null): LongArray {
        val found = text
            .filter { it !in "!\"#\$%&()*+,-./:;<=>?@[\\]^_`{|}~'" }
            .replace(Regex("[A-Z]")) { it.value.lowercase() }
            .split(' ', '\t', '\n', '\u000b', '\u000c', '\r')
            .filter { it.isNotEmpty() }
            .map { number[it] ?: 1L }
        return LongArray(length ?: found.size) { n -> found.getOrElse(n) { 0L } }
    }
}
