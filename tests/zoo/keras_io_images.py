"""Models of keras.io's examples of vision: pictures to pictures, text, video.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import keras
from keras import layers, ops

from tests.zoo.entries import model

IO = "https://keras.io/examples/vision/"


@model("vision/autoencoder", IO + "autoencoder/")
def autoencoder():
    inputs = layers.Input(shape=(28, 28, 1))
    x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D((2, 2), padding="same")(x)
    x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(x)
    x = layers.MaxPooling2D((2, 2), padding="same")(x)
    for _ in range(2):
        x = layers.Conv2DTranspose(
            32, (3, 3), strides=2, activation="relu", padding="same"
        )(x)
    x = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(x)
    return keras.Model(inputs, x)


@model("vision/edsr", IO + "edsr/")
def edsr():
    import tensorflow as tf

    class EDSRModel(keras.Model):
        def train_step(self, data):
            raise NotImplementedError

    def res_block(inputs):
        x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
        x = layers.Conv2D(16, 3, padding="same")(x)
        return layers.Add()([inputs, x])

    def upsampling(inputs, factor=2, **kwargs):
        x = layers.Conv2D(16 * factor**2, 3, padding="same", **kwargs)(inputs)
        x = layers.Lambda(lambda x: tf.nn.depth_to_space(x, block_size=2))(x)
        x = layers.Conv2D(16 * factor**2, 3, padding="same", **kwargs)(x)
        return layers.Lambda(lambda x: tf.nn.depth_to_space(x, block_size=2))(x)

    inputs = layers.Input(shape=(None, None, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = x_new = layers.Conv2D(16, 3, padding="same")(x)
    for _ in range(3):
        x_new = res_block(x_new)
    x_new = layers.Conv2D(16, 3, padding="same")(x_new)
    x = upsampling(layers.Add()([x, x_new]))
    x = layers.Conv2D(3, 3, padding="same")(x)
    return EDSRModel(inputs, layers.Rescaling(scale=255)(x))


class CTCLayer(layers.Layer):
    """Adds the loss of CTC in training, and returns its predictions."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.CTC()

    def call(self, y_true, y_pred):
        self.add_loss(self.loss_fn(y_true, y_pred))
        return y_pred


@model("vision/captcha_ocr", IO + "captcha_ocr/")
def captcha_ocr():
    input_img = layers.Input(shape=(96, 32, 1), name="image", dtype="float32")
    labels = layers.Input(name="label", shape=(None,), dtype="float32")
    x = layers.Conv2D(
        16,
        (3, 3),
        activation="relu",
        kernel_initializer="he_normal",
        padding="same",
        name="Conv1",
    )(input_img)
    x = layers.MaxPooling2D((2, 2), name="pool1")(x)
    x = layers.Conv2D(
        24,
        (3, 3),
        activation="relu",
        kernel_initializer="he_normal",
        padding="same",
        name="Conv2",
    )(x)
    x = layers.MaxPooling2D((2, 2), name="pool2")(x)
    x = layers.Reshape(target_shape=(24, 8 * 24), name="reshape")(x)
    x = layers.Dense(32, activation="relu", name="dense1")(x)
    x = layers.Dropout(0.2)(x)
    x = layers.Bidirectional(
        layers.LSTM(32, return_sequences=True, dropout=0.25)
    )(x)
    x = layers.Bidirectional(
        layers.LSTM(16, return_sequences=True, dropout=0.25)
    )(x)
    x = layers.Dense(21, activation="softmax", name="dense2")(x)
    output = CTCLayer(name="ctc_loss")(labels, x)
    trained = keras.Model([input_img, labels], output, name="ocr_model_v1")
    # What the example predicts with: without the labels.
    return keras.Model(
        trained.input[0], trained.get_layer(name="dense2").output
    )


@model("vision/nerf", IO + "nerf/")
def nerf():
    # A ray's points with sines and cosines of their positions: 2 * 3 * 8 + 3.
    inputs = keras.Input(shape=(256, 2 * 3 * 8 + 3))
    x = inputs
    for i in range(6):
        x = layers.Dense(units=32, activation="relu")(x)
        if i % 4 == 0 and i > 0:
            x = layers.concatenate([x, inputs], axis=-1)
    outputs = layers.Dense(units=4)(x)
    return keras.Model(inputs=inputs, outputs=outputs)


