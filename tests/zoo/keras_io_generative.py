"""Models of keras.io's examples of generation.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import group, stack
from tests.zoo.parts import conv, dense, transposed

generative = group("generative", "https://keras.io/examples/generative/")


class Sampling(layers.Layer):
    """Draws a vector from the mean and the logarithm of the variance."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        z_mean, z_log_var = inputs
        epsilon = keras.random.normal(
            shape=ops.shape(z_mean), seed=self.seed_generator
        )
        return z_mean + ops.exp(0.5 * z_log_var) * epsilon


@generative("vae_encoder", "vae/")
def vae_encoder():
    # The outputs of the example's encoder except the vector that is drawn.
    inputs = keras.Input(shape=(28, 28, 1))
    x = conv(conv(inputs, 32, strides=2), 64, strides=2)
    x = dense(layers.Flatten()(x), 16)
    z_mean = layers.Dense(2, name="z_mean")(x)
    z_log_var = layers.Dense(2, name="z_log_var")(x)
    z = Sampling()([z_mean, z_log_var])
    encoder = keras.Model(inputs, [z_mean, z_log_var, z], name="encoder")
    return keras.Model(encoder.inputs, encoder.outputs[:2])


@generative("vae_decoder", "vae/")
def vae_decoder():
    latent_inputs = keras.Input(shape=(2,))
    x = layers.Reshape((7, 7, 64))(dense(latent_inputs, 7 * 7 * 64))
    x = transposed(transposed(x, 64, strides=2), 32, strides=2)
    outputs = transposed(x, 1, activation="sigmoid")
    return keras.Model(latent_inputs, outputs, name="decoder")


def leaky(layer, *filters):
    """Layers that halve or double pictures, each before a leaky ReLU."""
    for each in filters:
        yield layer(each, kernel_size=4, strides=2, padding="same")
        yield layers.LeakyReLU(negative_slope=0.2)


@generative("dcgan_discriminator", "dcgan_overriding_train_step/")
def dcgan_discriminator():
    return stack(
        keras.Input(shape=(64, 64, 3)),
        *leaky(layers.Conv2D, 16, 32, 32),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
        name="discriminator",
    )


@generative("dcgan_generator", "dcgan_overriding_train_step/")
def dcgan_generator():
    return stack(
        keras.Input(shape=(128,)),
        layers.Dense(8 * 8 * 16),
        layers.Reshape((8, 8, 16)),
        *leaky(layers.Conv2DTranspose, 16, 32, 48),
        layers.Conv2D(3, kernel_size=5, padding="same", activation="sigmoid"),
        name="generator",
    )


