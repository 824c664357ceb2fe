"""Models of keras.io's examples of natural language.

Built as the examples build them, with fewer words and narrower layers.
"""

import re
import string

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.zoo.entries import model

IO = "https://keras.io/examples/nlp/"

SENTENCES = [
    "This film was a delight<br />from its first minute to the last!",
    "I could not finish it; two hours of my life are gone.",
    "The plot is thin, the actors are good, and the music is great.",
    "A very long and very dull story about nothing at all.",
]


@model(
    "nlp/text_classification_from_scratch",
    IO + "text_classification_from_scratch/",
)
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
    x = layers.Embedding(500, 32)(inputs)
    x = layers.Dropout(0.5)(x)
    x = layers.Conv1D(32, 7, padding="valid", activation="relu", strides=3)(x)
    x = layers.Conv1D(32, 7, padding="valid", activation="relu", strides=3)(x)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    predictions = layers.Dense(1, activation="sigmoid", name="predictions")(x)
    trained = keras.Model(inputs, predictions)
    # The model that the example makes at the end, for raw strings.
    texts = keras.Input(shape=(1,), dtype="string")
    return keras.Model(texts, trained(vectorize_layer(texts)))


@model("nlp/bidirectional_lstm_imdb", IO + "bidirectional_lstm_imdb/")
def bidirectional_lstm_imdb():
    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Embedding(2000, 32)(inputs)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(16))(x)
    outputs = layers.Dense(1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs)


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(
            num_heads=num_heads, key_dim=embed_dim
        )
        self.ffn = keras.Sequential(
            [
                layers.Dense(ff_dim, activation="relu"),
                layers.Dense(embed_dim),
            ]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs):
        attention = self.dropout1(self.att(inputs, inputs))
        out1 = self.layernorm1(inputs + attention)
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(
            input_dim=vocab_size, output_dim=embed_dim
        )
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x):
        maxlen = ops.shape(x)[-1]
        positions = ops.arange(start=0, stop=maxlen, step=1)
        return self.token_emb(x) + self.pos_emb(positions)


@model(
    "nlp/text_classification_with_transformer",
    IO + "text_classification_with_transformer/",
)
def text_classification_with_transformer():
    inputs = layers.Input(shape=(60,))
    x = TokenAndPositionEmbedding(60, 500, 32)(inputs)
    x = TransformerBlock(32, 2, 32)(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.1)(x)
    x = layers.Dense(20, activation="relu")(x)
    x = layers.Dropout(0.1)(x)
    outputs = layers.Dense(2, activation="softmax")(x)
    # `Input` says no dtype there: the ids are whole numbers as floats.
    ids = np.arange(120).reshape(2, 60) % 500
    return keras.Model(inputs, outputs), {"samples": ids.astype("float32")}


def lstm_seq2seq_trained():
    encoder_inputs = keras.Input(shape=(None, 30))
    encoder = keras.layers.LSTM(32, return_state=True)
    _, state_h, state_c = encoder(encoder_inputs)
    decoder_inputs = keras.Input(shape=(None, 40))
    decoder_lstm = keras.layers.LSTM(
        32, return_sequences=True, return_state=True
    )
    outputs, _, _ = decoder_lstm(
        decoder_inputs, initial_state=[state_h, state_c]
    )
    outputs = keras.layers.Dense(40, activation="softmax")(outputs)
    return keras.Model([encoder_inputs, decoder_inputs], outputs)


@model("nlp/lstm_seq2seq", IO + "lstm_seq2seq/")
def lstm_seq2seq():
    return lstm_seq2seq_trained()


@model("nlp/lstm_seq2seq_encoder", IO + "lstm_seq2seq/")
def lstm_seq2seq_encoder():
    trained = lstm_seq2seq_trained()
    _, state_h, state_c = trained.layers[2].output
    return keras.Model(trained.input[0], [state_h, state_c])


@model("nlp/lstm_seq2seq_decoder", IO + "lstm_seq2seq/")
def lstm_seq2seq_decoder():
    trained = lstm_seq2seq_trained()
    decoder_inputs = trained.input[1]
    states = [keras.Input(shape=(32,)), keras.Input(shape=(32,))]
    outputs, h, c = trained.layers[3](decoder_inputs, initial_state=states)
    outputs = trained.layers[4](outputs)
    return keras.Model([decoder_inputs, *states], [outputs, h, c])


