"""Models of keras.io's examples of generation.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.zoo.entries import model

IO = "https://keras.io/examples/generative/"


class Sampling(layers.Layer):
    """Draws a vector from the mean and the logarithm of the variance."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        z_mean, z_log_var = inputs
        batch = ops.shape(z_mean)[0]
        dim = ops.shape(z_mean)[1]
        epsilon = keras.random.normal(
            shape=(batch, dim), seed=self.seed_generator
        )
        return z_mean + ops.exp(0.5 * z_log_var) * epsilon


def vae_parts():
    encoder_inputs = keras.Input(shape=(28, 28, 1))
    x = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(
        encoder_inputs
    )
    x = layers.Conv2D(64, 3, activation="relu", strides=2, padding="same")(x)
    x = layers.Flatten()(x)
    x = layers.Dense(16, activation="relu")(x)
    z_mean = layers.Dense(2, name="z_mean")(x)
    z_log_var = layers.Dense(2, name="z_log_var")(x)
    return encoder_inputs, z_mean, z_log_var


@model("generative/vae_encoder", IO + "vae/")
def vae_encoder():
    # The outputs of the example's encoder except the vector that is drawn.
    inputs, z_mean, z_log_var = vae_parts()
    z = Sampling()([z_mean, z_log_var])
    encoder = keras.Model(inputs, [z_mean, z_log_var, z], name="encoder")
    return keras.Model(encoder.inputs, encoder.outputs[:2])


@model("generative/vae_decoder", IO + "vae/")
def vae_decoder():
    latent_inputs = keras.Input(shape=(2,))
    x = layers.Dense(7 * 7 * 64, activation="relu")(latent_inputs)
    x = layers.Reshape((7, 7, 64))(x)
    x = layers.Conv2DTranspose(
        64, 3, activation="relu", strides=2, padding="same"
    )(x)
    x = layers.Conv2DTranspose(
        32, 3, activation="relu", strides=2, padding="same"
    )(x)
    outputs = layers.Conv2DTranspose(
        1, 3, activation="sigmoid", padding="same"
    )(x)
    return keras.Model(latent_inputs, outputs, name="decoder")


