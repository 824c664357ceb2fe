"""Operators that can follow a `keras.Input`, by the shape that they take."""

import keras
from keras import layers, ops

WIDTH = 8
# Operators of `keras.ops`, by what they are called with.
PLAIN = """
abs angle arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort
cbrt ceil celu conj copy cos cosh deg2rad elu erf erfc erfinv exp exp2 expm1
floor gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh i0 isfinite isinf
isnan isneginf isposinf isreal leaky_relu log log10 log1p log2 log_sigmoid
log_softmax nan_to_num negative normalize ones_like rad2deg real imag
reciprocal relu relu6 round rsqrt selu sigmoid sign signbit silu sin sinc sinh
soft_shrink softmax softplus softsign sort sparse_plus sparse_sigmoid sparsemax
sqrt square squareplus stop_gradient tan tanh tanh_shrink trunc zeros_like
layer_normalization rms_normalization
"""
REDUCING = """
all amax amin any average count_nonzero cumprod cumsum diff flip logsumexp max
mean median min nanargmax nanargmin nancumprod nancumsum nanmax nanmean
nanmedian nanmin nanprod nanstd nansum nanvar prod ptp std sum trapezoid var
norm
"""
OF_TWO = """
add arctan2 divide divide_no_nan equal floor_divide fmax fmin fmod greater
greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2
logical_and logical_or logical_xor maximum minimum mod multiply nextafter
not_equal subtract true_divide
"""

