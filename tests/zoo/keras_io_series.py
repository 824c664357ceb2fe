"""Models of keras.io's examples of time series and audio.

Built as the examples build them, with narrower layers and shorter series.
"""

import keras
import tensorflow as tf
from keras import layers

from tests.zoo.entries import model

SERIES = "https://keras.io/examples/timeseries/"
AUDIO = "https://keras.io/examples/audio/"


@model(
    "timeseries/weather_forecasting", SERIES + "timeseries_weather_forecasting/"
)
def timeseries_weather_forecasting():
    inputs = keras.layers.Input(shape=(120, 7))
    lstm_out = keras.layers.LSTM(32)(inputs)
    outputs = keras.layers.Dense(1)(lstm_out)
    return keras.Model(inputs=inputs, outputs=outputs)


@model(
    "timeseries/classification_from_scratch",
    SERIES + "timeseries_classification_from_scratch/",
)
def timeseries_classification_from_scratch():
    input_layer = keras.layers.Input((500, 1))
    x = input_layer
    for _ in range(3):
        x = keras.layers.Conv1D(filters=64, kernel_size=3, padding="same")(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.ReLU()(x)
    gap = keras.layers.GlobalAveragePooling1D()(x)
    output_layer = keras.layers.Dense(2, activation="softmax")(gap)
    return keras.Model(inputs=input_layer, outputs=output_layer)


@model(
    "timeseries/classification_transformer",
    SERIES + "timeseries_classification_transformer/",
)
def timeseries_classification_transformer():
    inputs = keras.Input(shape=(100, 1))
    x = inputs
    for _ in range(2):
        res = layers.LayerNormalization(epsilon=1e-6)(x)
        res = layers.MultiHeadAttention(key_dim=32, num_heads=4, dropout=0.25)(
            res, res
        )
        res = layers.Dropout(0.25)(res) + x
        x = layers.LayerNormalization(epsilon=1e-6)(res)
        x = layers.Conv1D(filters=4, kernel_size=1, activation="relu")(x)
        x = layers.Dropout(0.25)(x)
        x = layers.Conv1D(filters=1, kernel_size=1)(x) + res
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.4)(x)
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(x))


@model("timeseries/anomaly_detection", SERIES + "timeseries_anomaly_detection/")
def timeseries_anomaly_detection():
    conv = {"kernel_size": 7, "strides": 2, "padding": "same"}
    return keras.Sequential(
        [
            layers.Input(shape=(288, 1)),
            layers.Conv1D(filters=32, activation="relu", **conv),
            layers.Dropout(rate=0.2),
            layers.Conv1D(filters=16, activation="relu", **conv),
            layers.Conv1DTranspose(filters=16, activation="relu", **conv),
            layers.Dropout(rate=0.2),
            layers.Conv1DTranspose(filters=32, activation="relu", **conv),
            layers.Conv1DTranspose(filters=1, kernel_size=7, padding="same"),
        ]
    )


@model("audio/ctc_asr", AUDIO + "ctc_asr/")
def ctc_asr():
    input_dim, units = 49, 32
    input_spectrogram = layers.Input((None, input_dim), name="input")
    x = layers.Reshape((-1, input_dim, 1), name="expand_dim")(input_spectrogram)
    for i, (kernel, strides) in enumerate(
        (([11, 41], [2, 2]), ([11, 21], [1, 2]))
    ):
        x = layers.Conv2D(
            filters=8,
            kernel_size=kernel,
            strides=strides,
            padding="same",
            use_bias=False,
            name=f"conv_{i + 1}",
        )(x)
        x = layers.BatchNormalization(name=f"conv_{i + 1}_bn")(x)
        x = layers.ReLU(name=f"conv_{i + 1}_relu")(x)
    x = layers.Reshape((-1, x.shape[-2] * x.shape[-1]))(x)
    for i in range(1, 3):
        recurrent = layers.GRU(
            units=units,
            activation="tanh",
            recurrent_activation="sigmoid",
            use_bias=True,
            return_sequences=True,
            reset_after=True,
            name=f"gru_{i}",
        )
        x = layers.Bidirectional(
            recurrent, name=f"bidirectional_{i}", merge_mode="concat"
        )(x)
        if i < 2:
            x = layers.Dropout(rate=0.5)(x)
    x = layers.Dense(units=units * 2, name="dense_1")(x)
    x = layers.ReLU(name="dense_1_relu")(x)
    x = layers.Dropout(rate=0.5)(x)
    output = layers.Dense(units=32, activation="softmax")(x)
    return keras.Model(input_spectrogram, output, name="DeepSpeech_2")