class PositionalEmbedding(layers.Layer):
    def __init__(self, sequence_length, vocab_size, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.token_embeddings = layers.Embedding(
            input_dim=vocab_size, output_dim=embed_dim
        )
        self.position_embeddings = layers.Embedding(
            input_dim=sequence_length, output_dim=embed_dim
        )

    def call(self, inputs):
        length = ops.shape(inputs)[-1]
        positions = ops.arange(0, length, 1)
        tokens = self.token_embeddings(inputs)
        return tokens + self.position_embeddings(positions)

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0)


class TransformerEncoder(layers.Layer):
    def __init__(self, embed_dim, dense_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(
            num_heads=num_heads, key_dim=embed_dim
        )
        self.dense_proj = keras.Sequential(
            [
                layers.Dense(dense_dim, activation="relu"),
                layers.Dense(embed_dim),
            ]
        )
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is not None:
            padding_mask = ops.cast(mask[:, None, :], dtype="int32")
        else:
            padding_mask = None
        attention = self.attention(
            query=inputs, value=inputs, key=inputs, attention_mask=padding_mask
        )
        x = self.layernorm_1(inputs + attention)
        return self.layernorm_2(x + self.dense_proj(x))


class TransformerDecoder(layers.Layer):
    def __init__(self, embed_dim, latent_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.attention_1 = layers.MultiHeadAttention(
            num_heads=num_heads, key_dim=embed_dim
        )
        self.attention_2 = layers.MultiHeadAttention(
            num_heads=num_heads, key_dim=embed_dim
        )
        self.dense_proj = keras.Sequential(
            [
                layers.Dense(latent_dim, activation="relu"),
                layers.Dense(embed_dim),
            ]
        )
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()
        self.layernorm_3 = layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        inputs, encoder_outputs = inputs
        causal_mask = self.get_causal_attention_mask(inputs)
        inputs_mask, encoder_mask = (None, None) if mask is None else mask
        attention = self.attention_1(
            query=inputs,
            value=inputs,
            key=inputs,
            attention_mask=causal_mask,
            query_mask=inputs_mask,
        )
        out_1 = self.layernorm_1(inputs + attention)
        attention = self.attention_2(
            query=out_1,
            value=encoder_outputs,
            key=encoder_outputs,
            query_mask=inputs_mask,
            key_mask=encoder_mask,
        )
        out_2 = self.layernorm_2(out_1 + attention)
        return self.layernorm_3(out_2 + self.dense_proj(out_2))

    def get_causal_attention_mask(self, inputs):
        shape = ops.shape(inputs)
        batch_size, length = shape[0], shape[1]
        i = ops.arange(length)[:, None]
        j = ops.arange(length)
        mask = ops.cast(i >= j, dtype="int32")
        mask = ops.reshape(mask, (1, length, length))
        return ops.tile(mask, (batch_size, 1, 1))


@model(
    "nlp/neural_machine_translation_with_transformer",
    IO + "neural_machine_translation_with_transformer/",
)
def neural_machine_translation_with_transformer():
    encoder_inputs = keras.Input(
        shape=(None,), dtype="int64", name="encoder_inputs"
    )
    x = PositionalEmbedding(20, 300, 32)(encoder_inputs)
    encoder_outputs = TransformerEncoder(32, 64, 4)(x)
    decoder_inputs = keras.Input(
        shape=(None,), dtype="int64", name="decoder_inputs"
    )
    x = PositionalEmbedding(20, 300, 32)(decoder_inputs)
    x = TransformerDecoder(32, 64, 4)([x, encoder_outputs])
    x = layers.Dropout(0.5)(x)
    decoder_outputs = layers.Dense(300, activation="softmax")(x)
    transformer = keras.Model(
        {"encoder_inputs": encoder_inputs, "decoder_inputs": decoder_inputs},
        decoder_outputs,
        name="transformer",
    )
    return transformer, {"max_length": 20}


def causal_attention_mask(batch_size, n_dest, n_src, dtype):
    i = ops.arange(n_dest)[:, None]
    j = ops.arange(n_src)
    mask = ops.cast(i >= j - n_src + n_dest, dtype)
    mask = ops.reshape(mask, [1, n_dest, n_src])
    # The example gives `tile` a tensor, which Keras 3.15 takes no more.
    return ops.tile(mask, (batch_size, 1, 1))


class CausalTransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads, embed_dim)
        self.ffn = keras.Sequential(
            [
                layers.Dense(ff_dim, activation="relu"),
                layers.Dense(embed_dim),
            ]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs):
        shape = ops.shape(inputs)
        mask = causal_attention_mask(shape[0], shape[1], shape[1], "bool")
        attention = self.att(inputs, inputs, attention_mask=mask)
        out1 = self.layernorm1(inputs + self.dropout1(attention))
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


@model(
    "nlp/miniature_gpt",
    "https://keras.io/examples/generative/text_generation_with_miniature_gpt/",
)
def miniature_gpt():
    inputs = layers.Input(shape=(40,), dtype="int32")
    x = TokenAndPositionEmbedding(40, 500, 32)(inputs)
    x = CausalTransformerBlock(32, 2, 32)(x)
    outputs = layers.Dense(500)(x)
    return keras.Model(inputs=inputs, outputs=[outputs, x])


@model("nlp/pretrained_word_embeddings", IO + "pretrained_word_embeddings/")
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
    int_sequences_input = keras.Input(shape=(None,), dtype="int32")
    x = embedding_layer(int_sequences_input)
    x = layers.Conv1D(32, 5, activation="relu")(x)
    x = layers.MaxPooling1D(5)(x)
    x = layers.Conv1D(32, 5, activation="relu")(x)
    x = layers.MaxPooling1D(5)(x)
    x = layers.Conv1D(32, 5, activation="relu")(x)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    preds = layers.Dense(20, activation="softmax")(x)
    trained = keras.Model(int_sequences_input, preds)
    string_input = keras.Input(shape=(1,), dtype="string")
    preds = trained(vectorizer(string_input))
    return keras.Model(string_input, preds)


@model("nlp/addition_rnn", IO + "addition_rnn/")
def addition_rnn():
    adder = keras.Sequential()
    adder.add(layers.Input((7, 12)))
    adder.add(layers.LSTM(64))
    adder.add(layers.RepeatVector(4))
    adder.add(layers.LSTM(64, return_sequences=True))
    adder.add(layers.Dense(12, activation="softmax"))
    return adder


@model("nlp/multi_label_classification", IO + "multi_label_classification/")
def multi_label_classification():
    lookup = layers.StringLookup(output_mode="multi_hot")
    lookup.adapt(["cs.CV", "cs.LG", "stat.ML"])
    text_vectorizer = layers.TextVectorization(
        max_tokens=100, ngrams=2, output_mode="tf_idf"
    )
    text_vectorizer.adapt(SENTENCES)
    shallow_mlp = keras.Sequential(
        [
            keras.Input((text_vectorizer.vocabulary_size(),)),
            layers.Dense(64, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(lookup.vocabulary_size(), activation="sigmoid"),
        ]
    )
    model_for_inference = keras.Sequential([text_vectorizer, shallow_mlp])
    model_for_inference(tf.constant(SENTENCES))
    return model_for_inference, {"samples": np.array(SENTENCES)}


def sentence_encoder():
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding = keras.Input((None,), dtype="int32", name="padding_mask")
    # In place of the downloaded RoBERTa.
    x = layers.Embedding(400, 32)(ids)
    x = layers.Bidirectional(layers.GRU(16, return_sequences=True))(x)
    embedding = layers.GlobalAveragePooling1D(name="pooling_layer")(x, padding)
    normal = layers.UnitNormalization(axis=1)(embedding)
    return keras.Model({"token_ids": ids, "padding_mask": padding}, normal)


@model("nlp/sentence_embeddings", IO + "sentence_embeddings_with_sbert/")
def sentence_embeddings():
    return sentence_encoder()
