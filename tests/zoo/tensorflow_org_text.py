"""Models of tensorflow.org's tutorials of text.

Built as the tutorials build them (`tf.keras`, and TensorFlow where they use
it), with fewer words and narrower layers.
"""

import numpy as np
import tensorflow as tf
from keras import layers

from tests.zoo.entries import model

TEXT = "https://www.tensorflow.org/text/tutorials/"


@model("tensorflow/text_classification_rnn", TEXT + "text_classification_rnn")
def text_classification_rnn():
    encoder = layers.TextVectorization(max_tokens=100)
    encoder.adapt(
        ["The movie was cool.", "The graphics were out of this world."]
    )
    network = tf.keras.Sequential(
        [
            encoder,
            layers.Embedding(
                input_dim=len(encoder.get_vocabulary()),
                output_dim=32,
                mask_zero=True,
            ),
            layers.Bidirectional(layers.LSTM(32, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(16)),
            layers.Dense(32, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    network(tf.constant(["The movie was cool."]))
    return network, {"samples": np.array(["The movie was cool.", "world"])}


@model("tensorflow/text_generation", TEXT + "text_generation")
def text_generation():
    class MyModel(tf.keras.Model):
        def __init__(self, vocab_size, embedding_dim, rnn_units):
            super().__init__()
            self.embedding = layers.Embedding(vocab_size, embedding_dim)
            self.gru = layers.GRU(
                rnn_units, return_sequences=True, return_state=True
            )
            self.dense = layers.Dense(vocab_size)

        def call(self, inputs, states=None, return_state=False, training=False):
            x = self.embedding(inputs, training=training)
            if states is None:
                states = self.gru.get_initial_state(tf.shape(x)[0])
            x, states = self.gru(x, initial_state=states, training=training)
            x = self.dense(x, training=training)
            return (x, states) if return_state else x

    network = MyModel(66, 32, 64)
    network(np.ones((2, 20), "int64"))
    return network


@model("tensorflow/word2vec", TEXT + "word2vec")
def word2vec():
    class Word2Vec(tf.keras.Model):
        def __init__(self, vocab_size, embedding_dim):
            super().__init__()
            self.target_embedding = layers.Embedding(
                vocab_size, embedding_dim, name="w2v_embedding"
            )
            self.context_embedding = layers.Embedding(vocab_size, embedding_dim)

        def call(self, pair):
            target, context = pair
            if len(target.shape) == 2:
                target = tf.squeeze(target, axis=1)
            word_emb = self.target_embedding(target)
            context_emb = self.context_embedding(context)
            return tf.einsum("be,bce->bc", word_emb, context_emb)

    network = Word2Vec(200, 32)
    network((np.ones((2, 1), "int64"), np.ones((2, 5), "int64")))
    return network


@model("tensorflow/nmt_with_attention", TEXT + "nmt_with_attention")
def nmt_with_attention():
    class Encoder(layers.Layer):
        def __init__(self, vocab_size, units):
            super().__init__()
            self.embedding = layers.Embedding(vocab_size, units, mask_zero=True)
            self.rnn = layers.Bidirectional(
                merge_mode="sum",
                layer=layers.GRU(
                    units,
                    return_sequences=True,
                    recurrent_initializer="glorot_uniform",
                ),
            )

        def call(self, x):
            return self.rnn(self.embedding(x))

    class CrossAttention(layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__()
            self.mha = layers.MultiHeadAttention(
                key_dim=units, num_heads=1, **kwargs
            )
            self.layernorm = layers.LayerNormalization()
            self.add = layers.Add()

        def call(self, x, context):
            attn_output, _ = self.mha(
                query=x, value=context, return_attention_scores=True
            )
            return self.layernorm(self.add([x, attn_output]))

    class Decoder(layers.Layer):
        def __init__(self, vocab_size, units):
            super().__init__()
            self.embedding = layers.Embedding(vocab_size, units, mask_zero=True)
            self.rnn = layers.GRU(
                units,
                return_sequences=True,
                return_state=True,
                recurrent_initializer="glorot_uniform",
            )
            self.attention = CrossAttention(units)
            self.output_layer = layers.Dense(vocab_size)

        def call(self, context, x):
            x, _ = self.rnn(self.embedding(x))
            return self.output_layer(self.attention(x, context))

    class Translator(tf.keras.Model):
        def __init__(self, units, vocab):
            super().__init__()
            self.encoder = Encoder(vocab, units)
            self.decoder = Decoder(vocab, units)

        def call(self, inputs):
            context, x = inputs
            return self.decoder(self.encoder(context), x)

    translator = Translator(32, 200)
    translator((np.ones((2, 7), "int64"), np.ones((2, 5), "int64")))
    return translator


def positional_encoding(length, depth):
    depth = depth / 2
    positions = np.arange(length)[:, np.newaxis]
    depths = np.arange(depth)[np.newaxis, :] / depth
    angles = positions * (1 / (10000**depths))
    both = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return tf.cast(both, dtype=tf.float32)


class PositionalEmbedding(tf.keras.layers.Layer):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.d_model = d_model
        self.embedding = layers.Embedding(vocab_size, d_model, mask_zero=True)
        self.pos_encoding = positional_encoding(length=64, depth=d_model)

    def compute_mask(self, *args, **kwargs):
        return self.embedding.compute_mask(*args, **kwargs)

    def call(self, x):
        length = tf.shape(x)[1]
        x = self.embedding(x)
        x *= tf.math.sqrt(tf.cast(self.d_model, tf.float32))
        return x + self.pos_encoding[tf.newaxis, :length, :]


class BaseAttention(tf.keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__()
        self.mha = layers.MultiHeadAttention(**kwargs)
        self.layernorm = layers.LayerNormalization()
        self.add = layers.Add()


class CrossAttentionOf(BaseAttention):
    def call(self, x, context):
        attn_output, attn_scores = self.mha(
            query=x, key=context, value=context, return_attention_scores=True
        )
        self.last_attn_scores = attn_scores
        return self.layernorm(self.add([x, attn_output]))


class GlobalSelfAttention(BaseAttention):
    def call(self, x):
        x = self.add([x, self.mha(query=x, value=x, key=x)])
        return self.layernorm(x)


class CausalSelfAttention(BaseAttention):
    def call(self, x):
        y = self.mha(query=x, value=x, key=x, use_causal_mask=True)
        return self.layernorm(self.add([x, y]))


class FeedForward(tf.keras.layers.Layer):
    def __init__(self, d_model, dff, dropout_rate=0.1):
        super().__init__()
        self.seq = tf.keras.Sequential(
            [
                layers.Dense(dff, activation="relu"),
                layers.Dense(d_model),
                layers.Dropout(dropout_rate),
            ]
        )
        self.add = layers.Add()
        self.layer_norm = layers.LayerNormalization()

    def call(self, x):
        return self.layer_norm(self.add([x, self.seq(x)]))


class EncoderLayer(tf.keras.layers.Layer):
    def __init__(self, *, d_model, num_heads, dff):
        super().__init__()
        self.self_attention = GlobalSelfAttention(
            num_heads=num_heads, key_dim=d_model, dropout=0.1
        )
        self.ffn = FeedForward(d_model, dff)

    def call(self, x):
        return self.ffn(self.self_attention(x))


class DecoderLayer(tf.keras.layers.Layer):
    def __init__(self, *, d_model, num_heads, dff):
        super().__init__()
        arguments = {
            "num_heads": num_heads,
            "key_dim": d_model,
            "dropout": 0.1,
        }
        self.causal_self_attention = CausalSelfAttention(**arguments)
        self.cross_attention = CrossAttentionOf(**arguments)
        self.ffn = FeedForward(d_model, dff)

    def call(self, x, context):
        x = self.causal_self_attention(x=x)
        x = self.cross_attention(x=x, context=context)
        self.last_attn_scores = self.cross_attention.last_attn_scores
        return self.ffn(x)


@model("tensorflow/transformer", TEXT + "transformer")
def transformer():
    sizes = {"d_model": 32, "num_heads": 2, "dff": 64}

    class Encoder(tf.keras.layers.Layer):
        def __init__(self, vocab_size):
            super().__init__()
            self.pos_embedding = PositionalEmbedding(vocab_size, 32)
            self.enc_layers = [EncoderLayer(**sizes) for _ in range(2)]
            self.dropout = layers.Dropout(0.1)

        def call(self, x):
            x = self.dropout(self.pos_embedding(x))
            for layer in self.enc_layers:
                x = layer(x)
            return x

    class Decoder(tf.keras.layers.Layer):
        def __init__(self, vocab_size):
            super().__init__()
            self.pos_embedding = PositionalEmbedding(vocab_size, 32)
            self.dropout = layers.Dropout(0.1)
            self.dec_layers = [DecoderLayer(**sizes) for _ in range(2)]
            self.last_attn_scores = None

        def call(self, x, context):
            x = self.dropout(self.pos_embedding(x))
            for layer in self.dec_layers:
                x = layer(x, context)
            self.last_attn_scores = self.dec_layers[-1].last_attn_scores
            return x

    class Transformer(tf.keras.Model):
        def __init__(self, input_vocab_size, target_vocab_size):
            super().__init__()
            self.encoder = Encoder(input_vocab_size)
            self.decoder = Decoder(target_vocab_size)
            self.final_layer = layers.Dense(target_vocab_size)

        def call(self, inputs):
            context, x = inputs
            context = self.encoder(context)
            logits = self.final_layer(self.decoder(x, context))
            try:
                del logits._keras_mask
            except AttributeError:
                pass
            return logits

    translator = Transformer(150, 170)
    translator((np.ones((2, 9), "int64"), np.ones((2, 6), "int64")))
    return translator, {"max_length": 64}
