"""Models of keras.io's examples of vision: vectors, parts of pictures, clouds.

Built as the examples build them, with fewer blocks and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import group
from tests.zoo.parts import normalized

vision = group("vision", "https://keras.io/examples/vision/")


@vision("siamese_contrastive")
def siamese_contrastive():
    def euclidean_distance(vects):
        x, y = vects
        total = ops.sum(ops.square(x - y), axis=1, keepdims=True)
        return ops.sqrt(ops.maximum(total, keras.backend.epsilon()))

    inputs = layers.Input((28, 28, 1))
    x = layers.BatchNormalization()(inputs)
    for filters in (4, 16):
        x = layers.Conv2D(filters, (5, 5), activation="tanh")(x)
        x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.BatchNormalization()(layers.Flatten()(x))
    embed = keras.Model(inputs, layers.Dense(10, activation="tanh")(x))
    pair = [layers.Input((28, 28, 1)), layers.Input((28, 28, 1))]
    merged = layers.Lambda(euclidean_distance, output_shape=(1,))(
        [embed(each) for each in pair]
    )
    normal = layers.BatchNormalization()(merged)
    return keras.Model(pair, layers.Dense(1, activation="sigmoid")(normal))


@vision("metric_learning")
def metric_learning():
    class EmbeddingModel(keras.Model):
        pass

    inputs = x = layers.Input(shape=(32, 32, 3))
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, strides=2, activation="relu")(x)
    x = layers.Dense(units=8)(layers.GlobalAveragePooling2D()(x))
    return EmbeddingModel(inputs, layers.UnitNormalization()(x))


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


def points(x, layer):
    x = layers.BatchNormalization(momentum=0.0)(layer(x))
    return layers.Activation("relu")(x)


class OrthogonalRegularizer(keras.regularizers.Regularizer):
    def __init__(self, num_features, l2reg=0.001):
        self.num_features = num_features
        self.l2reg = l2reg
        self.eye = ops.eye(num_features)

    def __call__(self, x):
        x = ops.reshape(x, (-1, self.num_features, self.num_features))
        xxt = ops.tensordot(x, x, axes=(2, 2))
        xxt = ops.reshape(xxt, (-1, self.num_features, self.num_features))
        return ops.sum(self.l2reg * ops.square(xxt - self.eye))


def tnet(inputs, num_features):
    bias = keras.initializers.Constant(np.eye(num_features).flatten())
    x = inputs
    for filters in (16, 16, 64):
        x = points(x, layers.Conv1D(filters, 1))
    x = layers.GlobalMaxPooling1D()(x)
    for units in (32, 16):
        x = points(x, layers.Dense(units))
    x = layers.Dense(
        num_features * num_features,
        kernel_initializer="zeros",
        bias_initializer=bias,
        activity_regularizer=OrthogonalRegularizer(num_features),
    )(x)
    transform = layers.Reshape((num_features, num_features))(x)
    return layers.Dot(axes=(2, 1))([inputs, transform])


@vision("pointnet")
def pointnet():
    inputs = keras.Input(shape=(128, 3))
    x = tnet(inputs, 3)
    for filters in (16, 16):
        x = points(x, layers.Conv1D(filters, 1))
    x = tnet(x, 16)
    for filters in (16, 32, 64):
        x = points(x, layers.Conv1D(filters, 1))
    x = layers.GlobalMaxPooling1D()(x)
    for units in (32, 16):
        x = layers.Dropout(0.3)(points(x, layers.Dense(units)))
    outputs = layers.Dense(10, activation="softmax")(x)
    return keras.Model(inputs, outputs, name="pointnet")


@vision("grad_cam")
def grad_cam():
    classifier = keras.applications.MobileNetV2(
        weights=None, alpha=0.35, input_shape=(64, 64, 3), classes=10
    )
    classifier.layers[-1].activation = None
    last = classifier.get_layer("out_relu").output
    return keras.Model(classifier.inputs, [last, classifier.output])
