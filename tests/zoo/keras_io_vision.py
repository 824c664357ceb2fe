"""Models of keras.io's examples of vision: classification and vectors.

Built as the examples build them, with fewer blocks and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import model

IO = "https://keras.io/examples/vision/"


def mlp(x, hidden_units, dropout_rate):
    for units in hidden_units:
        x = layers.Dense(units, activation=keras.activations.gelu)(x)
        x = layers.Dropout(dropout_rate)(x)
    return x


def augmentation(size, adapt=True, **flip):
    """The augmentation of the examples of Transformers on CIFAR-100."""
    steps = keras.Sequential(
        [
            layers.Normalization(),
            layers.Resizing(size, size),
            layers.RandomFlip("horizontal", **flip),
            layers.RandomRotation(factor=0.02),
            layers.RandomZoom(height_factor=0.2, width_factor=0.2),
        ],
        name="data_augmentation",
    )
    if adapt:
        pictures = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3))
        steps.layers[0].adapt(pictures.astype("float32"))
    return steps


class Patches(layers.Layer):
    """Cuts pictures into flattened patches."""

    def __init__(self, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.patch_size = patch_size

    def call(self, images):
        shape = ops.shape(images)
        batch, height, width, channels = shape
        rows = height // self.patch_size
        columns = width // self.patch_size
        patches = keras.ops.image.extract_patches(images, size=self.patch_size)
        return ops.reshape(
            patches,
            (batch, rows * columns, self.patch_size**2 * channels),
        )

    def get_config(self):
        return {**super().get_config(), "patch_size": self.patch_size}


class PatchEncoder(layers.Layer):
    def __init__(self, num_patches, projection_dim, **kwargs):
        super().__init__(**kwargs)
        self.num_patches = num_patches
        self.projection = layers.Dense(units=projection_dim)
        self.position_embedding = layers.Embedding(
            input_dim=num_patches, output_dim=projection_dim
        )

    def call(self, patch):
        positions = ops.expand_dims(
            ops.arange(start=0, stop=self.num_patches, step=1), axis=0
        )
        return self.projection(patch) + self.position_embedding(positions)


@model("vision/mnist_convnet", IO + "mnist_convnet/")
def mnist_convnet():
    return keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


@model(
    "vision/image_classification_from_scratch",
    IO + "image_classification_from_scratch/",
)
def image_classification_from_scratch():
    inputs = keras.Input(shape=(60, 60, 3))
    x = layers.Rescaling(1.0 / 255)(inputs)
    x = layers.Conv2D(16, 3, strides=2, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous = x
    for size in [16, 32, 48]:
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        residual = layers.Conv2D(size, 1, strides=2, padding="same")(previous)
        x = layers.add([x, residual])
        previous = x
    x = layers.SeparableConv2D(64, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.25)(x)
    outputs = layers.Dense(1, activation=None)(x)
    return keras.Model(inputs, outputs)


@model(
    "vision/vision_transformer",
    IO + "image_classification_with_vision_transformer/",
)
def vision_transformer():
    inputs = keras.Input(shape=(32, 32, 3))
    augmented = augmentation(36)(inputs)
    patches = Patches(6)(augmented)
    encoded = PatchEncoder(36, 32)(patches)
    for _ in range(2):
        x1 = layers.LayerNormalization(epsilon=1e-6)(encoded)
        attention = layers.MultiHeadAttention(
            num_heads=4, key_dim=32, dropout=0.1
        )(x1, x1)
        x2 = layers.Add()([attention, encoded])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x3 = mlp(x3, [64, 32], 0.1)
        encoded = layers.Add()([x3, x2])
    x = layers.LayerNormalization(epsilon=1e-6)(encoded)
    x = layers.Flatten()(x)
    x = layers.Dropout(0.5)(x)
    features = mlp(x, [128, 64], 0.5)
    return keras.Model(inputs, layers.Dense(100)(features))


@model("vision/convmixer", IO + "convmixer/")
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


class MLPMixerLayer(layers.Layer):
    def __init__(self, num_patches, hidden_units, dropout_rate, **kwargs):
        super().__init__(**kwargs)
        self.mlp1 = keras.Sequential(
            [
                layers.Dense(units=num_patches, activation="gelu"),
                layers.Dense(units=num_patches),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.mlp2 = keras.Sequential(
            [
                layers.Dense(units=num_patches, activation="gelu"),
                layers.Dense(units=hidden_units),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def build(self, input_shape):
        return super().build(input_shape)

    def call(self, inputs):
        x = self.normalize(inputs)
        channels = ops.transpose(x, axes=(0, 2, 1))
        tokens = ops.transpose(self.mlp1(channels), axes=(0, 2, 1))
        x = tokens + inputs
        return x + self.mlp2(self.normalize(x))


class gMLPLayer(layers.Layer):
    def __init__(self, num_patches, embedding_dim, dropout_rate, **kwargs):
        super().__init__(**kwargs)
        self.channel_projection1 = keras.Sequential(
            [
                layers.Dense(units=embedding_dim * 2, activation="gelu"),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.channel_projection2 = layers.Dense(units=embedding_dim)
        self.spatial_projection = layers.Dense(
            units=num_patches, bias_initializer="Ones"
        )
        self.normalize1 = layers.LayerNormalization(epsilon=1e-6)
        self.normalize2 = layers.LayerNormalization(epsilon=1e-6)

    def spatial_gating_unit(self, x):
        u, v = ops.split(x, indices_or_sections=2, axis=2)
        v = self.normalize2(v)
        v = ops.transpose(v, axes=(0, 2, 1))
        v = self.spatial_projection(v)
        return u * ops.transpose(v, axes=(0, 2, 1))

    def call(self, inputs):
        x = self.channel_projection1(self.normalize1(inputs))
        x = self.channel_projection2(self.spatial_gating_unit(x))
        return inputs + x


def mixer_classifier(blocks, positional_encoding=False):
    """The frame that the example puts around its three kinds of blocks."""
    inputs = layers.Input(shape=(32, 32, 3))
    patches = Patches(8)(augmentation(32)(inputs))
    x = layers.Dense(units=32)(patches)
    if positional_encoding:
        positions = ops.arange(start=0, stop=16, step=1)
        x = x + layers.Embedding(16, 32)(positions)
    x = blocks(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(rate=0.2)(x)
    return keras.Model(inputs, layers.Dense(100)(x))


@model("vision/mlp_mixer", IO + "mlp_image_classification/")
def mlp_mixer():
    blocks = [MLPMixerLayer(16, 32, 0.2) for _ in range(2)]
    return mixer_classifier(keras.Sequential(blocks))


@model("vision/gmlp", IO + "mlp_image_classification/")
def gmlp():
    blocks = [gMLPLayer(16, 32, 0.2) for _ in range(2)]
    return mixer_classifier(keras.Sequential(blocks))


class Involution(keras.layers.Layer):
    def __init__(
        self, channel, group_number, kernel_size, stride, reduction_ratio, name
    ):
        super().__init__(name=name)
        self.channel = channel
        self.group_number = group_number
        self.kernel_size = kernel_size
        self.stride = stride
        self.reduction_ratio = reduction_ratio

    def build(self, input_shape):
        _, height, width, channels = input_shape
        height = height // self.stride
        width = width // self.stride
        self.stride_layer = (
            keras.layers.AveragePooling2D(self.stride, self.stride, "same")
            if self.stride > 1
            else (lambda x: x)
        )
        self.kernel_gen = keras.Sequential(
            [
                keras.layers.Conv2D(self.channel // self.reduction_ratio, 1),
                keras.layers.BatchNormalization(),
                keras.layers.ReLU(),
                keras.layers.Conv2D(
                    self.kernel_size * self.kernel_size * self.group_number, 1
                ),
            ]
        )
        squared = self.kernel_size * self.kernel_size
        group = channels // self.group_number
        self.kernel_reshape = keras.layers.Reshape(
            (height, width, squared, 1, self.group_number)
        )
        self.input_patches_reshape = keras.layers.Reshape(
            (height, width, squared, group, self.group_number)
        )
        self.output_reshape = keras.layers.Reshape((height, width, channels))

    def call(self, x):
        kernel = self.kernel_reshape(self.kernel_gen(self.stride_layer(x)))
        patches = ops.image.extract_patches(
            images=x,
            size=(self.kernel_size, self.kernel_size),
            strides=self.stride,
            dilation_rate=1,
            padding="same",
        )
        patches = self.input_patches_reshape(patches)
        output = ops.sum(ops.multiply(kernel, patches), axis=3)
        return self.output_reshape(output), kernel


@model("vision/involution", IO + "involution/")
def involution():
    inputs = keras.Input(shape=(32, 32, 3))
    x, _ = Involution(3, 1, 3, 1, 2, name="inv_1")(inputs)
    x = keras.layers.ReLU()(x)
    x = keras.layers.MaxPooling2D((2, 2))(x)
    x, _ = Involution(3, 1, 3, 1, 2, name="inv_2")(x)
    x = keras.layers.ReLU()(x)
    x = keras.layers.MaxPooling2D((2, 2))(x)
    x, _ = Involution(3, 1, 3, 1, 2, name="inv_3")(x)
    x = keras.layers.ReLU()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(64, activation="relu")(x)
    outputs = keras.layers.Dense(10)(x)
    return keras.Model(inputs=[inputs], outputs=[outputs], name="inv_model")


class Perceiver(keras.Model):
    def __init__(self, size=32, patch=4, latents=16, width=32, classes=100):
        super().__init__()
        self.data_augmentation = augmentation(size)
        self.patches = Patches(patch)
        self.patch_encoder = PatchEncoder((size // patch) ** 2, width)
        self.latent_array = self.add_weight(
            shape=(latents, width),
            initializer="random_normal",
            trainable=True,
            name="latents",
        )
        self.cross_attention = self.cross_attention_module(
            latents, (size // patch) ** 2, width
        )
        self.transformer = self.transformer_module(latents, width)
        self.global_average_pooling = layers.GlobalAveragePooling1D()
        self.classification_head = layers.Dense(classes)

    @staticmethod
    def feed_forward(width):
        return keras.Sequential(
            [layers.Dense(width, activation="gelu"), layers.Dense(width)]
        )

    def cross_attention_module(self, latents, data, width):
        inputs = {
            "latent_array": layers.Input(shape=(latents, width)),
            "data_array": layers.Input(shape=(data, width)),
        }
        latent = layers.LayerNormalization(epsilon=1e-6)(inputs["latent_array"])
        array = layers.LayerNormalization(epsilon=1e-6)(inputs["data_array"])
        query = layers.Dense(width)(latent)
        key = layers.Dense(width)(array)
        value = layers.Dense(width)(array)
        attended = layers.Attention(use_scale=True, dropout=0.1)(
            [query, key, value], return_attention_scores=False
        )
        attended = layers.Add()([attended, latent])
        attended = layers.LayerNormalization(epsilon=1e-6)(attended)
        outputs = self.feed_forward(width)(attended)
        return keras.Model(inputs, layers.Add()([outputs, attended]))

    def transformer_module(self, latents, width):
        inputs = layers.Input(shape=(latents, width))
        x = inputs
        for _ in range(2):
            x1 = layers.LayerNormalization(epsilon=1e-6)(x)
            attention = layers.MultiHeadAttention(4, width, dropout=0.1)
            x2 = layers.Add()([attention(x1, x1), x])
            x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
            x = layers.Add()([self.feed_forward(width)(x3), x2])
        return keras.Model(inputs, x)

    def call(self, inputs):
        encoded = self.patch_encoder(
            self.patches(self.data_augmentation(inputs))
        )
        arrays = {
            "latent_array": ops.expand_dims(self.latent_array, 0),
            "data_array": encoded,
        }
        for _ in range(2):
            latent = self.cross_attention(arrays)
            arrays["latent_array"] = self.transformer(latent)
        pooled = self.global_average_pooling(arrays["latent_array"])
        return self.classification_head(pooled)


@model("vision/perceiver", IO + "perceiver_image_classification/")
def perceiver():
    classifier = Perceiver()
    classifier(np.zeros((2, 32, 32, 3), "float32"))
    return classifier
