"""What several models of the table are made of."""

import keras
from keras import layers, ops


def dense(x, *units, dropout=None, activation="relu"):
    """Dense layers, with a dropout behind each if there is one."""
    for each in units:
        x = layers.Dense(each, activation=activation)(x)
        if dropout is not None:
            x = layers.Dropout(dropout)(x)
    return x


def conv(x, filters, size=3, activation="relu", **options):
    """A convolution with padding."""
    options = {"padding": "same", "activation": activation, **options}
    return layers.Conv2D(filters, size, **options)(x)


def transposed(x, filters, size=3, activation="relu", **options):
    """A transposed convolution with padding."""
    options = {"padding": "same", "activation": activation, **options}
    return layers.Conv2DTranspose(filters, size, **options)(x)


def normalized(x, layer, activation="relu"):
    """A layer, the normalization of a batch, and an activation."""
    x = layers.BatchNormalization()(layer(x))
    return layers.Activation(activation)(x)


def transformer_blocks(x, blocks, heads, width, feed_forward):
    """Blocks that normalize before attention and before `feed_forward`."""
    for _ in range(blocks):
        x1 = layers.LayerNormalization(epsilon=1e-6)(x)
        attention = layers.MultiHeadAttention(heads, width, dropout=0.1)
        x2 = layers.Add()([attention(x1, x1), x])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x = layers.Add()([feed_forward(x3), x2])
    return x


class WithPositions(layers.Layer):
    """Adds learned vectors of positions to what a layer makes of inputs."""

    def __init__(self, layer, length, width, mask_zero=False):
        super().__init__()
        self.layer = layer
        self.positions = layers.Embedding(length, width)
        self.mask_zero = mask_zero

    def call(self, inputs):
        x = self.layer(inputs)
        return x + self.positions(ops.arange(ops.shape(x)[1]))

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs, 0) if self.mask_zero else None


class TransformerBlock(layers.Layer):
    """A block that normalizes behind attention and the dense layers."""

    def __init__(self, width, heads, inner, causal=False):
        super().__init__()
        self.att = layers.MultiHeadAttention(heads, width)
        self.ffn = keras.Sequential(
            [layers.Dense(inner, activation="relu"), layers.Dense(width)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(0.1)
        self.dropout2 = layers.Dropout(0.1)
        self.causal = causal

    def call(self, inputs):
        mask = causal_mask(inputs, "bool") if self.causal else None
        attention = self.att(inputs, inputs, attention_mask=mask)
        x = self.layernorm1(inputs + self.dropout1(attention))
        return self.layernorm2(x + self.dropout2(self.ffn(x)))


def causal_mask(x, dtype):
    """Of the tokens of each row, as the examples make it."""
    batch, length = ops.shape(x)[:2]
    places = ops.arange(length)
    mask = ops.cast(places[:, None] >= places, dtype)
    return ops.tile(ops.reshape(mask, (1, length, length)), (batch, 1, 1))
