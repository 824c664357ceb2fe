"""Models of many kinds, which every format is to hold."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp


def attention(make):
    inputs = make.ids()
    vectors = layers.Embedding(50, 8, mask_zero=True)(inputs)
    attended = layers.MultiHeadAttention(2, 4)(vectors, vectors)
    outputs = layers.LayerNormalization()(vectors + attended)
    return keras.Model(inputs, layers.Dense(3)(outputs))


def dicts(make):
    words = make.ids("words")
    lengths = keras.Input((), dtype="int32", name="lengths")
    count = ops.cumsum(ops.ones_like(words), axis=1)  # 1, 2, 3...
    mask = ops.cast(count <= ops.expand_dims(lengths, -1), "float32")
    vectors = layers.Embedding(50, 4)(words) * ops.expand_dims(mask, -1)
    return keras.Model(
        {"words": words, "lengths": lengths},
        {"sum": ops.sum(vectors, axis=1), "mask": mask},
    )


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(50, 4)

    def call(self, ids):
        return {"vectors": self.embedding(ids), "real": ids != 0}


def subclass(make):
    model = Subclass()
    model(np.ones((1, 2), "int32"))
    return model, {"ids": keras.InputSpec(shape=(None, None), dtype="int32")}


def nested(make):
    inner = keras.Sequential(
        [layers.Dense(8, activation="relu"), layers.Dense(4)]
    )
    inputs = make.ids()
    return keras.Model(inputs, inner(layers.Embedding(50, 4)(inputs)))


def nan_rows(make):
    # Keras divides by the number of tokens, which is zero in a padded row.
    inputs = make.ids()
    vectors = layers.Embedding(50, 4, mask_zero=True)(inputs)
    return keras.Model(inputs, layers.GlobalAveragePooling1D()(vectors))


def static(make):
    inputs = keras.Input((5,), batch_size=2, dtype="int64", name="ids")
    return keras.Model(inputs, layers.Embedding(50, 4)(inputs))


def masking(make):
    inputs = keras.Input((None, 4), name="frames")
    encoded = kp.PositionalEncoding()(layers.Masking()(inputs))
    return keras.Model(inputs, kp.Pooling1D("mean")(encoded))


def integers(make):
    inputs = make.ids()
    vectors = layers.Embedding(50, 4)(inputs)
    # Keras's own needs an operator that LiteRT does not have.
    best = layers.Lambda(lambda x: tf.argmax(x, axis=-1))(vectors)
    return keras.Model(inputs, {"best": best, "ids": inputs})


def images(make):
    inputs = keras.Input((None, None, 3), name="image")
    features = layers.Conv2D(4, 3, padding="same")(inputs)
    return keras.Model(inputs, layers.GlobalAveragePooling2D()(features))


def halves(make):
    inputs = make.ids()
    vectors = layers.Embedding(50, 4)(inputs)
    return keras.Model(inputs, ops.split(vectors, 2, axis=-1))


MODELS = {
    build.__name__: build
    for build in (
        *(attention, dicts, subclass, nested, nan_rows),
        *(static, masking, integers, images, halves),
    )
}
