"""Models of tensorflow.org's tutorials.

Built as the tutorials build them (`tf.keras`, and TensorFlow where they use
it), with fewer filters and smaller pictures.
"""

import numpy as np
import tensorflow as tf
from keras import layers

from tests.zoo.entries import group, stack

keras = tf.keras
SERIES = "structured_data/time_series"
tensorflow = group("tensorflow", "https://www.tensorflow.org/tutorials/")


@tensorflow("beginner", "quickstart/beginner")
def beginner():
    trained = stack(
        layers.Input((28, 28)),
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.2),
        layers.Dense(10),
    )
    return stack(trained, layers.Softmax())


@tensorflow("advanced", "quickstart/advanced")
def advanced():
    class MyModel(keras.Model):
        def __init__(self):
            super().__init__()
            self.conv1 = layers.Conv2D(32, 3, activation="relu")
            self.flatten = layers.Flatten()
            self.d1 = layers.Dense(64, activation="relu")
            self.d2 = layers.Dense(10)

        def call(self, x):
            return self.d2(self.d1(self.flatten(self.conv1(x))))

    return called(MyModel(), (28, 28, 1))


def called(network, shape):
    """The network, built by a call on two examples."""
    network(np.zeros((2, *shape), "float32"))
    return network


@tensorflow("regression", "keras/regression")
def regression():
    rng = np.random.default_rng(0)
    normalizer = layers.Normalization(axis=-1)
    normalizer.adapt(rng.normal(50, 20, (20, 9)).astype("float32"))
    network = stack(
        normalizer,
        layers.Dense(64, activation="relu"),
        layers.Dense(64, activation="relu"),
        layers.Dense(1),
    )
    network.build((None, 9))
    return network


def downsample(filters, size, apply_batchnorm):
    norm = [layers.BatchNormalization()] if apply_batchnorm else []
    return stack(
        halved(layers.Conv2D, filters, size, use_bias=False),
        *norm,
        layers.LeakyReLU(),
    )


def upsample(filters, size):
    return stack(
        halved(layers.Conv2DTranspose, filters, size, use_bias=False),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        layers.ReLU(),
    )


def halved(layer, filters, size, **options):
    return layer(
        filters,
        size,
        strides=2,
        padding="same",
        kernel_initializer=tf.random_normal_initializer(0.0, 0.02),
        **options,
    )


@tensorflow("time_series_baseline", SERIES)
def time_series_baseline():
    class Baseline(keras.Model):
        def __init__(self, label_index):
            super().__init__()
            self.label_index = label_index

        def call(self, inputs):
            result = inputs[:, :, self.label_index]
            return result[:, :, tf.newaxis]

    return called(Baseline(label_index=1), (24, 19))


@tensorflow("time_series_conv", SERIES)
def time_series_conv():
    network = stack(
        layers.Conv1D(filters=32, kernel_size=(3,), activation="relu"),
        layers.Dense(units=32, activation="relu"),
        layers.Dense(units=1),
    )
    return called(network, (26, 19))


@tensorflow("pix2pix_generator", "generative/pix2pix")
def pix2pix_generator():
    inputs = x = layers.Input(shape=[64, 64, 3])
    skips = []
    for i, filters in enumerate((16, 24, 32, 32)):
        x = downsample(filters, 4, apply_batchnorm=i > 0)(x)
        skips.append(x)
    for filters, skip in zip((32, 24, 16), skips[-2::-1], strict=True):
        x = layers.Concatenate()([upsample(filters, 4)(x), skip])
    x = halved(layers.Conv2DTranspose, 3, 4, activation="tanh")(x)
    return keras.Model(inputs=inputs, outputs=x)


@tensorflow(
    "two_tower_retrieval",
    "https://www.tensorflow.org/recommenders/examples/basic_retrieval",
)
def two_tower_retrieval():
    vocabularies = {
        "user_id": [str(i) for i in range(1, 9)],
        "movie_title": ["Star Wars (1977)", "Fargo (1996)", "Contact (1997)"],
    }
    inputs, vectors = {}, []
    for name, vocabulary in vocabularies.items():
        inputs[name] = keras.Input((), dtype=tf.string, name=name)
        tower = stack(
            layers.StringLookup(vocabulary=vocabulary, mask_token=None),
            layers.Embedding(len(vocabulary) + 1, 32),
        )
        vectors.append(tower(inputs[name]))
    samples = {
        "user_id": np.array(["3", "8", "99"]),
        "movie_title": np.array(["Fargo (1996)", "Contact (1997)", "?"]),
    }
    scores = layers.Dot(axes=1)(vectors)
    return keras.Model(inputs, scores), {"samples": samples}
