"""Models of keras.io's examples of vision: vectors, parts of pictures, clouds.

Built as the examples build them, with fewer blocks and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import model
from tests.zoo.keras_io_vision import Patches, mlp

IO = "https://keras.io/examples/vision/"


@model("vision/siamese_contrastive", IO + "siamese_contrastive/")
def siamese_contrastive():
    def euclidean_distance(vects):
        x, y = vects
        total = ops.sum(ops.square(x - y), axis=1, keepdims=True)
        return ops.sqrt(ops.maximum(total, keras.backend.epsilon()))

    inputs = keras.layers.Input((28, 28, 1))
    x = keras.layers.BatchNormalization()(inputs)
    x = keras.layers.Conv2D(4, (5, 5), activation="tanh")(x)
    x = keras.layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = keras.layers.Conv2D(16, (5, 5), activation="tanh")(x)
    x = keras.layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dense(10, activation="tanh")(x)
    embedding_network = keras.Model(inputs, x)
    input_1 = keras.layers.Input((28, 28, 1))
    input_2 = keras.layers.Input((28, 28, 1))
    tower_1 = embedding_network(input_1)
    tower_2 = embedding_network(input_2)
    merged = keras.layers.Lambda(euclidean_distance, output_shape=(1,))(
        [tower_1, tower_2]
    )
    normal = keras.layers.BatchNormalization()(merged)
    output = keras.layers.Dense(1, activation="sigmoid")(normal)
    return keras.Model(inputs=[input_1, input_2], outputs=output)


@model("vision/metric_learning", IO + "metric_learning/")
def metric_learning():
    class EmbeddingModel(keras.Model):
        pass

    inputs = layers.Input(shape=(32, 32, 3))
    x = layers.Conv2D(16, 3, strides=2, activation="relu")(inputs)
    x = layers.Conv2D(32, 3, strides=2, activation="relu")(x)
    x = layers.Conv2D(64, 3, strides=2, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    embeddings = layers.Dense(units=8, activation=None)(x)
    embeddings = layers.UnitNormalization()(embeddings)
    return EmbeddingModel(inputs, embeddings)


def transformer_blocks(x, blocks, heads, width, units):
    for _ in range(blocks):
        x1 = layers.LayerNormalization(epsilon=1e-6)(x)
        attention = layers.MultiHeadAttention(
            num_heads=heads, key_dim=width, dropout=0.1
        )(x1, x1)
        x2 = layers.Add()([attention, x])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x = layers.Add()([mlp(x3, units, 0.1), x2])
    return x


@model("vision/unet_oxford_pets", IO + "oxford_pets_image_segmentation/")
def unet_oxford_pets():
    inputs = keras.Input(shape=(64, 64, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous = x
    for filters in [16, 32]:
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.SeparableConv2D(filters, 3, padding="same")(x)
            x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        skip = layers.Conv2D(filters, 1, strides=2, padding="same")(previous)
        x = layers.add([x, skip])
        previous = x
    for filters in [32, 16, 8]:
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
            x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        skip = layers.UpSampling2D(2)(previous)
        skip = layers.Conv2D(filters, 1, padding="same")(skip)
        x = layers.add([x, skip])
        previous = x
    outputs = layers.Conv2D(3, 3, activation="softmax", padding="same")(x)
    return keras.Model(inputs, outputs)


@model("vision/keypoint_detection", IO + "keypoint_detection/")
def keypoint_detection():
    backbone = keras.applications.MobileNetV2(
        weights=None, include_top=False, alpha=0.35, input_shape=(64, 64, 3)
    )
    backbone.trainable = False
    inputs = layers.Input((64, 64, 3))
    x = keras.applications.mobilenet_v2.preprocess_input(inputs)
    x = backbone(x)
    x = layers.Dropout(0.3)(x)
    x = layers.SeparableConv2D(24, kernel_size=2, strides=1, activation="relu")(
        x
    )
    outputs = layers.SeparableConv2D(
        24, kernel_size=1, strides=1, activation="sigmoid"
    )(x)
    return keras.Model(inputs, outputs, name="keypoint_detector")


@model(
    "vision/object_detection_vit",
    IO + "object_detection_using_vision_transformer/",
)
def object_detection_vit():
    class PatchEncoderOfDetector(layers.Layer):
        def __init__(self, num_patches, projection_dim):
            super().__init__()
            self.num_patches = num_patches
            self.projection = layers.Dense(units=projection_dim)
            self.position_embedding = layers.Embedding(
                input_dim=num_patches, output_dim=projection_dim
            )

        def call(self, patch):
            positions = ops.expand_dims(
                ops.arange(start=0, stop=self.num_patches, step=1), axis=0
            )
            projected = self.projection(patch)
            return projected + self.position_embedding(positions)

    inputs = keras.Input(shape=(64, 64, 3))
    x = PatchEncoderOfDetector(16, 32)(Patches(16)(inputs))
    x = transformer_blocks(x, 2, 4, 32, [64, 32])
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    features = mlp(x, [64, 32], dropout_rate=0.3)
    return keras.Model(inputs, layers.Dense(4)(features))


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


def point_conv(x, filters, name=None):
    x = layers.Conv1D(filters, kernel_size=1, padding="valid", name=name)(x)
    x = layers.BatchNormalization(momentum=0.0)(x)
    return layers.Activation("relu")(x)


def point_dense(x, filters):
    x = layers.Dense(filters)(x)
    x = layers.BatchNormalization(momentum=0.0)(x)
    return layers.Activation("relu")(x)


def tnet(inputs, num_features):
    bias = keras.initializers.Constant(np.eye(num_features).flatten())
    x = point_conv(inputs, 16)
    x = point_conv(x, 16)
    x = point_conv(x, 64)
    x = layers.GlobalMaxPooling1D()(x)
    x = point_dense(x, 32)
    x = point_dense(x, 16)
    x = layers.Dense(
        num_features * num_features,
        kernel_initializer="zeros",
        bias_initializer=bias,
        activity_regularizer=OrthogonalRegularizer(num_features),
    )(x)
    transform = layers.Reshape((num_features, num_features))(x)
    return layers.Dot(axes=(2, 1))([inputs, transform])


@model("vision/pointnet", IO + "pointnet/")
def pointnet():
    inputs = keras.Input(shape=(128, 3))
    x = tnet(inputs, 3)
    x = point_conv(x, 16)
    x = point_conv(x, 16)
    x = tnet(x, 16)
    x = point_conv(x, 16)
    x = point_conv(x, 32)
    x = point_conv(x, 64)
    x = layers.GlobalMaxPooling1D()(x)
    x = point_dense(x, 32)
    x = layers.Dropout(0.3)(x)
    x = point_dense(x, 16)
    x = layers.Dropout(0.3)(x)
    outputs = layers.Dense(10, activation="softmax")(x)
    return keras.Model(inputs=inputs, outputs=outputs, name="pointnet")


@model("vision/grad_cam", IO + "grad_cam/")
def grad_cam():
    classifier = keras.applications.MobileNetV2(
        weights=None, alpha=0.35, input_shape=(64, 64, 3), classes=10
    )
    classifier.layers[-1].activation = None
    last = classifier.get_layer("out_relu").output
    return keras.Model(classifier.inputs, [last, classifier.output])
