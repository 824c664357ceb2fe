"""Models of tensorflow.org's tutorials.

Built as the tutorials build them (`tf.keras`, and TensorFlow where they use
it), with fewer filters and smaller pictures.
"""

import numpy as np
import tensorflow as tf
from keras import layers

from tests.zoo.entries import model

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


@model("tensorflow/classification", IO + "keras/classification")
def classification():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((28, 28)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


@model("tensorflow/text_classification", IO + "keras/text_classification")
def text_classification():
    def custom_standardization(input_data):
        lowercase = tf.strings.lower(input_data)
        stripped = tf.strings.regex_replace(lowercase, "<br />", " ")
        return tf.strings.regex_replace(stripped, "[!-/:-@\\[-`{-~]", "")

    vectorize_layer = layers.TextVectorization(
        standardize=custom_standardization,
        max_tokens=1000,
        output_mode="int",
        output_sequence_length=60,
    )
    vectorize_layer.adapt(
        [
            "A wonderful film.<br />Go and see it!",
            "It was terrible, and far too long.",
            "Good actors; a poor plot.",
        ]
    )
    trained = tf.keras.Sequential(
        [
            layers.Embedding(1000, 16),
            layers.Dropout(0.2),
            layers.GlobalAveragePooling1D(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    export_model = tf.keras.Sequential([vectorize_layer, trained])
    texts = tf.constant(["The movie was great!", "The movie was okay."])
    export_model(texts)
    return export_model, {"samples": np.array(["The movie was great!", "dull"])}


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


@model("tensorflow/regression_horsepower", IO + "keras/regression")
def regression_horsepower():
    horsepower = np.array([130.0, 165.0, 150.0, 95.0, 46.0])
    normalizer = layers.Normalization(input_shape=[1], axis=None)
    normalizer.adapt(horsepower)
    return tf.keras.Sequential([normalizer, layers.Dense(units=1)])


@model("tensorflow/overfit_and_underfit", IO + "keras/overfit_and_underfit")
def overfit_and_underfit():
    l2 = tf.keras.regularizers.l2(0.0001)
    hidden = []
    for _ in range(4):
        hidden.append(
            layers.Dense(128, kernel_regularizer=l2, activation="elu")
        )
        hidden.append(layers.Dropout(0.5))
    return tf.keras.Sequential([layers.Input((28,)), *hidden, layers.Dense(1)])


@model("tensorflow/cnn", IO + "images/cnn")
def cnn():
    network = keras.models.Sequential()
    network.add(layers.Input((32, 32, 3)))
    network.add(layers.Conv2D(32, (3, 3), activation="relu"))
    network.add(layers.MaxPooling2D((2, 2)))
    network.add(layers.Conv2D(64, (3, 3), activation="relu"))
    network.add(layers.MaxPooling2D((2, 2)))
    network.add(layers.Conv2D(64, (3, 3), activation="relu"))
    network.add(layers.Flatten())
    network.add(layers.Dense(64, activation="relu"))
    network.add(layers.Dense(10))
    return network


@model("tensorflow/flowers", IO + "images/classification")
def flowers():
    data_augmentation = keras.Sequential(
        [
            layers.RandomFlip("horizontal", input_shape=(60, 60, 3)),
            layers.RandomRotation(0.1),
            layers.RandomZoom(0.1),
        ]
    )
    return keras.Sequential(
        [
            data_augmentation,
            layers.Rescaling(1.0 / 255),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(5, name="outputs"),
        ]
    )


@model("tensorflow/transfer_learning", IO + "images/transfer_learning")
def transfer_learning():
    base_model = tf.keras.applications.MobileNetV2(
        input_shape=(64, 64, 3), include_top=False, weights=None, alpha=0.35
    )
    base_model.trainable = False
    data_augmentation = tf.keras.Sequential(
        [layers.RandomFlip("horizontal"), layers.RandomRotation(0.2)]
    )
    inputs = tf.keras.Input(shape=(64, 64, 3))
    x = data_augmentation(inputs)
    x = tf.keras.applications.mobilenet_v2.preprocess_input(x)
    x = base_model(x, training=False)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2)(x)
    outputs = layers.Dense(1, activation="sigmoid")(x)
    return tf.keras.Model(inputs, outputs)


def downsample(filters, size, apply_batchnorm=True):
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


def upsample(filters, size, apply_dropout=False):
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
    if apply_dropout:
        result.add(layers.Dropout(0.5))
    result.add(layers.ReLU())
    return result


@model("tensorflow/segmentation", IO + "images/segmentation")
def segmentation():
    base_model = tf.keras.applications.MobileNetV2(
        input_shape=[64, 64, 3], include_top=False, weights=None, alpha=0.35
    )
    names = [
        "block_1_expand_relu",
        "block_3_expand_relu",
        "block_6_expand_relu",
        "block_13_expand_relu",
        "block_16_project",
    ]
    outputs = [base_model.get_layer(name).output for name in names]
    down_stack = tf.keras.Model(inputs=base_model.input, outputs=outputs)
    down_stack.trainable = False
    inputs = layers.Input(shape=[64, 64, 3])
    skips = down_stack(inputs)
    x = skips[-1]
    for filters, skip in zip((32, 24, 16, 8), skips[-2::-1], strict=True):
        x = upsample(filters, 3)(x)
        x = layers.Concatenate()([x, skip])
    x = layers.Conv2DTranspose(
        filters=3, kernel_size=3, strides=2, padding="same"
    )(x)
    return tf.keras.Model(inputs=inputs, outputs=x)


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


@model(
    "tensorflow/preprocessing_layers",
    IO + "structured_data/preprocessing_layers",
)
def preprocessing_layers():
    ages = np.array([[3.0], [12.0], [1.0], [60.0]])
    all_inputs, encoded = {}, []
    for name in ("PhotoAmt", "Fee"):
        column = tf.keras.Input(shape=(1,), name=name)
        normalizer = layers.Normalization(axis=None)
        normalizer.adapt(ages)
        all_inputs[name] = column
        encoded.append(normalizer(column))
    age = tf.keras.Input(shape=(1,), name="Age", dtype="int64")
    index = layers.IntegerLookup(max_tokens=5)
    index.adapt(np.array([[3], [12], [1], [60]]))
    encoder = layers.CategoryEncoding(num_tokens=index.vocabulary_size())
    all_inputs["Age"] = age
    encoded.append(encoder(index(age)))
    names = {
        "Type": ["Cat", "Dog"],
        "Color1": ["Black", "Brown", "Cream"],
        "Gender": ["Female", "Male"],
    }
    for name, values in names.items():
        column = tf.keras.Input(shape=(1,), name=name, dtype="string")
        index = layers.StringLookup(max_tokens=5)
        index.adapt(np.array(values)[:, None])
        encoder = layers.CategoryEncoding(num_tokens=index.vocabulary_size())
        all_inputs[name] = column
        encoded.append(encoder(index(column)))
    x = layers.concatenate(encoded)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    output = layers.Dense(1)(x)
    samples = {
        "PhotoAmt": np.array([[7.0], [0.0]], "float32"),
        "Fee": np.array([[100.0], [0.0]], "float32"),
        "Age": np.array([[3], [60]]),
        "Type": np.array([["Cat"], ["Dog"]]),
        "Color1": np.array([["Black"], ["Gold"]]),
        "Gender": np.array([["Male"], ["Female"]]),
    }
    return tf.keras.Model(all_inputs, output), {"samples": samples}


@model("tensorflow/titanic", IO + "load_data/csv")
def titanic():
    numbers = ("age", "n_siblings_spouses", "parch", "fare")
    words = {
        "sex": ["female", "male"],
        "class": ["First", "Second", "Third"],
        "deck": ["A", "B", "unknown"],
        "alone": ["n", "y"],
    }
    inputs = {
        name: tf.keras.Input(shape=(1,), name=name, dtype=tf.float32)
        for name in numbers
    }
    for name in words:
        inputs[name] = tf.keras.Input(shape=(1,), name=name, dtype=tf.string)
    x = layers.Concatenate()([inputs[name] for name in numbers])
    norm = layers.Normalization()
    norm.adapt(np.random.default_rng(0).normal(20, 9, (16, len(numbers))))
    preprocessed = [norm(x)]
    for name, values in words.items():
        lookup = layers.StringLookup(vocabulary=np.unique(values))
        one_hot = layers.CategoryEncoding(num_tokens=lookup.vocabulary_size())
        preprocessed.append(one_hot(lookup(inputs[name])))
    preprocessing = tf.keras.Model(
        inputs, layers.Concatenate()(preprocessed), name="preprocessing"
    )
    body = tf.keras.Sequential(
        [layers.Dense(64, activation="relu"), layers.Dense(1)]
    )
    result = body(preprocessing(inputs))
    samples = {name: np.array([[22.0], [38.0]], "float32") for name in numbers}
    for name, values in words.items():
        samples[name] = np.array([[values[0]], [values[-1]]])
    return tf.keras.Model(inputs, result), {"samples": samples}


@model("tensorflow/imbalanced_data", IO + "structured_data/imbalanced_data")
def imbalanced_data():
    output_bias = tf.keras.initializers.Constant(np.log([492 / 284315]))
    return keras.Sequential(
        [
            layers.Input((29,)),
            layers.Dense(16, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(1, activation="sigmoid", bias_initializer=output_bias),
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


@model("tensorflow/time_series_multi_step_dense", SERIES)
def time_series_multi_step_dense():
    return tf.keras.Sequential(
        [
            layers.Input((3, 19)),
            layers.Flatten(),
            layers.Dense(units=32, activation="relu"),
            layers.Dense(units=32, activation="relu"),
            layers.Dense(units=1),
            layers.Reshape([1, -1]),
        ]
    )


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
    return network


@model("tensorflow/time_series_multi_conv", SERIES)
def time_series_multi_conv():
    network = tf.keras.Sequential(
        [
            layers.Lambda(lambda x: x[:, -3:, :]),
            layers.Conv1D(64, activation="relu", kernel_size=(3)),
            layers.Dense(24 * 19, kernel_initializer=tf.initializers.zeros()),
            layers.Reshape([24, 19]),
        ]
    )
    network(np.zeros((2, 24, 19), "float32"))
    return network


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


@model("tensorflow/simple_audio_from_waveform", IO + "audio/simple_audio")
def simple_audio_from_waveform():
    # What the tutorial exports: the spectrogram is made by the model.
    def get_spectrogram(waveform):
        spectrogram = tf.signal.stft(waveform, frame_length=255, frame_step=128)
        return tf.abs(spectrogram)[..., tf.newaxis]

    waveform = keras.Input((4000,), name="waveform")
    x = layers.Lambda(get_spectrogram, output_shape=(30, 129, 1))(waveform)
    x = layers.Resizing(32, 32)(x)
    x = layers.Conv2D(16, 3, activation="relu")(x)
    x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    logits = layers.Dense(8)(x)
    return keras.Model(
        waveform,
        {
            "predictions": logits,
            "class_ids": layers.Lambda(
                lambda a: tf.argmax(a, axis=-1), output_shape=()
            )(logits),
        },
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
        x = upsample(filters, 4, apply_dropout=True)(x)
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


@model("tensorflow/pix2pix_discriminator", IO + "generative/pix2pix")
def pix2pix_discriminator():
    initializer = tf.random_normal_initializer(0.0, 0.02)
    inp = layers.Input(shape=[64, 64, 3], name="input_image")
    tar = layers.Input(shape=[64, 64, 3], name="target_image")
    x = layers.concatenate([inp, tar])
    for filters, batchnorm in ((16, False), (24, True), (32, True)):
        x = downsample(filters, 4, batchnorm)(x)
    x = layers.ZeroPadding2D()(x)
    x = layers.Conv2D(
        48, 4, strides=1, kernel_initializer=initializer, use_bias=False
    )(x)
    x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    x = layers.ZeroPadding2D()(x)
    last = layers.Conv2D(1, 4, strides=1, kernel_initializer=initializer)(x)
    return tf.keras.Model(inputs=[inp, tar], outputs=last)


@model("tensorflow/dcgan_generator", IO + "generative/dcgan")
def dcgan_generator():
    network = tf.keras.Sequential()
    network.add(layers.Dense(7 * 7 * 32, use_bias=False, input_shape=(100,)))
    network.add(layers.BatchNormalization())
    network.add(layers.LeakyReLU())
    network.add(layers.Reshape((7, 7, 32)))
    for filters, strides in ((24, (1, 1)), (16, (2, 2))):
        network.add(
            layers.Conv2DTranspose(
                filters,
                (5, 5),
                strides=strides,
                padding="same",
                use_bias=False,
            )
        )
        network.add(layers.BatchNormalization())
        network.add(layers.LeakyReLU())
    network.add(
        layers.Conv2DTranspose(
            1,
            (5, 5),
            strides=(2, 2),
            padding="same",
            use_bias=False,
            activation="tanh",
        )
    )
    return network


@model("tensorflow/cvae_encoder", IO + "generative/cvae")
def cvae_encoder():
    encoder = tf.keras.Sequential(
        [
            layers.InputLayer(input_shape=(28, 28, 1)),
            layers.Conv2D(32, 3, strides=(2, 2), activation="relu"),
            layers.Conv2D(64, 3, strides=(2, 2), activation="relu"),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )
    pictures = keras.Input((28, 28, 1))
    mean, logvar = tf.keras.ops.split(encoder(pictures), 2, axis=1)
    return tf.keras.Model(pictures, {"mean": mean, "logvar": logvar})


@model("tensorflow/cvae_decoder", IO + "generative/cvae")
def cvae_decoder():
    return tf.keras.Sequential(
        [
            layers.Input((2,)),
            layers.Dense(units=7 * 7 * 32, activation=tf.nn.relu),
            layers.Reshape(target_shape=(7, 7, 32)),
            layers.Conv2DTranspose(64, 3, 2, "same", activation="relu"),
            layers.Conv2DTranspose(32, 3, 2, "same", activation="relu"),
            layers.Conv2DTranspose(1, 3, 1, "same"),
        ]
    )


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


@model("tensorflow/autoencoder_denoise", IO + "generative/autoencoder")
def autoencoder_denoise():
    same = {"activation": "relu", "padding": "same", "strides": 2}
    network = Autoencoder(
        [
            layers.Input(shape=(28, 28, 1)),
            layers.Conv2D(16, (3, 3), **same),
            layers.Conv2D(8, (3, 3), **same),
        ],
        [
            layers.Conv2DTranspose(8, kernel_size=3, **same),
            layers.Conv2DTranspose(16, kernel_size=3, **same),
            layers.Conv2D(
                1, kernel_size=(3, 3), activation="sigmoid", padding="same"
            ),
        ],
    )
    network(np.zeros((2, 28, 28, 1), "float32"))
    return network


@model("tensorflow/autoencoder_anomaly", IO + "generative/autoencoder")
def autoencoder_anomaly():
    relu = {"activation": "relu"}
    network = Autoencoder(
        [layers.Dense(32, **relu), layers.Dense(16, **relu), layers.Dense(8)],
        [
            layers.Dense(16, **relu),
            layers.Dense(32, **relu),
            layers.Dense(140, activation="sigmoid"),
        ],
    )
    network(np.zeros((2, 140), "float32"))
    return network


@model("tensorflow/video_classification", IO + "video/video_classification")
def video_classification():
    class Conv2Plus1D(keras.layers.Layer):
        def __init__(self, filters, kernel_size, padding):
            super().__init__()
            frames, height, width = kernel_size
            self.seq = keras.Sequential(
                [
                    layers.Conv3D(filters, (1, height, width), padding=padding),
                    layers.Conv3D(filters, (frames, 1, 1), padding=padding),
                ]
            )

        def call(self, x):
            return self.seq(x)

    class ResidualMain(keras.layers.Layer):
        def __init__(self, filters, kernel_size):
            super().__init__()
            self.seq = keras.Sequential(
                [
                    Conv2Plus1D(filters, kernel_size, "same"),
                    layers.LayerNormalization(),
                    layers.ReLU(),
                    Conv2Plus1D(filters, kernel_size, "same"),
                    layers.LayerNormalization(),
                ]
            )

        def call(self, x):
            return self.seq(x)

    class Project(keras.layers.Layer):
        def __init__(self, units):
            super().__init__()
            self.seq = keras.Sequential(
                [layers.Dense(units), layers.LayerNormalization()]
            )

        def call(self, x):
            return self.seq(x)

    class ResizeVideo(keras.layers.Layer):
        def __init__(self, height, width):
            super().__init__()
            self.height = height
            self.width = width
            self.resizing_layer = layers.Resizing(height, width)

        def call(self, video):
            shape = tf.shape(video)
            frames, channels = shape[1], video.shape[-1]
            images = tf.reshape(
                video, (-1, video.shape[2], video.shape[3], channels)
            )
            images = self.resizing_layer(images)
            return tf.reshape(
                images, (-1, frames, self.height, self.width, channels)
            )

    inputs = layers.Input(shape=(6, 48, 48, 3))
    x = Conv2Plus1D(filters=8, kernel_size=(3, 7, 7), padding="same")(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = ResizeVideo(24, 24)(x)
    for filters, size in ((8, 12), (16, 6)):
        out = ResidualMain(filters, (3, 3, 3))(x)
        res = x
        if out.shape[-1] != x.shape[-1]:
            res = Project(out.shape[-1])(res)
        x = ResizeVideo(size, size)(layers.add([res, out]))
    x = layers.GlobalAveragePooling3D()(x)
    x = layers.Flatten()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


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


@model(
    "tensorflow/ranking",
    "https://www.tensorflow.org/recommenders/examples/basic_ranking",
)
def ranking():
    class RankingModel(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.user_embeddings = tf.keras.Sequential(
                [
                    layers.StringLookup(
                        vocabulary=["1", "2", "42"], mask_token=None
                    ),
                    layers.Embedding(4, 32),
                ]
            )
            self.movie_embeddings = tf.keras.Sequential(
                [
                    layers.StringLookup(
                        vocabulary=["Fargo (1996)", "Contact (1997)"],
                        mask_token=None,
                    ),
                    layers.Embedding(3, 32),
                ]
            )
            self.ratings = tf.keras.Sequential(
                [
                    layers.Dense(64, activation="relu"),
                    layers.Dense(32, activation="relu"),
                    layers.Dense(1),
                ]
            )

        def call(self, inputs):
            user_id, movie_title = inputs
            user = self.user_embeddings(user_id)
            movie = self.movie_embeddings(movie_title)
            return self.ratings(tf.concat([user, movie], axis=1))

    network = RankingModel()
    network((tf.constant(["42"]), tf.constant(["Fargo (1996)"])))
    samples = (
        np.array(["42", "7"]),
        np.array(["Fargo (1996)", "Contact (1997)"]),
    )
    return network, {"samples": samples}


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
