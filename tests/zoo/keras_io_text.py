"""Models of keras.io's examples of natural language.

Built as the examples build them, with fewer words and narrower layers.
"""

import re
import string

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.zoo.entries import group, stack
from tests.zoo.parts import TransformerBlock, WithPositions, causal_mask, dense

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


class TransformerEncoder(layers.Layer):
    def __init__(self, embed_dim, dense_dim, num_heads):
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim)
        self.dense_proj = stack(
            layers.Dense(dense_dim, activation="relu"), layers.Dense(embed_dim)
        )
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is not None:
            mask = ops.cast(mask[:, None, :], dtype="int32")
        attention = self.attention(inputs, inputs, attention_mask=mask)
        x = self.layernorm_1(inputs + attention)
        return self.layernorm_2(x + self.dense_proj(x))


class TransformerDecoder(layers.Layer):
    def __init__(self, embed_dim, latent_dim, num_heads):
        super().__init__()
        self.attention_1 = layers.MultiHeadAttention(num_heads, embed_dim)
        self.attention_2 = layers.MultiHeadAttention(num_heads, embed_dim)
        self.dense_proj = stack(
            layers.Dense(latent_dim, activation="relu"), layers.Dense(embed_dim)
        )
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.layernorm_3 = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        inputs, memory = inputs
        own, others = (None, None) if mask is None else mask
        causal = causal_mask(inputs, "int32")
        attention = self.attention_1(
            inputs, inputs, attention_mask=causal, query_mask=own
        )
        out_1 = self.layernorm_1(inputs + attention)
        attention = self.attention_2(
            out_1, memory, query_mask=own, key_mask=others
        )
        out_2 = self.layernorm_2(out_1 + attention)
        return self.layernorm_3(out_2 + self.dense_proj(out_2))


@nlp("neural_machine_translation_with_transformer")
def neural_machine_translation_with_transformer():
    def embedded(name):
        tokens = keras.Input(shape=(None,), dtype="int64", name=name)
        table = layers.Embedding(300, 32)
        return tokens, WithPositions(table, 20, 32, mask_zero=True)(tokens)

    encoder_inputs, x = embedded("encoder_inputs")
    memory = TransformerEncoder(32, 64, 4)(x)
    decoder_inputs, x = embedded("decoder_inputs")
    x = layers.Dropout(0.5)(TransformerDecoder(32, 64, 4)([x, memory]))
    transformer = keras.Model(
        {"encoder_inputs": encoder_inputs, "decoder_inputs": decoder_inputs},
        layers.Dense(300, activation="softmax")(x),
        name="transformer",
    )
    return transformer, {"max_length": 20}


@nlp(
    "miniature_gpt",
    "https://keras.io/examples/generative/text_generation_with_miniature_gpt/",
)
def miniature_gpt():
    inputs = layers.Input(shape=(40,), dtype="int32")
    x = WithPositions(layers.Embedding(500, 32), 40, 32)(inputs)
    x = TransformerBlock(32, 2, 32, causal=True)(x)
    return keras.Model(inputs, [layers.Dense(500)(x), x])


@nlp("pretrained_word_embeddings")
def pretrained_word_embeddings():
    vectorizer = layers.TextVectorization(
        max_tokens=400, output_sequence_length=200
    )
    vectorizer.adapt(tf.data.Dataset.from_tensor_slices(SENTENCES).batch(2))
    num_tokens = len(vectorizer.get_vocabulary()) + 2
    embedding_layer = layers.Embedding(num_tokens, 32, trainable=False)
    embedding_layer.build((1,))
    matrix = np.random.default_rng(0).normal(size=(num_tokens, 32))
    embedding_layer.set_weights([matrix])
    ids = keras.Input(shape=(None,), dtype="int32")
    x = embedding_layer(ids)
    first, second = layers.MaxPooling1D(5), layers.MaxPooling1D(5)
    for pool in (first, second, layers.GlobalMaxPooling1D()):
        x = pool(layers.Conv1D(32, 5, activation="relu")(x))
    x = dense(x, 32, dropout=0.5)
    trained = keras.Model(ids, layers.Dense(20, activation="softmax")(x))
    string_input = keras.Input(shape=(1,), dtype="string")
    return keras.Model(string_input, trained(vectorizer(string_input)))


@nlp("addition_rnn")
def addition_rnn():
    return stack(
        layers.Input((7, 12)),
        layers.LSTM(64),
        layers.RepeatVector(4),
        layers.LSTM(64, return_sequences=True),
        layers.Dense(12, activation="softmax"),
    )


@nlp("multi_label_classification")
def multi_label_classification():
    lookup = layers.StringLookup(output_mode="multi_hot")
    lookup.adapt(["cs.CV", "cs.LG", "stat.ML"])
    text_vectorizer = layers.TextVectorization(
        max_tokens=100, ngrams=2, output_mode="tf_idf"
    )
    text_vectorizer.adapt(SENTENCES)
    shallow_mlp = stack(
        keras.Input((text_vectorizer.vocabulary_size(),)),
        layers.Dense(64, activation="relu"),
        layers.Dense(32, activation="relu"),
        layers.Dense(lookup.vocabulary_size(), activation="sigmoid"),
    )
    model_for_inference = stack(text_vectorizer, shallow_mlp)
    model_for_inference(tf.constant(SENTENCES))
    return model_for_inference, {"samples": np.array(SENTENCES)}


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
