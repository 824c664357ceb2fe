"""Models of tensorflow.org's tutorials.

Built as the tutorials build them (`tf.keras`, and TensorFlow where they use
it), with fewer filters and smaller pictures.
"""

import numpy as np
import tensorflow as tf
from keras import layers

from tests.zoo.entries import model, with_inputs

keras = tf.keras
IO = "https://www.tensorflow.org/tutorials/"


@model("tensorflow/beginner", IO + "quickstart/beginner")
def beginner():
    trained = tf.keras.models.Sequential(
        [
            layers.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10),
        ]
    )
    return tf.keras.Sequential([trained, layers.Softmax()])


@model("tensorflow/advanced", IO + "quickstart/advanced")
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

    network = MyModel()
    network(np.zeros((2, 28, 28, 1), "float32"))
    return network


@model("tensorflow/regression", IO + "keras/regression")
def regression():
    rng = np.random.default_rng(0)
    normalizer = layers.Normalization(axis=-1)
    normalizer.adapt(rng.normal(50, 20, (20, 9)).astype("float32"))
    network = keras.Sequential(
        [
            normalizer,
            layers.Dense(64, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(1),
        ]
    )
    network.build((None, 9))
    return network


def downsample(filters, size, apply_batchnorm):
    initializer = tf.random_normal_initializer(0.0, 0.02)
    result = tf.keras.Sequential()
    result.add(
        layers.Conv2D(
            filters,
            size,
            strides=2,
            padding="same",
            kernel_initializer=initializer,
            use_bias=False,
        )
    )
    if apply_batchnorm:
        result.add(layers.BatchNormalization())
    result.add(layers.LeakyReLU())
    return result


def upsample(filters, size):
    initializer = tf.random_normal_initializer(0.0, 0.02)
    result = tf.keras.Sequential()
    result.add(
        layers.Conv2DTranspose(
            filters,
            size,
            strides=2,
            padding="same",
            kernel_initializer=initializer,
            use_bias=False,
        )
    )
    result.add(layers.BatchNormalization())
    result.add(layers.Dropout(0.5))
    result.add(layers.ReLU())
    return result


@model("tensorflow/data_augmentation", IO + "images/data_augmentation")
def data_augmentation():
    def random_invert_img(x, p=0.5):
        if tf.random.uniform([]) < p:
            x = 255 - x
        return x

    class RandomInvert(layers.Layer):
        def __init__(self, factor=0.5, **kwargs):
            super().__init__(**kwargs)
            self.factor = factor

        def call(self, x, training=False):
            return random_invert_img(x, self.factor) if training else x

    return tf.keras.Sequential(
        [
            layers.Input((48, 48, 3)),
            layers.Resizing(36, 36),
            layers.Rescaling(1.0 / 255),
            layers.RandomFlip("horizontal_and_vertical"),
            layers.RandomRotation(0.2),
            RandomInvert(),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )


class ResidualWrapper(tf.keras.Model):
    def __init__(self, wrapped):
        super().__init__()
        self.model = wrapped

    def call(self, inputs, *args, **kwargs):
        return inputs + self.model(inputs, *args, **kwargs)


SERIES = IO + "structured_data/time_series"


@model("tensorflow/time_series_baseline", SERIES)
def time_series_baseline():
    class Baseline(tf.keras.Model):
        def __init__(self, label_index=None):
            super().__init__()
            self.label_index = label_index

        def call(self, inputs):
            if self.label_index is None:
                return inputs
            result = inputs[:, :, self.label_index]
            return result[:, :, tf.newaxis]

    baseline = Baseline(label_index=1)
    baseline(np.zeros((2, 24, 19), "float32"))
    return baseline


@model("tensorflow/time_series_conv", SERIES)
def time_series_conv():
    network = tf.keras.Sequential(
        [
            layers.Conv1D(filters=32, kernel_size=(3,), activation="relu"),
            layers.Dense(units=32, activation="relu"),
            layers.Dense(units=1),
        ]
    )
    network(np.zeros((2, 26, 19), "float32"))
    return network


@model("tensorflow/time_series_residual_lstm", SERIES)
def time_series_residual_lstm():
    network = ResidualWrapper(
        tf.keras.Sequential(
            [
                layers.LSTM(32, return_sequences=True),
                layers.Dense(19, kernel_initializer=tf.initializers.zeros()),
            ]
        )
    )
    network(np.zeros((2, 24, 19), "float32"))
    return network, with_inputs(network, (24, 19), "float32")


@model("tensorflow/time_series_feedback", SERIES)
def time_series_feedback():
    class FeedBack(tf.keras.Model):
        def __init__(self, units, out_steps):
            super().__init__()
            self.out_steps = out_steps
            self.units = units
            self.lstm_cell = layers.LSTMCell(units)
            self.lstm_rnn = layers.RNN(self.lstm_cell, return_state=True)
            self.dense = layers.Dense(19)

        def warmup(self, inputs):
            x, *state = self.lstm_rnn(inputs)
            return self.dense(x), state

        def call(self, inputs, training=None):
            predictions = []
            prediction, state = self.warmup(inputs)
            predictions.append(prediction)
            for _ in range(1, self.out_steps):
                x, state = self.lstm_cell(
                    prediction, states=state, training=training
                )
                prediction = self.dense(x)
                predictions.append(prediction)
            predictions = tf.stack(predictions)
            return tf.transpose(predictions, [1, 0, 2])

    network = FeedBack(units=32, out_steps=8)
    network(np.zeros((2, 24, 19), "float32"))
    return network


@model("tensorflow/simple_audio", IO + "audio/simple_audio")
def simple_audio():
    rng = np.random.default_rng(0)
    norm_layer = layers.Normalization()
    norm_layer.adapt(rng.gamma(1.0, 2.0, (4, 124, 129, 1)).astype("float32"))
    return keras.models.Sequential(
        [
            layers.Input(shape=(124, 129, 1)),
            layers.Resizing(32, 32),
            norm_layer,
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(8),
        ]
    )


@model("tensorflow/pix2pix_generator", IO + "generative/pix2pix")
def pix2pix_generator():
    inputs = layers.Input(shape=[64, 64, 3])
    x = inputs
    skips = []
    for i, filters in enumerate((16, 24, 32, 32)):
        x = downsample(filters, 4, apply_batchnorm=i > 0)(x)
        skips.append(x)
    for filters, skip in zip((32, 24, 16), skips[-2::-1], strict=True):
        x = upsample(filters, 4)(x)
        x = layers.Concatenate()([x, skip])
    x = layers.Conv2DTranspose(
        3,
        4,
        strides=2,
        padding="same",
        kernel_initializer=tf.random_normal_initializer(0.0, 0.02),
        activation="tanh",
    )(x)
    return tf.keras.Model(inputs=inputs, outputs=x)


class Autoencoder(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = tf.keras.Sequential(encoder)
        self.decoder = tf.keras.Sequential(decoder)

    def call(self, x):
        return self.decoder(self.encoder(x))


@model("tensorflow/autoencoder_basic", IO + "generative/autoencoder")
def autoencoder_basic():
    network = Autoencoder(
        [layers.Flatten(), layers.Dense(64, activation="relu")],
        [layers.Dense(784, activation="sigmoid"), layers.Reshape((28, 28))],
    )
    network(np.zeros((2, 28, 28), "float32"))
    return network


@model(
    "tensorflow/two_tower_retrieval",
    "https://www.tensorflow.org/recommenders/examples/basic_retrieval",
)
def two_tower_retrieval():
    users = [str(i) for i in range(1, 9)]
    titles = ["Star Wars (1977)", "Fargo (1996)", "Contact (1997)"]
    towers = []
    for vocabulary in (users, titles):
        towers.append(
            tf.keras.Sequential(
                [
                    layers.StringLookup(vocabulary=vocabulary, mask_token=None),
                    layers.Embedding(len(vocabulary) + 1, 32),
                ]
            )
        )
    user_id = keras.Input((), dtype=tf.string, name="user_id")
    movie_title = keras.Input((), dtype=tf.string, name="movie_title")
    scores = layers.Dot(axes=1)([towers[0](user_id), towers[1](movie_title)])
    samples = {
        "user_id": np.array(["3", "8", "99"]),
        "movie_title": np.array(["Fargo (1996)", "Contact (1997)", "?"]),
    }
    inputs = {"user_id": user_id, "movie_title": movie_title}
    return keras.Model(inputs, scores), {"samples": samples}


@model("tensorflow/custom_layers_resnet", IO + "customization/custom_layers")
def custom_layers_resnet():
    class ResnetIdentityBlock(tf.keras.Model):
        def __init__(self, kernel_size, filters):
            super().__init__(name="")
            filters1, filters2, filters3 = filters
            self.conv2a = layers.Conv2D(filters1, (1, 1))
            self.bn2a = layers.BatchNormalization()
            self.conv2b = layers.Conv2D(filters2, kernel_size, padding="same")
            self.bn2b = layers.BatchNormalization()
            self.conv2c = layers.Conv2D(filters3, (1, 1))
            self.bn2c = layers.BatchNormalization()

        def call(self, input_tensor, training=False):
            x = self.conv2a(input_tensor)
            x = tf.nn.relu(self.bn2a(x, training=training))
            x = self.conv2b(x)
            x = tf.nn.relu(self.bn2b(x, training=training))
            x = self.bn2c(self.conv2c(x), training=training)
            return tf.nn.relu(x + input_tensor)

    block = ResnetIdentityBlock(1, [1, 2, 3])
    block(tf.zeros([1, 2, 3, 3]))
    return block
