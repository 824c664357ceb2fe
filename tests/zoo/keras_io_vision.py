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


def window_partition(x, window_size):
    _, height, width, channels = x.shape
    rows, columns = height // window_size, width // window_size
    x = ops.reshape(x, (-1, rows, window_size, columns, window_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, window_size, window_size, channels))


def window_reverse(windows, window_size, height, width, channels):
    rows, columns = height // window_size, width // window_size
    x = ops.reshape(
        windows, (-1, rows, columns, window_size, window_size, channels)
    )
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, height, width, channels))


class WindowAttention(layers.Layer):
    def __init__(self, dim, window_size, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.window_size = window_size
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = layers.Dense(dim * 3, use_bias=True)
        self.dropout = layers.Dropout(0.03)
        self.proj = layers.Dense(dim)
        side = window_size
        self.relative_position_bias_table = self.add_weight(
            shape=((2 * side - 1) ** 2, num_heads),
            initializer="random_normal",
            trainable=True,
        )
        grid = np.stack(np.meshgrid(range(side), range(side), indexing="ij"))
        flat = grid.reshape(2, -1)
        relative = (flat[:, :, None] - flat[:, None, :]).transpose(1, 2, 0)
        relative = relative + (side - 1)
        relative[:, :, 0] *= 2 * side - 1
        self.relative_position_index = self.add_weight(
            shape=(side**2, side**2),
            initializer=lambda shape, dtype=None: relative.sum(-1),
            trainable=False,
            dtype="int32",
        )

    def call(self, x, mask=None):
        _, size, channels = x.shape
        head = channels // self.num_heads
        qkv = ops.reshape(self.qkv(x), (-1, size, 3, self.num_heads, head))
        qkv = ops.transpose(qkv, (2, 0, 3, 1, 4))
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attn = q @ ops.transpose(k, (0, 1, 3, 2))
        bias = ops.take(
            self.relative_position_bias_table,
            ops.reshape(self.relative_position_index, (-1,)),
            axis=0,
        )
        bias = ops.transpose(ops.reshape(bias, (size, size, -1)), (2, 0, 1))
        attn = attn + ops.expand_dims(bias, 0)
        if mask is not None:
            windows = mask.shape[0]
            mask = ops.expand_dims(ops.expand_dims(mask, 1), 0)
            mask = ops.cast(mask, "float32")
            attn = ops.reshape(attn, (-1, windows, self.num_heads, size, size))
            attn = ops.reshape(attn + mask, (-1, self.num_heads, size, size))
        attn = self.dropout(keras.activations.softmax(attn, axis=-1))
        x = ops.transpose(attn @ v, (0, 2, 1, 3))
        return self.dropout(self.proj(ops.reshape(x, (-1, size, channels))))


class SwinTransformer(layers.Layer):
    def __init__(
        self, dim, num_patch, num_heads, window_size, shift_size, **kwargs
    ):
        super().__init__(**kwargs)
        self.dim = dim
        self.num_patch = num_patch
        self.window_size = window_size
        self.shift_size = shift_size
        self.norm1 = layers.LayerNormalization(epsilon=1e-5)
        self.attn = WindowAttention(dim, window_size, num_heads)
        self.drop_path = layers.Dropout(0.03)
        self.norm2 = layers.LayerNormalization(epsilon=1e-5)
        self.mlp = keras.Sequential(
            [
                layers.Dense(2 * dim),
                layers.Activation(keras.activations.gelu),
                layers.Dropout(0.03),
                layers.Dense(dim),
                layers.Dropout(0.03),
            ]
        )

    def build(self, input_shape):
        if self.shift_size == 0:
            self.attn_mask = None
            return
        height, width = self.num_patch
        slices = (
            slice(0, -self.window_size),
            slice(-self.window_size, -self.shift_size),
            slice(-self.shift_size, None),
        )
        regions = np.zeros((1, height, width, 1))
        count = 0
        for rows in slices:
            for columns in slices:
                regions[:, rows, columns, :] = count
                count += 1
        windows = window_partition(
            ops.convert_to_tensor(regions), self.window_size
        )
        windows = ops.reshape(windows, [-1, self.window_size**2])
        mask = ops.expand_dims(windows, 1) - ops.expand_dims(windows, 2)
        mask = ops.where(mask != 0, -100.0, mask)
        mask = ops.where(mask == 0, 0.0, mask)
        self.attn_mask = self.add_weight(
            shape=mask.shape,
            initializer=lambda shape, dtype=None: mask,
            dtype=mask.dtype,
            trainable=False,
        )

    def call(self, x, training=False):
        height, width = self.num_patch
        skip = x
        x = ops.reshape(self.norm1(x), (-1, height, width, self.dim))
        shift = self.shift_size
        if shift > 0:
            x = ops.roll(x, shift=[-shift, -shift], axis=[1, 2])
        windows = window_partition(x, self.window_size)
        windows = ops.reshape(windows, (-1, self.window_size**2, self.dim))
        windows = self.attn(windows, mask=self.attn_mask)
        windows = ops.reshape(
            windows, (-1, self.window_size, self.window_size, self.dim)
        )
        x = window_reverse(windows, self.window_size, height, width, self.dim)
        if shift > 0:
            x = ops.roll(x, shift=[shift, shift], axis=[1, 2])
        x = ops.reshape(x, (-1, height * width, self.dim))
        x = skip + self.drop_path(x, training=training)
        return x + self.drop_path(self.mlp(self.norm2(x)), training=training)


class PatchMerging(keras.layers.Layer):
    def __init__(self, num_patch, embed_dim):
        super().__init__()
        self.num_patch = num_patch
        self.linear_trans = layers.Dense(2 * embed_dim, use_bias=False)

    def call(self, x):
        height, width = self.num_patch
        channels = x.shape[-1]
        x = ops.reshape(x, (-1, height, width, channels))
        corners = [
            x[:, row::2, column::2, :] for column in (0, 1) for row in (0, 1)
        ]
        x = ops.concatenate(corners, axis=-1)
        x = ops.reshape(x, (-1, (height // 2) * (width // 2), 4 * channels))
        return self.linear_trans(x)


@model("vision/swin_transformers", IO + "swin_transformers/")
def swin_transformers():
    # The example cuts the patches in its data set: 16 x 16 patches of 2 x 2.
    inputs = keras.Input(shape=(256, 12))
    x = PatchEncoder(256, 32)(inputs)
    x = SwinTransformer(32, (16, 16), 8, 2, 0)(x)
    x = SwinTransformer(32, (16, 16), 8, 2, 1)(x)
    x = PatchMerging((16, 16), embed_dim=32)(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(100, activation="softmax")(x))


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


class FNetLayer(layers.Layer):
    def __init__(self, embedding_dim, dropout_rate, **kwargs):
        super().__init__(**kwargs)
        self.ffn = keras.Sequential(
            [
                layers.Dense(units=embedding_dim, activation="gelu"),
                layers.Dropout(rate=dropout_rate),
                layers.Dense(units=embedding_dim),
            ]
        )
        self.normalize1 = layers.LayerNormalization(epsilon=1e-6)
        self.normalize2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        imaginary = ops.zeros_like(inputs)
        x = ops.fft2((inputs, imaginary))[0]
        x = self.normalize1(x + inputs)
        return self.normalize2(x + self.ffn(x))


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


@model("vision/fnet", IO + "mlp_image_classification/")
def fnet():
    blocks = [FNetLayer(32, 0.2) for _ in range(2)]
    return mixer_classifier(keras.Sequential(blocks), True)


@model("vision/gmlp", IO + "mlp_image_classification/")
def gmlp():
    blocks = [gMLPLayer(16, 32, 0.2) for _ in range(2)]
    return mixer_classifier(keras.Sequential(blocks))


@model("vision/eanet", IO + "eanet/")
def eanet():
    def external_attention(x, dim, num_heads, coefficient=4):
        _, num_patch, _ = x.shape
        num_heads = num_heads * coefficient
        x = layers.Dense(dim * coefficient)(x)
        x = ops.reshape(
            x, (-1, num_patch, num_heads, dim * coefficient // num_heads)
        )
        x = ops.transpose(x, axes=[0, 2, 1, 3])
        attn = layers.Dense(dim // coefficient)(x)
        attn = layers.Softmax(axis=2)(attn)
        attn = layers.Lambda(
            lambda a: ops.divide(
                a,
                ops.convert_to_tensor(1e-9) + ops.sum(a, -1, keepdims=True),
            )
        )(attn)
        attn = layers.Dropout(0.2)(attn)
        x = layers.Dense(dim * coefficient // num_heads)(attn)
        x = ops.transpose(x, axes=[0, 2, 1, 3])
        x = ops.reshape(x, [-1, num_patch, dim * coefficient])
        return layers.Dropout(0.2)(layers.Dense(dim)(x))

    class PatchEmbedding(layers.Layer):
        def __init__(self, num_patch, embed_dim, **kwargs):
            super().__init__(**kwargs)
            self.num_patch = num_patch
            self.proj = layers.Dense(embed_dim)
            self.pos_embed = layers.Embedding(num_patch, embed_dim)

        def call(self, patch):
            pos = ops.arange(start=0, stop=self.num_patch, step=1)
            return self.proj(patch) + self.pos_embed(pos)

    inputs = layers.Input(shape=(32, 32, 3))
    x = Patches(4)(augmentation(32)(inputs))
    x = PatchEmbedding(64, 32)(x)
    for _ in range(2):
        residual = x
        x = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.add([external_attention(x, 32, 4), residual])
        residual = x
        x = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Dense(32, activation=keras.activations.gelu)(x)
        x = layers.Dropout(0.2)(x)
        x = layers.Dense(32, activation=keras.activations.gelu)(x)
        x = layers.Dropout(0.2)(x)
        x = layers.add([x, residual])
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(100, activation="softmax")(x))


class CCTTokenizer(layers.Layer):
    def __init__(self, output_channels=(16, 32), **kwargs):
        super().__init__(**kwargs)
        self.conv_model = keras.Sequential()
        for channels in output_channels:
            self.conv_model.add(
                layers.Conv2D(
                    channels,
                    3,
                    1,
                    padding="valid",
                    use_bias=False,
                    activation="relu",
                    kernel_initializer="he_normal",
                )
            )
            self.conv_model.add(layers.ZeroPadding2D(1))
            self.conv_model.add(layers.MaxPooling2D(3, 2, "same"))

    def call(self, images):
        outputs = self.conv_model(images)
        _, height, width, channels = outputs.shape
        return ops.reshape(outputs, (-1, height * width, channels))


class PositionEmbedding(keras.layers.Layer):
    def __init__(self, sequence_length, **kwargs):
        super().__init__(**kwargs)
        self.sequence_length = int(sequence_length)

    def build(self, input_shape):
        self.position_embeddings = self.add_weight(
            name="embeddings",
            shape=[self.sequence_length, input_shape[-1]],
            initializer="glorot_uniform",
            trainable=True,
        )
        super().build(input_shape)

    def call(self, inputs, start_index=0):
        shape = ops.shape(inputs)
        positions = ops.slice(
            ops.convert_to_tensor(self.position_embeddings),
            (start_index, 0),
            (shape[-2], shape[-1]),
        )
        return ops.broadcast_to(positions, shape)


class SequencePooling(layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.Dense(1)

    def call(self, x):
        weights = ops.softmax(self.attention(x), axis=1)
        weights = ops.transpose(weights, axes=(0, 2, 1))
        return ops.squeeze(ops.matmul(weights, x), -2)


class StochasticDepth(layers.Layer):
    def __init__(self, drop_prop, **kwargs):
        super().__init__(**kwargs)
        self.drop_prob = drop_prop
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, x, training=None):
        if training:
            keep_prob = 1 - self.drop_prob
            shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
            random_tensor = keep_prob + keras.random.uniform(
                shape, 0, 1, seed=self.seed_generator
            )
            return (x / keep_prob) * ops.floor(random_tensor)
        return x


@model("vision/cct", IO + "cct/")
def cct():
    inputs = layers.Input((32, 32, 3))
    augmented = keras.Sequential(
        [
            layers.Rescaling(scale=1.0 / 255),
            layers.RandomCrop(32, 32),
            layers.RandomFlip("horizontal"),
        ],
        name="data_augmentation",
    )(inputs)
    encoded = CCTTokenizer()(augmented)
    encoded += PositionEmbedding(sequence_length=encoded.shape[1])(encoded)
    for rate in np.linspace(0, 0.1, 2):
        x1 = layers.LayerNormalization(epsilon=1e-5)(encoded)
        attention = layers.MultiHeadAttention(
            num_heads=2, key_dim=32, dropout=0.1
        )(x1, x1)
        x2 = layers.Add()([StochasticDepth(rate)(attention), encoded])
        x3 = layers.LayerNormalization(epsilon=1e-5)(x2)
        x3 = StochasticDepth(rate)(mlp(x3, [32, 32], 0.1))
        encoded = layers.Add()([x3, x2])
    x = layers.LayerNormalization(epsilon=1e-5)(encoded)
    return keras.Model(inputs, layers.Dense(10)(SequencePooling()(x)))


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


@model("vision/bit", IO + "bit/")
def big_transfer():
    # In place of the downloaded ResNet: its pre-activation blocks.
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 7, strides=2, padding="same", use_bias=False)(inputs)
    for _ in range(2):
        y = layers.GroupNormalization(groups=8)(x)
        y = layers.ReLU()(y)
        y = layers.Conv2D(16, 3, padding="same", use_bias=False)(y)
        x = layers.Add()([x, y])
    backbone = keras.Model(inputs, layers.GlobalAveragePooling2D()(x))

    class MyBiTModel(keras.Model):
        def __init__(self, num_classes, module, **kwargs):
            super().__init__(**kwargs)
            self.num_classes = num_classes
            self.head = keras.layers.Dense(
                num_classes, kernel_initializer="zeros"
            )
            self.bit_model = module

        def call(self, images):
            return self.head(self.bit_model(images))

    classifier = MyBiTModel(5, backbone)
    classifier(np.zeros((1, 32, 32, 3), "float32"))
    return classifier


@model("vision/mobilevit", IO + "mobilevit/")
def mobilevit():
    def conv_block(x, filters=16, kernel_size=3, strides=2):
        return layers.Conv2D(
            filters,
            kernel_size,
            strides=strides,
            activation=keras.activations.swish,
            padding="same",
        )(x)

    def inverted_residual_block(x, expanded, output, strides=1):
        m = layers.Conv2D(expanded, 1, padding="same", use_bias=False)(x)
        m = layers.BatchNormalization()(m)
        m = keras.activations.swish(m)
        if strides == 2:
            m = layers.ZeroPadding2D(padding=((0, 1), (0, 1)))(m)
        m = layers.DepthwiseConv2D(
            3,
            strides=strides,
            padding="same" if strides == 1 else "valid",
            use_bias=False,
        )(m)
        m = layers.BatchNormalization()(m)
        m = keras.activations.swish(m)
        m = layers.Conv2D(output, 1, padding="same", use_bias=False)(m)
        m = layers.BatchNormalization()(m)
        if x.shape[-1] == output and strides == 1:
            return layers.Add()([m, x])
        return m

    def mobilevit_block(x, num_blocks, projection_dim):
        local = conv_block(x, filters=projection_dim, strides=1)
        local = conv_block(
            local, filters=projection_dim, kernel_size=1, strides=1
        )
        patches = local.shape[1] * local.shape[2] // 4
        y = layers.Reshape((4, patches, projection_dim))(local)
        for _ in range(num_blocks):
            x1 = layers.LayerNormalization(epsilon=1e-6)(y)
            attention = layers.MultiHeadAttention(
                num_heads=2, key_dim=projection_dim, dropout=0.1
            )(x1, x1)
            x2 = layers.Add()([attention, y])
            x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
            for units in [y.shape[-1] * 2, y.shape[-1]]:
                x3 = layers.Dense(units, activation=keras.activations.swish)(x3)
                x3 = layers.Dropout(0.1)(x3)
            y = layers.Add()([x3, x2])
        folded = layers.Reshape((*local.shape[1:-1], projection_dim))(y)
        folded = conv_block(folded, x.shape[-1], kernel_size=1, strides=1)
        both = layers.Concatenate(axis=-1)([x, folded])
        return conv_block(both, filters=projection_dim, strides=1)

    inputs = keras.Input((64, 64, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = conv_block(x, filters=16)
    x = inverted_residual_block(x, 32, 16)
    x = inverted_residual_block(x, 32, 24, strides=2)
    x = inverted_residual_block(x, 48, 24)
    x = inverted_residual_block(x, 48, 48, strides=2)
    x = mobilevit_block(x, num_blocks=2, projection_dim=32)
    x = conv_block(x, filters=64, kernel_size=1, strides=1)
    x = layers.GlobalAvgPool2D()(x)
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(x))
