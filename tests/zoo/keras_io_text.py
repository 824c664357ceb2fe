"""Models of keras.io's examples of natural language.

Built as the examples build them, with fewer words and narrower layers.
"""

import re
import string

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.zoo.entries import group, stack
from tests.zoo.parts import TransformerBlock, WithPositions, dense

nlp = group("nlp", "https://keras.io/examples/nlp/")

SENTENCES = [
    "This film was a delight<br />from its first minute to the last!",
    "I could not finish it; two hours of my life are gone.",
    "The plot is thin, the actors are good, and the music is great.",
    "A very long and very dull story about nothing at all.",
]


@nlp("text_classification_from_scratch")
def text_classification_from_scratch():
    def custom_standardization(input_data):
        lowercase = tf.strings.lower(input_data)
        stripped = tf.strings.regex_replace(lowercase, "<br />", " ")
        return tf.strings.regex_replace(
            stripped, f"[{re.escape(string.punctuation)}]", ""
        )

    vectorize_layer = layers.TextVectorization(
        standardize=custom_standardization,
        max_tokens=500,
        output_mode="int",
        output_sequence_length=50,
    )
    vectorize_layer.adapt(SENTENCES)
    inputs = keras.Input(shape=(None,), dtype="int64")
    x = layers.Dropout(0.5)(layers.Embedding(500, 32)(inputs))
    for _ in range(2):
        x = layers.Conv1D(32, 7, activation="relu", strides=3)(x)
    x = dense(layers.GlobalMaxPooling1D()(x), 32, dropout=0.5)
    predictions = layers.Dense(1, activation="sigmoid", name="predictions")(x)
    trained = keras.Model(inputs, predictions)
    # The model that the example makes at the end, for raw strings.
    texts = keras.Input(shape=(1,), dtype="string")
    return keras.Model(texts, trained(vectorize_layer(texts)))


@nlp("bidirectional_lstm_imdb")
def bidirectional_lstm_imdb():
    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Embedding(2000, 32)(inputs)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(16))(x)
    outputs = layers.Dense(1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs)


@nlp("text_classification_with_transformer")
def text_classification_with_transformer():
    inputs = layers.Input(shape=(60,))
    x = WithPositions(layers.Embedding(500, 32), 60, 32)(inputs)
    x = layers.GlobalAveragePooling1D()(TransformerBlock(32, 2, 32)(x))
    x = dense(layers.Dropout(0.1)(x), 20, dropout=0.1)
    outputs = layers.Dense(2, activation="softmax")(x)
    # `Input` says no dtype there: the ids are whole numbers as floats.
    ids = np.arange(120).reshape(2, 60) % 500
    return keras.Model(inputs, outputs), {"samples": ids.astype("float32")}


def lstm_seq2seq_trained():
    encoder_inputs = keras.Input(shape=(None, 30))
    encoder = layers.LSTM(32, return_state=True)
    _, state_h, state_c = encoder(encoder_inputs)
    decoder_inputs = keras.Input(shape=(None, 40))
    decoder_lstm = layers.LSTM(32, return_sequences=True, return_state=True)
    outputs, _, _ = decoder_lstm(
        decoder_inputs, initial_state=[state_h, state_c]
    )
    outputs = layers.Dense(40, activation="softmax")(outputs)
    return keras.Model([encoder_inputs, decoder_inputs], outputs)


@nlp("lstm_seq2seq")
def lstm_seq2seq():
    return lstm_seq2seq_trained()


@nlp("lstm_seq2seq_encoder", "lstm_seq2seq/")
def lstm_seq2seq_encoder():
    trained = lstm_seq2seq_trained()
    _, state_h, state_c = trained.layers[2].output
    return keras.Model(trained.input[0], [state_h, state_c])


@nlp("lstm_seq2seq_decoder", "lstm_seq2seq/")
def lstm_seq2seq_decoder():
    trained = lstm_seq2seq_trained()
    decoder_inputs = trained.input[1]
    states = [keras.Input(shape=(32,)), keras.Input(shape=(32,))]
    outputs, h, c = trained.layers[3](decoder_inputs, initial_state=states)
    outputs = trained.layers[4](outputs)
    return keras.Model([decoder_inputs, *states], [outputs, h, c])


@nlp(
    "miniature_gpt",
    "https://keras.io/examples/generative/text_generation_with_miniature_gpt/",
)
def miniature_gpt():
    inputs = layers.Input(shape=(40,), dtype="int32")
    x = WithPositions(layers.Embedding(500, 32), 40, 32)(inputs)
    x = TransformerBlock(32, 2, 32, causal=True)(x)
    return keras.Model(inputs, [layers.Dense(500)(x), x])


@nlp("addition_rnn")
def addition_rnn():
    return stack(
        layers.Input((7, 12)),
        layers.LSTM(64),
        layers.RepeatVector(4),
        layers.LSTM(64, return_sequences=True),
        layers.Dense(12, activation="softmax"),
    )


@nlp("sentence_embeddings", "sentence_embeddings_with_sbert/")
def sentence_embeddings():
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding = keras.Input((None,), dtype="int32", name="padding_mask")
    # In place of the downloaded RoBERTa.
    x = layers.Embedding(400, 32)(ids)
    x = layers.Bidirectional(layers.GRU(16, return_sequences=True))(x)
    embedding = layers.GlobalAveragePooling1D(name="pooling_layer")(x, padding)
    normal = layers.UnitNormalization(axis=1)(embedding)
    return keras.Model({"token_ids": ids, "padding_mask": padding}, normal)