@model("generative/dcgan_discriminator", IO + "dcgan_overriding_train_step/")
def dcgan_discriminator():
    return keras.Sequential(
        [
            keras.Input(shape=(64, 64, 3)),
            layers.Conv2D(16, kernel_size=4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(32, kernel_size=4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(32, kernel_size=4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(1, activation="sigmoid"),
        ],
        name="discriminator",
    )


@model("generative/dcgan_generator", IO + "dcgan_overriding_train_step/")
def dcgan_generator():
    return keras.Sequential(
        [
            keras.Input(shape=(128,)),
            layers.Dense(8 * 8 * 16),
            layers.Reshape((8, 8, 16)),
            layers.Conv2DTranspose(
                16, kernel_size=4, strides=2, padding="same"
            ),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(
                32, kernel_size=4, strides=2, padding="same"
            ),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(
                48, kernel_size=4, strides=2, padding="same"
            ),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(
                3, kernel_size=5, padding="same", activation="sigmoid"
            ),
        ],
        name="generator",
    )


class ReflectionPadding2D(layers.Layer):
    def __init__(self, padding=(1, 1), **kwargs):
        self.padding = tuple(padding)
        super().__init__(**kwargs)

    def call(self, input_tensor, mask=None):
        width, height = self.padding
        padding = [[0, 0], [height, height], [width, width], [0, 0]]
        return ops.pad(input_tensor, padding, mode="REFLECT")


def cycle_conv(x, filters, kernel, strides=1, padding="same", relu=True):
    x = layers.Conv2D(
        filters, kernel, strides=strides, padding=padding, use_bias=False
    )(x)
    x = layers.GroupNormalization(groups=1)(x)
    return layers.Activation("relu")(x) if relu else x


@model("generative/cyclegan_generator", IO + "cyclegan/")
def cyclegan_generator():
    img_input = layers.Input(shape=(64, 64, 3), name="generator_G_img_input")
    x = ReflectionPadding2D(padding=(3, 3))(img_input)
    x = cycle_conv(x, 16, (7, 7), padding="valid")
    for filters in (32, 48):
        x = cycle_conv(x, filters, (3, 3), (2, 2))
    for _ in range(2):
        y = ReflectionPadding2D()(x)
        y = cycle_conv(y, 48, (3, 3), padding="valid")
        y = ReflectionPadding2D()(y)
        y = cycle_conv(y, 48, (3, 3), padding="valid", relu=False)
        x = layers.add([x, y])
    for filters in (32, 16):
        x = layers.Conv2DTranspose(
            filters, (3, 3), strides=(2, 2), padding="same", use_bias=False
        )(x)
        x = layers.GroupNormalization(groups=1)(x)
        x = layers.Activation("relu")(x)
    x = ReflectionPadding2D(padding=(3, 3))(x)
    x = layers.Conv2D(3, (7, 7), padding="valid")(x)
    x = layers.Activation("tanh")(x)
    return keras.models.Model(img_input, x, name="generator_G")


@model("generative/wgan_gp_generator", IO + "wgan_gp/")
def wgan_gp_generator():
    noise = layers.Input(shape=(128,))
    x = layers.Dense(4 * 4 * 32, use_bias=False)(noise)
    x = layers.BatchNormalization()(x)
    x = layers.LeakyReLU(0.2)(x)
    x = layers.Reshape((4, 4, 32))(x)
    for filters, activation in ((24, None), (16, None), (1, "tanh")):
        x = layers.UpSampling2D((2, 2))(x)
        x = layers.Conv2D(
            filters, (3, 3), strides=(1, 1), padding="same", use_bias=False
        )(x)
        x = layers.BatchNormalization()(x)
        if activation:
            x = layers.Activation(activation)(x)
        else:
            x = layers.LeakyReLU(0.2)(x)
    x = layers.Cropping2D((2, 2))(x)
    return keras.models.Model(noise, x, name="generator")


@model("generative/pixelcnn", IO + "pixelcnn/")
def pixelcnn():
    class PixelConvLayer(layers.Layer):
        def __init__(self, mask_type, **kwargs):
            super().__init__()
            self.mask_type = mask_type
            self.conv = layers.Conv2D(**kwargs)

        def build(self, input_shape):
            self.conv.build(input_shape)
            kernel_shape = ops.shape(self.conv.kernel)
            self.mask = np.zeros(shape=kernel_shape)
            self.mask[: kernel_shape[0] // 2, ...] = 1.0
            middle = kernel_shape[0] // 2
            self.mask[middle, : kernel_shape[1] // 2, ...] = 1.0
            if self.mask_type == "B":
                self.mask[middle, kernel_shape[1] // 2, ...] = 1.0

        def call(self, inputs):
            self.conv.kernel.assign(self.conv.kernel * self.mask)
            return self.conv(inputs)

    class ResidualBlock(keras.layers.Layer):
        def __init__(self, filters, **kwargs):
            super().__init__(**kwargs)
            self.conv1 = keras.layers.Conv2D(filters, 1, activation="relu")
            self.pixel_conv = PixelConvLayer(
                mask_type="B",
                filters=filters // 2,
                kernel_size=3,
                activation="relu",
                padding="same",
            )
            self.conv2 = keras.layers.Conv2D(filters, 1, activation="relu")

        def call(self, inputs):
            x = self.conv2(self.pixel_conv(self.conv1(inputs)))
            return keras.layers.add([inputs, x])

    inputs = keras.Input(shape=(28, 28, 1), batch_size=2)
    x = PixelConvLayer(
        mask_type="A",
        filters=16,
        kernel_size=7,
        activation="relu",
        padding="same",
    )(inputs)
    for _ in range(2):
        x = ResidualBlock(filters=16)(x)
    x = PixelConvLayer(
        mask_type="B",
        filters=16,
        kernel_size=1,
        strides=1,
        activation="relu",
        padding="valid",
    )(x)
    out = keras.layers.Conv2D(
        filters=1,
        kernel_size=1,
        strides=1,
        activation="sigmoid",
        padding="valid",
    )(x)
    return keras.Model(inputs, out)


@model("generative/vq_vae", IO + "vq_vae/")
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
                trainable=True,
                name="embeddings_vqvae",
            )

        def call(self, x):
            input_shape = tf.shape(x)
            flattened = tf.reshape(x, [-1, self.embedding_dim])
            indices = self.get_code_indices(flattened)
            encodings = tf.one_hot(indices, self.num_embeddings)
            quantized = tf.matmul(encodings, self.embeddings, transpose_b=True)
            quantized = tf.reshape(quantized, input_shape)
            commitment = tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2)
            codebook = tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2)
            self.add_loss(self.beta * commitment + codebook)
            return x + tf.stop_gradient(quantized - x)

        def get_code_indices(self, flattened_inputs):
            similarity = tf.matmul(flattened_inputs, self.embeddings)
            distances = (
                tf.reduce_sum(flattened_inputs**2, axis=1, keepdims=True)
                + tf.reduce_sum(self.embeddings**2, axis=0)
                - 2 * similarity
            )
            return tf.argmin(distances, axis=1)

    inputs = keras.Input(shape=(28, 28, 1))
    x = layers.Conv2D(16, 3, activation="relu", strides=2, padding="same")(
        inputs
    )
    x = layers.Conv2D(32, 3, activation="relu", strides=2, padding="same")(x)
    encoder = keras.Model(
        inputs, layers.Conv2D(16, 1, padding="same")(x), name="encoder"
    )
    latent = keras.Input(shape=(7, 7, 16))
    x = layers.Conv2DTranspose(
        32, 3, activation="relu", strides=2, padding="same"
    )(latent)
    x = layers.Conv2DTranspose(
        16, 3, activation="relu", strides=2, padding="same"
    )(x)
    decoder = keras.Model(
        latent, layers.Conv2DTranspose(1, 3, padding="same")(x), name="decoder"
    )
    quantized = VectorQuantizer(32, 16, name="vector_quantizer")(
        encoder(inputs)
    )
    return keras.Model(inputs, decoder(quantized), name="vq_vae")


def ddim_residual_block(width):
    def apply(x):
        if x.shape[3] == width:
            residual = x
        else:
            residual = layers.Conv2D(width, kernel_size=1)(x)
        x = layers.BatchNormalization(center=False, scale=False)(x)
        x = layers.Conv2D(
            width, kernel_size=3, padding="same", activation="swish"
        )(x)
        x = layers.Conv2D(width, kernel_size=3, padding="same")(x)
        return layers.Add()([x, residual])

    return apply


@model("generative/ddim_unet", IO + "ddim/")
def ddim_unet():
    @keras.saving.register_keras_serializable(package="zoo_ddim")
    def sinusoidal_embedding(x):
        frequencies = ops.exp(
            ops.linspace(ops.log(1.0), ops.log(1000.0), 32 // 2)
        )
        speeds = ops.cast(2.0 * math.pi * frequencies, "float32")
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
            x = ddim_residual_block(width)(x)
            skips.append(x)
        x = layers.AveragePooling2D(pool_size=2)(x)
    for _ in range(depth):
        x = ddim_residual_block(widths[-1])(x)
    for width in reversed(widths[:-1]):
        x = layers.UpSampling2D(size=2, interpolation="bilinear")(x)
        for _ in range(depth):
            x = layers.Concatenate()([x, skips.pop()])
            x = ddim_residual_block(width)(x)
    x = layers.Conv2D(3, kernel_size=1, kernel_initializer="zeros")(x)
    return keras.Model([noisy_images, noise_variances], x, name="residual_unet")


@model("generative/neural_style_transfer", IO + "neural_style_transfer/")
def neural_style_transfer():
    # In place of the downloaded VGG19: its first blocks.
    inputs = keras.Input((48, 48, 3))
    x, outputs = inputs, {}
    for block, filters in enumerate((8, 16, 32), 1):
        for conv in (1, 2):
            name = f"block{block}_conv{conv}"
            x = layers.Conv2D(
                filters, 3, padding="same", activation="relu", name=name
            )(x)
            outputs[name] = x
        x = layers.MaxPooling2D(name=f"block{block}_pool")(x)
    return keras.Model(inputs=inputs, outputs=outputs)


@model("generative/real_nvp_coupling", IO + "real_nvp/")
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


@model("generative/real_nvp", IO + "real_nvp/")
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
            for i in range(self.num_coupling_layers)[::direction]:
                x_masked = x * self.masks[i]
                reversed_mask = 1 - self.masks[i]
                s, t = self.layers_list[i](x_masked)
                s = s * reversed_mask
                t = t * reversed_mask
                gate = (direction - 1) / 2
                x = (
                    reversed_mask
                    * (
                        x * ops.exp(direction * s)
                        + direction * t * ops.exp(gate * s)
                    )
                    + x_masked
                )
                log_det_inv += gate * ops.sum(s, axis=1)
            return x, log_det_inv

    flow = RealNVP(2)
    flow(np.zeros((2, 2), "float32"), training=False)
    return flow


@model(
    "generative/lstm_character_level",
    IO + "lstm_character_level_text_generation/",
)
def lstm_character_level():
    return keras.Sequential(
        [
            keras.Input(shape=(40, 56)),
            layers.LSTM(128),
            layers.Dense(56, activation="softmax"),
        ]
    )
