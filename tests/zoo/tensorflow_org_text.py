"""Models of tensorflow.org's tutorials of text.

Built as the tutorials build them (`tf.keras`, and TensorFlow where they use
it), with fewer words and narrower layers.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.zoo.entries import group, stack, with_inputs

tensorflow = group("tensorflow", "https://www.tensorflow.org/text/tutorials/")


@tensorflow("text_classification_rnn", "text_classification_rnn")
def text_classification_rnn():
    encoder = layers.TextVectorization(max_tokens=100)
    encoder.adapt(
        ["The movie was cool.", "The graphics were out of this world."]
    )
    network = stack(
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
    )
    network(tf.constant(["The movie was cool."]))
    return network, {"samples": np.array(["The movie was cool.", "world"])}


@tensorflow("text_generation", "text_generation")
def text_generation():
    class MyModel(keras.Model):
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
    return network, with_inputs(network, (None,), "int64")


@tensorflow("word2vec", "word2vec")
def word2vec():
    class Word2Vec(keras.Model):
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
    specs = {
        "pair_1": keras.InputSpec(shape=(None, 1), dtype="int64"),
        "pair_2": keras.InputSpec(shape=(None, 5), dtype="int64"),
    }
    return network, {"signatures": {"serving_default": (network, specs)}}