# Further ones as code of `x`, which is their name: of (batch, 8),
VECTORS = """
ops.divide_no_nan(x, ops.sum(x, -1, True))
ops.divide(other, x)
ops.norm(x, ord=1, axis=-1)
ops.norm(x, ord=3, axis=-1)
ops.norm(x, ord=float('inf'), axis=-1)
ops.normalize(x, order=1)
ops.normalize(x, order=3)
ops.normalize(x, axis=-1, epsilon=1e-3)
x / ops.sqrt(ops.sum(x * x, -1, True) + 1e-6)
x / ops.maximum(ops.sqrt(ops.sum(x * x, -1, True)), 1e-6)
ops.power(x, 3.0)
ops.power(ops.abs(x), 0.5)
ops.power(2.0, x)
ops.clip(x, -1, 1)
ops.cast(x, 'int32')
ops.saturate_cast(x, 'int8')
ops.gelu(x, approximate=False)
ops.threshold(x, 0.5, 0.0)
ops.concatenate(ops.moments(x, axes=(1,), keepdims=True), -1)
ops.matmul(x, kernel)
ops.dot(x, kernel)
ops.einsum('bi,ij->bj', x, kernel)
ops.inner(x, ops.transpose(kernel))
ops.expand_dims(x, 2) * ops.expand_dims(x, 1)
ops.top_k(x, 3)[0]
ops.top_k(x, 3)[1]
ops.quantile(x, 0.3, axis=-1)
ops.percentile(x, 30, axis=-1)
ops.nanquantile(x, 0.3, axis=-1)
ops.argpartition(x, 3)
ops.searchsorted(ops.convert_to_tensor([-1.0, 0.0]), ops.reshape(x, (-1,)))
ops.digitize(x, ops.convert_to_tensor([-1.0, 0.0, 2.0]))
ops.where(x > 0, x, 0.1 * x)
ops.where(x > 0, ops.log(x), 0.0)
ops.select([x > 1, x < -1], [x, -x], 0.0)
ops.take(x, [0, 3], axis=1)
ops.take_along_axis(x, ops.argsort(x), axis=1)
ops.one_hot(ops.argmax(x, -1), 8)
ops.roll(x, 2, axis=1)
ops.repeat(x, 2, axis=1)
ops.tile(x, (1, 2))
ops.pad(x, ((0, 0), (1, 1)))
ops.reshape(x, (-1, 2, 4))
ops.split(x, 2, axis=1)[1]
ops.stack([x, -x], 1)
ops.concatenate([x, -x], 1)
ops.ldexp(x, ops.convert_to_tensor([2], 'int32'))
ops.view(x, 'int32')
ops.binary_crossentropy(0.0 * x + ops.sigmoid(9 * other), ops.sigmoid(x))
ops.categorical_crossentropy(ops.one_hot(ops.argmax(x, -1), 8), x, True)
ops.sparse_categorical_crossentropy(ops.argmin(x, -1), x, True)
ops.cdist(ops.expand_dims(x, 1), ops.expand_dims(x, 1) + 1)
ops.rfft(x)[0]
layers.Activation('mish')(x)
layers.Dense(1, 'softplus')(x)
layers.Dense(3, 'gelu')(x)
layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)])(ops.reshape(x, (-1, 4, 2)))
layers.Dot(-1, normalize=True)([x, x[:, ::-1]])
layers.Activation('softplus')(x)
layers.Discretization([-1.0, 0.0, 1.0])(x)
layers.ELU()(x)
layers.EinsumDense('bi,ij->bj', 4)(x)
layers.GroupNormalization(4)(x)
layers.LayerNormalization()(x)
layers.LeakyReLU()(x)
layers.Normalization(mean=0.5, variance=2.0)(x)
layers.PReLU('ones')(x)
layers.RMSNormalization()(x)
layers.ReLU(6.0)(x)
layers.RepeatVector(3)(x)
layers.Rescaling(0.5, 1)(x)
layers.SpectralNormalization(layers.Dense(3))(x)
layers.UnitNormalization()(x)
"""
# of (batch, 6, 8),
SEQUENCES = """
layers.AveragePooling1D(2)(x)
layers.AdaptiveAveragePooling1D(3)(x)
layers.AdaptiveMaxPooling1D(3)(x)
layers.Conv1D(4, 3)(x)
layers.Conv1DTranspose(4, 3)(x)
layers.DepthwiseConv1D(3)(x)
layers.TimeDistributed(layers.Dense(3))(x)
layers.UnitNormalization()(x)
layers.LayerNormalization()(x)
layers.GroupNormalization(4)(x)
layers.BatchNormalization()(x)
layers.Softmax(axis=1)(x)
layers.Attention()([x, x])
layers.AdditiveAttention()([x, x])
layers.MultiHeadAttention(2, 4)(x, x)
layers.GroupQueryAttention(4, 4, 2)(x, x)
layers.GlobalAveragePooling1D()(layers.Masking()(x))
layers.LSTM(3)(layers.Masking()(x))
ops.dot_product_attention(*[ops.expand_dims(x, 2)] * 3)
ops.normalize(x, axis=1)
layers.UnitNormalization(axis=[1, 2])(x)
ops.cumsum(x, axis=1)
ops.cumprod(x, axis=1)
ops.logsumexp(x, axis=1)
ops.matmul(x, ops.transpose(x, (0, 2, 1)))
ops.tril(x)
ops.triu(x)
ops.diagonal(x, axis1=1, axis2=2)
ops.trace(x, axis1=1, axis2=2)
ops.norm(x, axis=(1, 2))
ops.moveaxis(x, 1, 2)
ops.associative_scan(ops.add, x, axis=1)
ops.average_pool(x, 2)
ops.max_pool(x, 2)
ops.cross(x[..., :3], x[..., 3:6])
ops.einsum('bij,bkj->bik', x, x)
ops.std(x, axis=(1, 2))
ops.svd(x, compute_uv=False)
ops.det(x[:, :, :6])
"""
# and of (batch, 8, 8, 3), which `deep` makes volumes of 4 channels of.
IMAGES = """
layers.AveragePooling2D(3, 2, 'same')(x)
layers.AdaptiveAveragePooling2D(3)(x)
layers.AdaptiveMaxPooling2D(3)(x)
layers.BatchNormalization()(x)
layers.CenterCrop(4, 4)(x)
layers.Conv2DTranspose(4, 3)(x)
layers.DepthwiseConv2D(3)(x)
layers.GroupNormalization(3)(x)
layers.Resizing(5, 5)(x)
layers.UnitNormalization()(x)
layers.LayerNormalization(axis=[1, 2, 3])(x)
layers.Resizing(5, 5, 'nearest')(x)
layers.Resizing(5, 5, 'bicubic')(x)
layers.UpSampling2D(2, interpolation='bilinear')(x)
layers.Conv2D(2, 3, padding='same', activation='softplus')(x)
layers.Conv2D(2, 3, dilation_rate=2)(x)
ops.depth_to_space(ops.concatenate([x, x[..., :1]], -1), 2)
ops.space_to_depth(x, 2)
ops.image.rgb_to_grayscale(x)
ops.image.rgb_to_hsv(x)
ops.rot90(x, axes=(1, 2))
layers.ConvLSTM1D(2, 3)(x)
ops.image.extract_patches(x, 2)
layers.Conv3D(2, 2)(deep(x))
layers.MaxPooling3D(2)(deep(x))
layers.AveragePooling3D(2)(deep(x))
layers.GlobalAveragePooling3D()(deep(x))
layers.GlobalMaxPooling3D()(deep(x))
layers.UpSampling3D(2)(deep(x))
layers.Conv3DTranspose(2, 2)(deep(x))
layers.ConvLSTM2D(2, 2)(deep(x))
"""
SHAPES = {
    "vectors": ((WIDTH,), VECTORS),
    "sequences": ((6, WIDTH), SEQUENCES),
    "images": ((8, 8, 3), IMAGES),
}


def deep(x):
    return ops.expand_dims(ops.concatenate([x, x[..., :1]], -1), -1)


def table(name):
    """The shape of an example, and the operators that take it, by name.

    Some are newer than the oldest Keras, and left out there.
    """
    shape, code = SHAPES[name]
    keras.utils.set_random_seed(3)
    scope = {
        **{"keras": keras, "layers": layers, "ops": ops, "deep": deep},
        "kernel": keras.random.normal((WIDTH, 4), seed=1),
        "other": keras.random.normal((WIDTH,), seed=2),
    }
    found = {each: each for each in code.strip().splitlines()}
    if name == "vectors":
        found |= {each: f"ops.{each}(x)" for each in PLAIN.split()}
        found |= {each: f"ops.{each}(x, axis=-1)" for each in REDUCING.split()}
        found |= {each: f"ops.{each}(x, other)" for each in OF_TWO.split()}
    operators = {}
    for each, expression in found.items():
        operator = eval(f"lambda x: {expression}", scope)
        try:
            operator(keras.Input(shape))
        except AttributeError as error:
            if "module 'keras" not in f"{error}":
                raise
        else:
            operators[each] = operator
    return shape, operators
