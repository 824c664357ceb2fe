"""Models of keras.io's examples of time series and audio.

Built as the examples build them, with narrower layers and shorter series.
"""

import keras
import tensorflow as tf
from keras import layers

from tests.zoo.entries import group, stack
from tests.zoo.parts import dense

timeseries = group("timeseries", "https://keras.io/examples/timeseries/")
audio = group("audio", "https://keras.io/examples/audio/")


@timeseries("weather_forecasting", "timeseries_weather_forecasting/")
def timeseries_weather_forecasting():
    inputs = layers.Input(shape=(120, 7))
    return keras.Model(inputs, layers.Dense(1)(layers.LSTM(32)(inputs)))


@timeseries(
    "classification_from_scratch", "timeseries_classification_from_scratch/"
)
def timeseries_classification_from_scratch():
    inputs = x = layers.Input((500, 1))
    for _ in range(3):
        x = layers.Conv1D(filters=64, kernel_size=3, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(x))


@timeseries("anomaly_detection", "timeseries_anomaly_detection/")
def timeseries_anomaly_detection():
    conv = {"kernel_size": 7, "strides": 2, "padding": "same"}
    return stack(
        layers.Input(shape=(288, 1)),
        layers.Conv1D(filters=32, activation="relu", **conv),
        layers.Dropout(rate=0.2),
        layers.Conv1D(filters=16, activation="relu", **conv),
        layers.Conv1DTranspose(filters=16, activation="relu", **conv),
        layers.Dropout(rate=0.2),
        layers.Conv1DTranspose(filters=32, activation="relu", **conv),
        layers.Conv1DTranspose(filters=1, kernel_size=7, padding="same"),
    )


def residual_block(x, filters, conv_num):
    s = layers.Conv1D(filters, 1, padding="same")(x)
    for _ in range(conv_num - 1):
        x = layers.Conv1D(filters, 3, padding="same")(x)
        x = layers.Activation("relu")(x)
    x = layers.Conv1D(filters, 3, padding="same")(x)
    x = layers.Activation("relu")(layers.Add()([x, s]))
    return layers.MaxPool1D(pool_size=2, strides=2)(x)


@audio("speaker_recognition", "speaker_recognition_using_cnn/")
def speaker_recognition():
    # The example computes the Fourier transforms in its data set.
    inputs = x = layers.Input(shape=(500, 1), name="input")
    for filters, conv_num in ((8, 2), (16, 2), (32, 3), (32, 3)):
        x = residual_block(x, filters, conv_num)
    x = layers.AveragePooling1D(pool_size=3, strides=3)(x)
    x = dense(layers.Flatten()(x), 64, 32)
    outputs = layers.Dense(5, activation="softmax", name="output")(x)
    return keras.Model(inputs=inputs, outputs=outputs)


@audio("speaker_recognition_from_audio", "speaker_recognition_using_cnn/")
def speaker_recognition_from_audio():
    def audio_to_fft(audio):
        audio = tf.squeeze(audio, axis=-1)
        fft = tf.signal.fft(tf.complex(audio, tf.zeros_like(audio)))
        return tf.math.abs(tf.expand_dims(fft, axis=-1)[:, : (1000 // 2), :])

    audio = layers.Input(shape=(1000, 1), name="audio")
    x = layers.Lambda(audio_to_fft, output_shape=(500, 1))(audio)
    x = residual_block(residual_block(x, 8, 2), 16, 2)
    x = layers.GlobalAveragePooling1D()(x)
    outputs = layers.Dense(5, activation="softmax", name="output")(x)
    return keras.Model(inputs=audio, outputs=outputs)


@audio("uk_ireland_accent_recognition")
def uk_ireland_accent_recognition():
    inputs = x = keras.Input(shape=(1024,), name="embedding")
    for i, units in enumerate((128, 64, 64, 32), 1):
        x = layers.Dense(units, activation="relu", name=f"dense_{i}")(x)
        x = layers.Dropout(0.2, name=f"dropout_{i}")(x)
    outputs = layers.Dense(6, activation="softmax", name="ouput")(x)
    return keras.Model(inputs, outputs, name="accent_recognition")


@audio(
    "mel_spectrogram",
    "https://keras.io/api/layers/preprocessing_layers/audio_preprocessing/mel_spectrogram/",
)
def mel_spectrogram():
    audio = keras.Input((4000,), name="audio")
    x = layers.MelSpectrogram(
        num_mel_bins=32, sampling_rate=8000, fft_length=256, max_freq=4000
    )(audio)
    x = layers.Reshape((*x.shape[1:], 1))(x)
    x = layers.Conv2D(8, 3, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(audio, layers.Dense(4, activation="softmax")(x))


@audio("stft_1d", "stft/")
def stft_1d():
    inputs = keras.Input((4000, 1))
    sizes = {"frame_length": 160, "frame_step": 80, "fft_length": 256}
    x = layers.STFTSpectrogram(mode="log", trainable=False, **sizes)(inputs)
    x = layers.Conv1D(16, 9, strides=2, activation="relu")(x)
    x = layers.MaxPooling1D(2)(layers.BatchNormalization()(x))
    x = layers.Conv1D(32, 3, activation="relu")(x)
    x = layers.Dropout(0.3)(layers.GlobalMaxPooling1D()(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


@audio("melgan_generator", "melgan_spectrogram_inversion/")
def melgan_generator():
    def residual_stack(x, filters):
        for dilation in (1, 3):
            y = x
            for rate in (dilation, 1):
                y = layers.LeakyReLU()(y)
                y = layers.Conv1D(
                    filters, 3, dilation_rate=rate, padding="same"
                )(y)
            x = layers.add([x, y])
        return x

    inp = keras.Input((None, 20))
    x = layers.LeakyReLU()(layers.Conv1D(32, 7, padding="same")(inp))
    for filters, factor in ((16, 8), (8, 2)):
        x = layers.Conv1DTranspose(filters, 16, factor, padding="same")(x)
        x = layers.LeakyReLU()(residual_stack(x, filters))
    x = layers.Conv1D(1, 7, padding="same", activation="tanh")(x)
    return keras.Model(inp, x)