def residual_block(x, filters, conv_num=3, activation="relu"):
    s = keras.layers.Conv1D(filters, 1, padding="same")(x)
    for _ in range(conv_num - 1):
        x = keras.layers.Conv1D(filters, 3, padding="same")(x)
        x = keras.layers.Activation(activation)(x)
    x = keras.layers.Conv1D(filters, 3, padding="same")(x)
    x = keras.layers.Add()([x, s])
    x = keras.layers.Activation(activation)(x)
    return keras.layers.MaxPool1D(pool_size=2, strides=2)(x)


@model("audio/speaker_recognition", AUDIO + "speaker_recognition_using_cnn/")
def speaker_recognition():
    # The example computes the Fourier transforms in its data set.
    inputs = keras.layers.Input(shape=(500, 1), name="input")
    x = residual_block(inputs, 8, 2)
    x = residual_block(x, 16, 2)
    x = residual_block(x, 32, 3)
    x = residual_block(x, 32, 3)
    x = keras.layers.AveragePooling1D(pool_size=3, strides=3)(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(64, activation="relu")(x)
    x = keras.layers.Dense(32, activation="relu")(x)
    outputs = keras.layers.Dense(5, activation="softmax", name="output")(x)
    return keras.models.Model(inputs=inputs, outputs=outputs)


@model(
    "audio/speaker_recognition_from_audio",
    AUDIO + "speaker_recognition_using_cnn/",
)
def speaker_recognition_from_audio():
    def audio_to_fft(audio):
        audio = tf.squeeze(audio, axis=-1)
        fft = tf.signal.fft(
            tf.cast(
                tf.complex(real=audio, imag=tf.zeros_like(audio)), tf.complex64
            )
        )
        fft = tf.expand_dims(fft, axis=-1)
        return tf.math.abs(fft[:, : (1000 // 2), :])

    audio = keras.layers.Input(shape=(1000, 1), name="audio")
    x = keras.layers.Lambda(audio_to_fft, output_shape=(500, 1))(audio)
    x = residual_block(residual_block(x, 8, 2), 16, 2)
    x = keras.layers.GlobalAveragePooling1D()(x)
    outputs = keras.layers.Dense(5, activation="softmax", name="output")(x)
    return keras.models.Model(inputs=audio, outputs=outputs)


@model(
    "audio/uk_ireland_accent_recognition",
    AUDIO + "uk_ireland_accent_recognition/",
)
def uk_ireland_accent_recognition():
    inputs = keras.Input(shape=(1024,), name="embedding")
    x = inputs
    for i, units in enumerate((128, 64, 64, 32)):
        x = keras.layers.Dense(units, activation="relu", name=f"dense_{i + 1}")(
            x
        )
        x = keras.layers.Dropout(0.2, name=f"dropout_{i + 1}")(x)
    outputs = keras.layers.Dense(6, activation="softmax", name="ouput")(x)
    return keras.Model(
        inputs=inputs, outputs=outputs, name="accent_recognition"
    )


@model("audio/melgan_generator", AUDIO + "melgan_spectrogram_inversion/")
def melgan_generator():
    def residual_stack(inputs, filters):
        x = inputs
        for dilation in (1, 3):
            y = keras.layers.LeakyReLU()(x)
            y = keras.layers.Conv1D(
                filters, 3, dilation_rate=dilation, padding="same"
            )(y)
            y = keras.layers.LeakyReLU()(y)
            y = keras.layers.Conv1D(filters, 3, padding="same")(y)
            x = keras.layers.add([x, y])
        return x

    inp = keras.Input((None, 20))
    x = keras.layers.Conv1D(32, 7, padding="same")(inp)
    x = keras.layers.LeakyReLU()(x)
    for filters, factor in ((16, 8), (8, 2)):
        x = keras.layers.Conv1DTranspose(filters, 16, factor, padding="same")(x)
        x = keras.layers.LeakyReLU()(residual_stack(x, filters))
    x = keras.layers.Conv1D(1, 7, padding="same", activation="tanh")(x)
    return keras.Model(inp, x)


@model(
    "audio/mel_spectrogram",
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


@model("audio/stft_1d", AUDIO + "stft/")
def stft_1d():
    inputs = keras.Input((4000, 1))
    x = layers.STFTSpectrogram(
        mode="log",
        frame_length=160,
        frame_step=80,
        fft_length=256,
        trainable=False,
    )(inputs)
    x = layers.Conv1D(16, 9, strides=2, activation="relu")(x)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling1D(2)(x)
    x = layers.Conv1D(32, 3, activation="relu")(x)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dropout(0.3)(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
