"""Models of keras.io's examples of vision: classification and vectors.

Built as the examples build them, with fewer blocks and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import group, stack
from tests.zoo.parts import WithPositions, dense, normalized, transformer_blocks

vision = group("vision", "https://keras.io/examples/vision/")


def augmentation(size):
    """The augmentation of the examples of Transformers on CIFAR-100."""
    steps = stack(
        layers.Normalization(),
        layers.Resizing(size, size),
        layers.RandomFlip("horizontal"),
        layers.RandomRotation(factor=0.02),
        layers.RandomZoom(height_factor=0.2, width_factor=0.2),
        name="data_augmentation",
    )
    pictures = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3))
    steps.layers[0].adapt(pictures.astype("float32"))
    return steps


class Patches(layers.Layer):
    """Cuts pictures into flattened patches."""

    def __init__(self, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.patch_size = patch_size

    def call(self, images):
        batch, height, width, channels = ops.shape(images)
        size = self.patch_size
        patches = ops.image.extract_patches(images, size=size)
        count = (height // size) * (width // size)
        return ops.reshape(patches, (batch, count, size**2 * channels))

    def get_config(self):
        return {**super().get_config(), "patch_size": self.patch_size}


def patch_encoder(count, width):
    return WithPositions(layers.Dense(width), count, width)


@vision("mnist_convnet")
def mnist_convnet():
    return stack(
        keras.Input(shape=(28, 28, 1)),
        layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    )


@vision("image_classification_from_scratch")
def image_classification_from_scratch():
    inputs = keras.Input(shape=(60, 60, 3))
    x = layers.Rescaling(1.0 / 255)(inputs)
    x = normalized(x, layers.Conv2D(16, 3, strides=2, padding="same"))
    previous = x
    for size in [16, 32, 48]:
        x = layers.Activation("relu")(x)
        x = normalized(x, layers.SeparableConv2D(size, 3, padding="same"))
        x = layers.SeparableConv2D(size, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        residual = layers.Conv2D(size, 1, strides=2, padding="same")(previous)
        previous = x = layers.add([x, residual])
    x = normalized(x, layers.SeparableConv2D(64, 3, padding="same"))
    x = layers.Dropout(0.25)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(1)(x))


def gelu_mlp(dropout, *units):
    return lambda x: dense(x, *units, dropout=dropout, activation="gelu")


def head_of_patches(inputs, x, dropout, units, classes):
    """The end of the examples that read all patches of a picture."""
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Dropout(dropout)(layers.Flatten()(x))
    x = gelu_mlp(dropout, *units)(x)
    return keras.Model(inputs, layers.Dense(classes)(x))


@vision("vision_transformer", "image_classification_with_vision_transformer/")
def vision_transformer():
    inputs = keras.Input(shape=(32, 32, 3))
    x = patch_encoder(36, 32)(Patches(6)(augmentation(36)(inputs)))
    x = transformer_blocks(x, 2, 4, 32, gelu_mlp(0.1, 64, 32))
    return head_of_patches(inputs, x, 0.5, (128, 64), 100)


@vision("object_detection_vit", "object_detection_using_vision_transformer/")
def object_detection_vit():
    inputs = keras.Input(shape=(64, 64, 3))
    x = patch_encoder(16, 32)(Patches(16)(inputs))
    x = transformer_blocks(x, 2, 4, 32, gelu_mlp(0.1, 64, 32))
    return head_of_patches(inputs, x, 0.3, (64, 32), 4)


class MLPMixerLayer(layers.Layer):
    def __init__(self, num_patches, hidden_units, dropout_rate):
        super().__init__()
        self.mlp1, self.mlp2 = (
            stack(
                layers.Dense(num_patches, activation="gelu"),
                layers.Dense(units),
                layers.Dropout(dropout_rate),
            )
            for units in (num_patches, hidden_units)
        )
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        channels = ops.transpose(self.normalize(inputs), axes=(0, 2, 1))
        x = ops.transpose(self.mlp1(channels), axes=(0, 2, 1)) + inputs
        return x + self.mlp2(self.normalize(x))


def mixer_classifier(layer):
    """The frame that the example puts around its kinds of blocks."""
    blocks = stack(*(layer(16, 32, 0.2) for _ in range(2)))
    inputs = layers.Input(shape=(32, 32, 3))
    patches = Patches(8)(augmentation(32)(inputs))
    x = blocks(layers.Dense(units=32)(patches))
    x = layers.Dropout(rate=0.2)(layers.GlobalAveragePooling1D()(x))
    return keras.Model(inputs, layers.Dense(100)(x))


@vision("mlp_mixer", "mlp_image_classification/")
def mlp_mixer():
    return mixer_classifier(MLPMixerLayer)


@vision("convmixer")
def convmixer():
    def activation_block(x):
        return layers.BatchNormalization()(layers.Activation("gelu")(x))

    inputs = keras.Input((32, 32, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = activation_block(layers.Conv2D(32, kernel_size=2, strides=2)(x))
    for _ in range(3):
        skip = x
        x = layers.DepthwiseConv2D(kernel_size=5, padding="same")(x)
        x = layers.Add()([activation_block(x), skip])
        x = activation_block(layers.Conv2D(32, kernel_size=1)(x))
    x = layers.GlobalAvgPool2D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