@model("vision/image_classification_3d", IO + "3D_image_classification/")
def image_classification_3d():
    inputs = keras.Input((32, 32, 24, 1))
    x = inputs
    for filters in (8, 8, 16):
        x = layers.Conv3D(
            filters=filters, kernel_size=3, padding="same", activation="relu"
        )(x)
        x = layers.MaxPool3D(pool_size=2)(x)
        x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling3D()(x)
    x = layers.Dense(units=32, activation="relu")(x)
    x = layers.Dropout(0.3)(x)
    outputs = layers.Dense(units=1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs, name="3dcnn")


@model("vision/video_classification", IO + "video_classification/")
def video_classification():
    label_processor = layers.StringLookup(
        num_oov_indices=0, vocabulary=["CricketShot", "Punch", "TennisSwing"]
    )
    frame_features_input = keras.Input((20, 64))
    mask_input = keras.Input((20,), dtype="bool")
    x = layers.GRU(16, return_sequences=True)(
        frame_features_input, mask=mask_input
    )
    x = layers.GRU(8)(x)
    x = layers.Dropout(0.4)(x)
    x = layers.Dense(8, activation="relu")(x)
    output = layers.Dense(
        len(label_processor.get_vocabulary()), activation="softmax"
    )(x)
    return keras.Model([frame_features_input, mask_input], output)


@model("vision/conv_lstm", IO + "conv_lstm/")
def conv_lstm():
    inp = layers.Input(shape=(None, 24, 24, 1))
    x = inp
    for kernel in (5, 3, 1):
        x = layers.ConvLSTM2D(
            filters=8,
            kernel_size=(kernel, kernel),
            padding="same",
            return_sequences=True,
            activation="relu",
        )(x)
        x = layers.BatchNormalization()(x)
    x = layers.Conv3D(
        filters=1, kernel_size=(3, 3, 3), activation="sigmoid", padding="same"
    )(x)
    return keras.Model(inp, x)


@model("vision/vivit", IO + "vivit/")
def vivit():
    class TubeletEmbedding(layers.Layer):
        def __init__(self, embed_dim, patch_size, **kwargs):
            super().__init__(**kwargs)
            self.projection = layers.Conv3D(
                filters=embed_dim,
                kernel_size=patch_size,
                strides=patch_size,
                padding="VALID",
            )
            self.flatten = layers.Reshape(target_shape=(-1, embed_dim))

        def call(self, videos):
            return self.flatten(self.projection(videos))

    class PositionalEncoder(layers.Layer):
        def __init__(self, embed_dim, **kwargs):
            super().__init__(**kwargs)
            self.embed_dim = embed_dim

        def build(self, input_shape):
            _, num_tokens, _ = input_shape
            self.position_embedding = layers.Embedding(
                input_dim=num_tokens, output_dim=self.embed_dim
            )
            self.positions = ops.arange(0, num_tokens, 1)

        def call(self, encoded_tokens):
            return encoded_tokens + self.position_embedding(self.positions)

    inputs = layers.Input(shape=(28, 28, 28, 1))
    patches = TubeletEmbedding(32, (8, 8, 8))(inputs)
    encoded = PositionalEncoder(32)(patches)
    for _ in range(2):
        x1 = layers.LayerNormalization(epsilon=1e-6)(encoded)
        attention = layers.MultiHeadAttention(
            num_heads=4, key_dim=32 // 4, dropout=0.1
        )(x1, x1)
        x2 = layers.Add()([attention, encoded])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x3 = keras.Sequential(
            [
                layers.Dense(units=32 * 4, activation=ops.gelu),
                layers.Dense(units=32, activation=ops.gelu),
            ]
        )(x3)
        encoded = layers.Add()([x3, x2])
    x = layers.LayerNormalization(epsilon=1e-6)(encoded)
    x = layers.GlobalAvgPool1D()(x)
    return keras.Model(inputs, layers.Dense(11, activation="softmax")(x))
