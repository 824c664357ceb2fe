"""Models of keras.io's examples of vision: pictures to pictures, text, video.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import keras
from keras import layers

from tests.zoo.entries import group
from tests.zoo.parts import conv, dense, normalized, transposed

vision = group("vision", "https://keras.io/examples/vision/")


@vision("autoencoder")
def autoencoder():
    inputs = x = layers.Input(shape=(28, 28, 1))
    for _ in range(2):
        x = layers.MaxPooling2D((2, 2), padding="same")(conv(x, 32))
    for _ in range(2):
        x = transposed(x, 32, strides=2)
    return keras.Model(inputs, conv(x, 1, activation="sigmoid"))


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


@vision("metric_learning")
def metric_learning():
    class EmbeddingModel(keras.Model):
        pass

    inputs = x = layers.Input(shape=(32, 32, 3))
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, strides=2, activation="relu")(x)
    x = layers.Dense(units=8)(layers.GlobalAveragePooling2D()(x))
    return EmbeddingModel(inputs, layers.UnitNormalization()(x))


@vision("keypoint_detection")
def keypoint_detection():
    backbone = keras.applications.MobileNetV2(
        weights=None, include_top=False, alpha=0.35, input_shape=(64, 64, 3)
    )
    backbone.trainable = False
    inputs = layers.Input((64, 64, 3))
    x = keras.applications.mobilenet_v2.preprocess_input(inputs)
    x = layers.Dropout(0.3)(backbone(x))
    for size, activation in ((2, "relu"), (1, "sigmoid")):
        x = layers.SeparableConv2D(24, size, activation=activation)(x)
    return keras.Model(inputs, x, name="keypoint_detector")


@vision("grad_cam")
def grad_cam():
    classifier = keras.applications.MobileNetV2(
        weights=None, alpha=0.35, input_shape=(64, 64, 3), classes=10
    )
    classifier.layers[-1].activation = None
    last = classifier.get_layer("out_relu").output
    return keras.Model(classifier.inputs, [last, classifier.output])


@vision("unet_oxford_pets", "oxford_pets_image_segmentation/")
def unet_oxford_pets():
    inputs = keras.Input(shape=(64, 64, 3))
    x = normalized(inputs, layers.Conv2D(8, 3, strides=2, padding="same"))
    previous = x
    for layer, sizes in (
        (layers.SeparableConv2D, [16, 32]),
        (layers.Conv2DTranspose, [32, 16, 8]),
    ):
        for filters in sizes:
            for _ in range(2):
                x = layers.Activation("relu")(x)
                x = layer(filters, 3, padding="same")(x)
                x = layers.BatchNormalization()(x)
            strides = 2
            if layer is layers.SeparableConv2D:
                x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
            else:
                x = layers.UpSampling2D(2)(x)
                previous, strides = layers.UpSampling2D(2)(previous), 1
            skip = layers.Conv2D(filters, 1, strides=strides, padding="same")
            previous = x = layers.add([x, skip(previous)])
    outputs = layers.Conv2D(3, 3, activation="softmax", padding="same")(x)
    return keras.Model(inputs, outputs)


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
