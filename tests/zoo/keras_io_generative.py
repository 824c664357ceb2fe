"""Models of keras.io's examples of generation.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import math

import keras
import numpy as np
import tensorflow as tf
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


@generative("wgan_gp_generator", "wgan_gp/")
def wgan_gp_generator():
    noise = layers.Input(shape=(128,))
    x = layers.Dense(4 * 4 * 32, use_bias=False)(noise)
    x = layers.LeakyReLU(0.2)(layers.BatchNormalization()(x))
    x = layers.Reshape((4, 4, 32))(x)
    for filters in (24, 16, 1):
        x = layers.UpSampling2D((2, 2))(x)
        x = conv(x, filters, activation=None, use_bias=False)
        x = layers.BatchNormalization()(x)
        is_last = filters == 1
        x = (layers.Activation("tanh") if is_last else layers.LeakyReLU(0.2))(x)
    return keras.Model(noise, layers.Cropping2D((2, 2))(x), name="generator")


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


@generative("vq_vae")
def vq_vae():
    class VectorQuantizer(layers.Layer):
        def __init__(self, num_embeddings, embedding_dim, beta=0.25, **kwargs):
            super().__init__(**kwargs)
            self.embedding_dim = embedding_dim
            self.num_embeddings = num_embeddings
            self.beta = beta
            self.embeddings = self.add_weight(
                shape=(embedding_dim, num_embeddings),
                initializer=keras.initializers.RandomUniform(),
                name="embeddings_vqvae",
            )

        def call(self, x):
            flattened = tf.reshape(x, [-1, self.embedding_dim])
            indices = self.get_code_indices(flattened)
            encodings = tf.one_hot(indices, self.num_embeddings)
            quantized = tf.matmul(encodings, self.embeddings, transpose_b=True)
            quantized = tf.reshape(quantized, tf.shape(x))
            commitment = tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2)
            codebook = tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2)
            self.add_loss(self.beta * commitment + codebook)
            return x + tf.stop_gradient(quantized - x)

        def get_code_indices(self, flattened):
            distances = (
                tf.reduce_sum(flattened**2, axis=1, keepdims=True)
                + tf.reduce_sum(self.embeddings**2, axis=0)
                - 2 * tf.matmul(flattened, self.embeddings)
            )
            return tf.argmin(distances, axis=1)

    inputs = keras.Input(shape=(28, 28, 1))
    x = conv(conv(inputs, 16, strides=2), 32, strides=2)
    x = conv(x, 16, 1, activation=None)
    encoder = keras.Model(inputs, x, name="encoder")
    latent = keras.Input(shape=(7, 7, 16))
    x = transposed(transposed(latent, 32, strides=2), 16, strides=2)
    x = transposed(x, 1, activation=None)
    decoder = keras.Model(latent, x, name="decoder")
    quantizer = VectorQuantizer(32, 16, name="vector_quantizer")
    outputs = decoder(quantizer(encoder(inputs)))
    return keras.Model(inputs, outputs, name="vq_vae")


def ddim_residual_block(x, width):
    residual = x
    if x.shape[3] != width:
        residual = layers.Conv2D(width, kernel_size=1)(x)
    x = layers.BatchNormalization(center=False, scale=False)(x)
    x = conv(conv(x, width, activation="swish"), width, activation=None)
    return layers.Add()([x, residual])


@generative("ddim_unet", "ddim/")
def ddim_unet():
    @keras.saving.register_keras_serializable(package="zoo_ddim")
    def sinusoidal_embedding(x):
        octaves = ops.linspace(ops.log(1.0), ops.log(1000.0), 32 // 2)
        speeds = ops.cast(2.0 * math.pi * ops.exp(octaves), "float32")
        return ops.concatenate(
            [ops.sin(speeds * x), ops.cos(speeds * x)], axis=3
        )

    image_size, widths, depth = 32, [16, 24, 32], 2
    noisy_images = keras.Input(shape=(image_size, image_size, 3))
    noise_variances = keras.Input(shape=(1, 1, 1))
    e = layers.Lambda(sinusoidal_embedding, output_shape=(1, 1, 32))(
        noise_variances
    )
    e = layers.UpSampling2D(size=image_size, interpolation="nearest")(e)
    x = layers.Conv2D(widths[0], kernel_size=1)(noisy_images)
    x = layers.Concatenate()([x, e])
    skips = []
    for width in widths[:-1]:
        for _ in range(depth):
            x = ddim_residual_block(x, width)
            skips.append(x)
        x = layers.AveragePooling2D(pool_size=2)(x)
    for _ in range(depth):
        x = ddim_residual_block(x, widths[-1])
    for width in reversed(widths[:-1]):
        x = layers.UpSampling2D(size=2, interpolation="bilinear")(x)
        for _ in range(depth):
            x = layers.Concatenate()([x, skips.pop()])
            x = ddim_residual_block(x, width)
    x = layers.Conv2D(3, kernel_size=1, kernel_initializer="zeros")(x)
    return keras.Model([noisy_images, noise_variances], x, name="residual_unet")


@generative("neural_style_transfer")
def neural_style_transfer():
    # In place of the downloaded VGG19: its first blocks.
    inputs = x = keras.Input((48, 48, 3))
    outputs = {}
    for block, filters in enumerate((8, 16, 32), 1):
        for number in (1, 2):
            name = f"block{block}_conv{number}"
            outputs[name] = x = conv(x, filters, name=name)
        x = layers.MaxPooling2D(name=f"block{block}_pool")(x)
    return keras.Model(inputs=inputs, outputs=outputs)


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


@generative("lstm_character_level", "lstm_character_level_text_generation/")
def lstm_character_level():
    return stack(
        keras.Input(shape=(40, 56)),
        layers.LSTM(128),
        layers.Dense(56, activation="softmax"),
    )
