"""Models of keras.io's examples of vision: pictures to pictures, text, video.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import keras
from keras import layers, ops

from tests.zoo.entries import group, stack
from tests.zoo.parts import (
    WithPositions,
    conv,
    dense,
    transformer_blocks,
    transposed,
)

vision = group("vision", "https://keras.io/examples/vision/")


@vision("autoencoder")
def autoencoder():
    inputs = x = layers.Input(shape=(28, 28, 1))
    for _ in range(2):
        x = layers.MaxPooling2D((2, 2), padding="same")(conv(x, 32))
    for _ in range(2):
        x = transposed(x, 32, strides=2)
    return keras.Model(inputs, conv(x, 1, activation="sigmoid"))


@vision("edsr")
def edsr():
    import tensorflow as tf

    class EDSRModel(keras.Model):
        def train_step(self, data):
            raise NotImplementedError

    def res_block(inputs):
        x = conv(conv(inputs, 16), 16, activation=None)
        return layers.Add()([inputs, x])

    inputs = layers.Input(shape=(None, None, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = x_new = conv(x, 16, activation=None)
    for _ in range(3):
        x_new = res_block(x_new)
    x_new = conv(x_new, 16, activation=None)
    x = layers.Add()([x, x_new])
    for _ in range(2):
        x = conv(x, 16 * 4, activation=None)
        x = layers.Lambda(lambda x: tf.nn.depth_to_space(x, block_size=2))(x)
    x = conv(x, 3, activation=None)
    return EDSRModel(inputs, layers.Rescaling(scale=255)(x))


class CTCLayer(layers.Layer):
    """Adds the loss of CTC in training, and returns its predictions."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.CTC()

    def call(self, y_true, y_pred):
        self.add_loss(self.loss_fn(y_true, y_pred))
        return y_pred


@vision("captcha_ocr")
def captcha_ocr():
    input_img = layers.Input(shape=(96, 32, 1), name="image", dtype="float32")
    labels = layers.Input(name="label", shape=(None,), dtype="float32")
    x = input_img
    for number, filters in ((1, 16), (2, 24)):
        named = {"name": f"Conv{number}", "kernel_initializer": "he_normal"}
        x = conv(x, filters, (3, 3), **named)
        x = layers.MaxPooling2D((2, 2), name=f"pool{number}")(x)
    x = layers.Reshape(target_shape=(24, 8 * 24), name="reshape")(x)
    x = layers.Dense(32, activation="relu", name="dense1")(x)
    x = layers.Dropout(0.2)(x)
    for units in (32, 16):
        recurrent = layers.LSTM(units, return_sequences=True, dropout=0.25)
        x = layers.Bidirectional(recurrent)(x)
    x = layers.Dense(21, activation="softmax", name="dense2")(x)
    output = CTCLayer(name="ctc_loss")(labels, x)
    trained = keras.Model([input_img, labels], output, name="ocr_model_v1")
    # What the example predicts with: without the labels.
    return keras.Model(
        trained.input[0], trained.get_layer(name="dense2").output
    )


@vision("nerf")
def nerf():
    # A ray's points with sines and cosines of their positions: 2 * 3 * 8 + 3.
    inputs = x = keras.Input(shape=(256, 2 * 3 * 8 + 3))
    for i in range(6):
        x = dense(x, 32)
        if i == 4:
            x = layers.concatenate([x, inputs], axis=-1)
    return keras.Model(inputs, layers.Dense(units=4)(x))


@vision("image_classification_3d", "3D_image_classification/")
def image_classification_3d():
    inputs = x = keras.Input((32, 32, 24, 1))
    for filters in (8, 8, 16):
        x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(layers.MaxPool3D(pool_size=2)(x))
    x = dense(layers.GlobalAveragePooling3D()(x), 32, dropout=0.3)
    outputs = layers.Dense(units=1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs, name="3dcnn")


@vision("video_classification")
def video_classification():
    features = keras.Input((20, 64))
    mask = keras.Input((20,), dtype="bool")
    x = layers.GRU(16, return_sequences=True)(features, mask=mask)
    x = layers.Dropout(0.4)(layers.GRU(8)(x))
    output = layers.Dense(3, activation="softmax")(dense(x, 8))
    return keras.Model([features, mask], output)


@vision("conv_lstm")
def conv_lstm():
    inp = x = layers.Input(shape=(None, 24, 24, 1))
    options = {"padding": "same", "return_sequences": True}
    for kernel in (5, 3, 1):
        x = layers.ConvLSTM2D(8, kernel, activation="relu", **options)(x)
        x = layers.BatchNormalization()(x)
    x = layers.Conv3D(1, 3, activation="sigmoid", padding="same")(x)
    return keras.Model(inp, x)


@vision("vivit")
def vivit():
    class TubeletEmbedding(layers.Layer):
        def __init__(self, embed_dim, patch_size):
            super().__init__()
            self.projection = layers.Conv3D(
                embed_dim, patch_size, strides=patch_size, padding="VALID"
            )
            self.flatten = layers.Reshape(target_shape=(-1, embed_dim))

        def call(self, videos):
            return self.flatten(self.projection(videos))

    def feed_forward(x):
        units = (32 * 4, 32)
        return stack(*(layers.Dense(n, activation=ops.gelu) for n in units))(x)

    inputs = layers.Input(shape=(28, 28, 28, 1))
    x = WithPositions(TubeletEmbedding(32, (8, 8, 8)), 27, 32)(inputs)
    x = transformer_blocks(x, 2, 4, 32 // 4, feed_forward)
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.GlobalAvgPool1D()(x)
    return keras.Model(inputs, layers.Dense(11, activation="softmax")(x))