@generative("pixelcnn")
def pixelcnn():
    class PixelConvLayer(layers.Layer):
        def __init__(self, mask_type, *args, padding="same"):
            super().__init__()
            self.mask_type = mask_type
            self.conv = layers.Conv2D(*args, padding=padding, activation="relu")

        def build(self, input_shape):
            self.conv.build(input_shape)
            shape = ops.shape(self.conv.kernel)
            rows, columns = shape[0] // 2, shape[1] // 2
            self.mask = np.zeros(shape=shape)
            self.mask[:rows, ...] = 1.0
            self.mask[rows, :columns, ...] = 1.0
            if self.mask_type == "B":
                self.mask[rows, columns, ...] = 1.0

        def call(self, inputs):
            self.conv.kernel.assign(self.conv.kernel * self.mask)
            return self.conv(inputs)

    class ResidualBlock(layers.Layer):
        def __init__(self, filters):
            super().__init__()
            self.conv1 = layers.Conv2D(filters, 1, activation="relu")
            self.pixel_conv = PixelConvLayer("B", filters // 2, 3)
            self.conv2 = layers.Conv2D(filters, 1, activation="relu")

        def call(self, inputs):
            x = self.conv2(self.pixel_conv(self.conv1(inputs)))
            return layers.add([inputs, x])

    inputs = keras.Input(shape=(28, 28, 1), batch_size=2)
    x = PixelConvLayer("A", 16, 7)(inputs)
    for _ in range(2):
        x = ResidualBlock(filters=16)(x)
    x = PixelConvLayer("B", 16, 1, padding="valid")(x)
    x = layers.Conv2D(1, 1, activation="sigmoid", padding="valid")(x)
    return keras.Model(inputs, x)


@generative("lstm_character_level", "lstm_character_level_text_generation/")
def lstm_character_level():
    return stack(
        keras.Input(shape=(40, 56)),
        layers.LSTM(128),
        layers.Dense(56, activation="softmax"),
    )


def normalized_by_group(x, layer, activation="relu"):
    x = layers.GroupNormalization(groups=1)(layer(x))
    return layers.Activation(activation)(x) if activation else x


class ReflectionPadding2D(layers.Layer):
    def __init__(self, padding=(1, 1), **kwargs):
        self.padding = tuple(padding)
        super().__init__(**kwargs)

    def call(self, input_tensor, mask=None):
        width, height = self.padding
        padding = [[0, 0], [height, height], [width, width], [0, 0]]
        return ops.pad(input_tensor, padding, mode="REFLECT")


@generative("cyclegan_generator", "cyclegan/")
def cyclegan_generator():
    def cycle_conv(x, filters, kernel, strides=1, padding="same", relu="relu"):
        layer = layers.Conv2D(
            filters, kernel, strides=strides, padding=padding, use_bias=False
        )
        return normalized_by_group(x, layer, relu)

    img_input = layers.Input(shape=(64, 64, 3), name="generator_G_img_input")
    x = ReflectionPadding2D(padding=(3, 3))(img_input)
    x = cycle_conv(x, 16, (7, 7), padding="valid")
    for filters in (32, 48):
        x = cycle_conv(x, filters, (3, 3), (2, 2))
    for _ in range(2):
        y = x
        for relu in ("relu", None):
            y = ReflectionPadding2D()(y)
            y = cycle_conv(y, 48, (3, 3), padding="valid", relu=relu)
        x = layers.add([x, y])
    for filters in (32, 16):
        layer = layers.Conv2DTranspose(
            filters, (3, 3), strides=(2, 2), padding="same", use_bias=False
        )
        x = normalized_by_group(x, layer)
    x = ReflectionPadding2D(padding=(3, 3))(x)
    x = layers.Conv2D(3, (7, 7), padding="valid")(x)
    x = layers.Activation("tanh")(x)
    return keras.Model(img_input, x, name="generator_G")


@generative("real_nvp_coupling", "real_nvp/")
def real_nvp_coupling():
    reg = keras.regularizers.l2(0.01)
    inp = layers.Input(shape=(2,))
    towers = []
    for last in ("linear", "tanh"):
        x = inp
        for _ in range(4):
            x = layers.Dense(64, activation="relu", kernel_regularizer=reg)(x)
        towers.append(
            layers.Dense(2, activation=last, kernel_regularizer=reg)(x)
        )
    return keras.Model(inputs=inp, outputs=towers[::-1])


@generative("real_nvp")
def real_nvp():
    class RealNVP(keras.Model):
        def __init__(self, num_coupling_layers):
            super().__init__()
            self.num_coupling_layers = num_coupling_layers
            self.masks = np.array(
                [[0, 1], [1, 0]] * (num_coupling_layers // 2), dtype="float32"
            )
            self.layers_list = [
                real_nvp_coupling() for _ in range(num_coupling_layers)
            ]

        def call(self, x, training=True):
            log_det_inv = 0
            direction = -1 if training else 1
            gate = (direction - 1) / 2
            for i in range(self.num_coupling_layers)[::direction]:
                x_masked = x * self.masks[i]
                others = 1 - self.masks[i]
                s, t = (each * others for each in self.layers_list[i](x_masked))
                moved = direction * t * ops.exp(gate * s)
                x = others * (x * ops.exp(direction * s) + moved) + x_masked
                log_det_inv += gate * ops.sum(s, axis=1)
            return x, log_det_inv

    flow = RealNVP(2)
    flow(np.zeros((2, 2), "float32"), training=False)
    return flow
