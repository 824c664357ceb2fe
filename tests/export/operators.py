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


def _ops(names):
    return {
        name: getattr(ops, name) for name in names.split() if hasattr(ops, name)
    }


def _layers(*made):
    return {f"layers.{type(layer).__name__}": layer for layer in made}


def _adaptive(rank):
    """Layers that Keras has from 3.13 on."""
    return [
        getattr(layers, name)(3)
        for name in (
            f"AdaptiveAveragePooling{rank}D",
            f"AdaptiveMaxPooling{rank}D",
        )
        if hasattr(layers, name)
    ]


def vectors():
    """Of (batch, 8)."""
    kernel = keras.random.normal((WIDTH, 4), seed=1)
    other = keras.random.normal((WIDTH,), seed=2)
    return {
        **_ops(PLAIN),
        **{
            name: lambda x, name=name: getattr(ops, name)(x, axis=-1)
            for name in REDUCING.split()
        },
        **{
            name: lambda x, name=name: getattr(ops, name)(x, other)
            for name in OF_TWO.split()
        },
        "by_itself": lambda x: ops.divide_no_nan(x, ops.sum(x, -1, True)),
        "divide_by": lambda x: ops.divide(other, x),
        "norm_1": lambda x: ops.norm(x, ord=1, axis=-1),
        "norm_3": lambda x: ops.norm(x, ord=3, axis=-1),
        "norm_inf": lambda x: ops.norm(x, ord=float("inf"), axis=-1),
        "normalize_1": lambda x: ops.normalize(x, order=1),
        "normalize_3": lambda x: ops.normalize(x, order=3),
        "normalize_batch": lambda x: ops.normalize(x, axis=-1, epsilon=1e-3),
        "normalize_by_hand": lambda x: (
            x / ops.sqrt(ops.sum(x * x, -1, True) + 1e-6)
        ),
        "normalize_by_max": lambda x: (
            x / ops.maximum(ops.sqrt(ops.sum(x * x, -1, True)), 1e-6)
        ),
        "power": lambda x: ops.power(x, 3.0),
        "power_half": lambda x: ops.power(ops.abs(x), 0.5),
        "power_of": lambda x: ops.power(2.0, x),
        "clip": lambda x: ops.clip(x, -1, 1),
        "cast_int": lambda x: ops.cast(x, "int32"),
        "saturate_cast": lambda x: ops.saturate_cast(x, "int8"),
        "gelu_exact": lambda x: ops.gelu(x, approximate=False),
        "threshold": lambda x: ops.threshold(x, 0.5, 0.0),
        "layer_normalization": lambda x: ops.layer_normalization(x),
        "rms_normalization": lambda x: ops.rms_normalization(x),
        "moments": lambda x: ops.concatenate(
            ops.moments(x, axes=(1,), keepdims=True), -1
        ),
        "matmul": lambda x: ops.matmul(x, kernel),
        "dot": lambda x: ops.dot(x, kernel),
        "einsum": lambda x: ops.einsum("bi,ij->bj", x, kernel),
        "inner": lambda x: ops.inner(x, ops.transpose(kernel)),
        "outer_of_row": lambda x: ops.expand_dims(x, 2) * ops.expand_dims(x, 1),
        "top_k": lambda x: ops.top_k(x, 3)[0],
        "top_k_indices": lambda x: ops.top_k(x, 3)[1],
        "quantile": lambda x: ops.quantile(x, 0.3, axis=-1),
        "percentile": lambda x: ops.percentile(x, 30, axis=-1),
        "nanquantile": lambda x: ops.nanquantile(x, 0.3, axis=-1),
        "argpartition": lambda x: ops.argpartition(x, 3),
        "searchsorted": lambda x: ops.searchsorted(
            ops.convert_to_tensor([-1.0, 0.0, 2.0]), ops.reshape(x, (-1,))
        ),
        "digitize": lambda x: ops.digitize(
            x, ops.convert_to_tensor([-1.0, 0.0, 2.0])
        ),
        "where": lambda x: ops.where(x > 0, x, 0.1 * x),
        "where_safe": lambda x: ops.where(x > 0, ops.log(x), 0.0),
        "select": lambda x: ops.select([x > 1, x < -1], [x, -x], 0.0),
        "take": lambda x: ops.take(x, [0, 3], axis=1),
        "take_along_axis": lambda x: ops.take_along_axis(
            x, ops.argsort(x), axis=1
        ),
        "one_hot": lambda x: ops.one_hot(ops.argmax(x, -1), WIDTH),
        "roll": lambda x: ops.roll(x, 2, axis=1),
        "repeat": lambda x: ops.repeat(x, 2, axis=1),
        "tile": lambda x: ops.tile(x, (1, 2)),
        "pad": lambda x: ops.pad(x, ((0, 0), (1, 1))),
        "reshape": lambda x: ops.reshape(x, (-1, 2, 4)),
        "split": lambda x: ops.split(x, 2, axis=1)[1],
        "stack": lambda x: ops.stack([x, -x], 1),
        "concatenate": lambda x: ops.concatenate([x, -x], 1),
        "ldexp": lambda x: ops.ldexp(x, ops.convert_to_tensor([2], "int32")),
        "view": lambda x: ops.view(x, "int32"),
        "binary_crossentropy": lambda x: ops.binary_crossentropy(
            ops.cast(other > 0, "float32") * ops.ones_like(x), ops.sigmoid(x)
        ),
        "categorical_crossentropy": lambda x: ops.categorical_crossentropy(
            ops.one_hot(ops.argmax(x, -1), WIDTH), x, from_logits=True
        ),
        "sparse_categorical_crossentropy": lambda x: (
            ops.sparse_categorical_crossentropy(
                ops.argmin(x, -1), x, from_logits=True
            )
        ),
        "cdist": lambda x: ops.cdist(
            ops.expand_dims(x, 1), ops.expand_dims(x, 1) + 1
        ),
        "rfft": lambda x: ops.rfft(x)[0],
        "mish": layers.Activation("mish"),
        "dense_softplus": layers.Dense(1, "softplus"),
        "dense_sigmoid": layers.Dense(3, "sigmoid"),
        "dense_softmax": layers.Dense(3, "softmax"),
        "dense_tanh": layers.Dense(3, "tanh"),
        "dense_gelu": layers.Dense(3, "gelu"),
        "layers.RNN": lambda x: layers.RNN(
            layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])
        )(ops.reshape(x, (-1, 4, 2))),
        "cosine": lambda x: layers.Dot(-1, normalize=True)([x, x[:, ::-1]]),
        **_layers(
            layers.Activation("softplus"),
            layers.ActivityRegularization(0.1),
            layers.AlphaDropout(0.1),
            layers.BatchNormalization(),
            layers.Dropout(0.1),
            layers.Dense(4),
            layers.Discretization([-1.0, 0.0, 1.0]),
            layers.ELU(),
            layers.EinsumDense("bi,ij->bj", 4),
            layers.Flatten(),
            layers.GaussianDropout(0.1),
            layers.GaussianNoise(0.1),
            layers.GroupNormalization(4),
            layers.Identity(),
            layers.LayerNormalization(),
            layers.LeakyReLU(),
            layers.Normalization(mean=0.5, variance=2.0),
            layers.PReLU("ones"),
            layers.RMSNormalization(),
            layers.ReLU(6.0),
            layers.RepeatVector(3),
            layers.Rescaling(0.5, 1),
            layers.Reshape((4, 2)),
            layers.Softmax(),
            layers.SpectralNormalization(layers.Dense(3)),
            layers.UnitNormalization(),
            layers.Permute((1,)),
        ),
        "layers.Add": lambda x: layers.Add()([x, x * x]),
        "layers.Average": lambda x: layers.Average()([x, x * x]),
        "layers.Maximum": lambda x: layers.Maximum()([x, x * x]),
        "layers.Minimum": lambda x: layers.Minimum()([x, x * x]),
        "layers.Multiply": lambda x: layers.Multiply()([x, x + 1]),
        "layers.Subtract": lambda x: layers.Subtract()([x, x * 3]),
        "layers.Concatenate": lambda x: layers.Concatenate()([x, x + 1]),
        "layers.Dot": lambda x: layers.Dot(-1)([x, x[:, ::-1]]),
    }


def sequences():
    """Of (batch, 6, 8)."""
    return {
        **_layers(
            layers.AveragePooling1D(2),
            *_adaptive(1),
            layers.Bidirectional(layers.LSTM(3)),
            layers.Conv1D(4, 3),
            layers.Conv1DTranspose(4, 3),
            layers.Cropping1D(1),
            layers.DepthwiseConv1D(3),
            layers.GRU(3),
            layers.GlobalAveragePooling1D(),
            layers.GlobalMaxPooling1D(),
            layers.LSTM(3),
            layers.Masking(),
            layers.MaxPooling1D(2),
            layers.SeparableConv1D(4, 3),
            layers.SimpleRNN(3),
            layers.SpatialDropout1D(0.1),
            layers.TimeDistributed(layers.Dense(3)),
            layers.UpSampling1D(2),
            layers.ZeroPadding1D(1),
            layers.UnitNormalization(),
            layers.LayerNormalization(),
            layers.GroupNormalization(4),
            layers.BatchNormalization(),
            layers.Softmax(axis=1),
        ),
        "layers.Attention": lambda x: layers.Attention()([x, x]),
        "layers.AdditiveAttention": lambda x: layers.AdditiveAttention()(
            [x, x]
        ),
        "layers.MultiHeadAttention": lambda x: layers.MultiHeadAttention(2, 4)(
            x, x
        ),
        "layers.GroupQueryAttention": lambda x: layers.GroupQueryAttention(
            4, 4, 2
        )(x, x),
        "masked_average": lambda x: layers.GlobalAveragePooling1D()(
            layers.Masking()(x)
        ),
        "masked_lstm": lambda x: layers.LSTM(3)(layers.Masking()(x)),
        "dot_product_attention": lambda x: ops.dot_product_attention(
            *[ops.expand_dims(x, 2)] * 3
        ),
        "normalize_axis_1": lambda x: ops.normalize(x, axis=1),
        "unit_normalization_1_2": layers.UnitNormalization(axis=[1, 2]),
        "cumsum_1": lambda x: ops.cumsum(x, axis=1),
        "cumprod_1": lambda x: ops.cumprod(x, axis=1),
        "logsumexp_1": lambda x: ops.logsumexp(x, axis=1),
        "matmul_self": lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1))),
        "tril": ops.tril,
        "triu": ops.triu,
        "diagonal": lambda x: ops.diagonal(x, axis1=1, axis2=2),
        "trace": lambda x: ops.trace(x, axis1=1, axis2=2),
        "norm_fro": lambda x: ops.norm(x, axis=(1, 2)),
        "swapaxes": lambda x: ops.swapaxes(x, 1, 2),
        "moveaxis": lambda x: ops.moveaxis(x, 1, 2),
        "associative_scan": lambda x: ops.associative_scan(ops.add, x, axis=1),
        "average_pool": lambda x: ops.average_pool(x, 2),
        "max_pool": lambda x: ops.max_pool(x, 2),
        "softmax_1": lambda x: ops.softmax(x, axis=1),
        "cross": lambda x: ops.cross(x[..., :3], x[..., 3:6]),
        "kron": lambda x: ops.einsum("bij,bkj->bik", x, x),
        "corr": lambda x: ops.std(x, axis=(1, 2)),
        "svd": lambda x: ops.svd(x, compute_uv=False),
        "det": lambda x: ops.det(x[:, :, :6]),
    }


def images():
    """Of (batch, 8, 8, 3)."""
    return {
        **_layers(
            layers.AveragePooling2D(2),
            layers.AveragePooling2D(3, 2, "same"),
            *_adaptive(2),
            layers.BatchNormalization(),
            layers.CenterCrop(4, 4),
            layers.Conv2D(4, 3),
            layers.Conv2DTranspose(4, 3),
            layers.Cropping2D(1),
            layers.DepthwiseConv2D(3),
            layers.GlobalAveragePooling2D(),
            layers.GlobalMaxPooling2D(),
            layers.GroupNormalization(3),
            layers.MaxPooling2D(2),
            layers.Rescaling(1 / 255),
            layers.Resizing(5, 5),
            layers.SeparableConv2D(4, 3),
            layers.SpatialDropout2D(0.1),
            layers.UpSampling2D(2),
            layers.ZeroPadding2D(1),
            layers.UnitNormalization(),
            layers.RandomFlip(),
            layers.RandomContrast(0.1),
            layers.LayerNormalization(axis=[1, 2, 3]),
        ),
        "resize_nearest": layers.Resizing(5, 5, "nearest"),
        "resize_bicubic": layers.Resizing(5, 5, "bicubic"),
        "upsample_bilinear": layers.UpSampling2D(2, interpolation="bilinear"),
        "conv_same_softplus": layers.Conv2D(
            2, 3, padding="same", activation="softplus"
        ),
        "conv_dilated": layers.Conv2D(2, 3, dilation_rate=2),
        "depth_to_space": lambda x: ops.depth_to_space(
            ops.concatenate([x, x[..., :1]], -1), 2
        ),
        "space_to_depth": lambda x: ops.space_to_depth(x, 2),
        "rgb_to_grayscale": ops.image.rgb_to_grayscale,
        "rgb_to_hsv": ops.image.rgb_to_hsv,
        "rot90": lambda x: ops.rot90(x, axes=(1, 2)),
        "conv_lstm": lambda x: layers.ConvLSTM1D(2, 3)(x),
        "extract_patches": lambda x: ops.image.extract_patches(x, 2),
        "layers.Conv3D": lambda x: layers.Conv3D(2, 2)(ops.expand_dims(x, -1)),
        "layers.MaxPooling3D": lambda x: layers.MaxPooling3D(2)(
            ops.expand_dims(ops.concatenate([x, x[..., :1]], -1), -1)
        ),
        "layers.AveragePooling3D": lambda x: layers.AveragePooling3D(2)(
            ops.expand_dims(ops.concatenate([x, x[..., :1]], -1), -1)
        ),
        "layers.GlobalAveragePooling3D": lambda x: (
            layers.GlobalAveragePooling3D()(ops.expand_dims(x, -1))
        ),
        "layers.GlobalMaxPooling3D": lambda x: layers.GlobalMaxPooling3D()(
            ops.expand_dims(x, -1)
        ),
        "layers.UpSampling3D": lambda x: layers.UpSampling3D(2)(
            ops.expand_dims(x, -1)
        ),
        "layers.ZeroPadding3D": lambda x: layers.ZeroPadding3D(1)(
            ops.expand_dims(x, -1)
        ),
        "layers.Conv3DTranspose": lambda x: layers.Conv3DTranspose(2, 2)(
            ops.expand_dims(x, -1)
        ),
        "layers.ConvLSTM2D": lambda x: layers.ConvLSTM2D(2, 2)(
            ops.expand_dims(x, -1)
        ),
        "layers.Cropping3D": lambda x: layers.Cropping3D(1)(
            ops.expand_dims(x, -1)
        ),
    }


SHAPES = {
    "vectors": ((WIDTH,), vectors),
    "sequences": ((6, WIDTH), sequences),
    "images": ((8, 8, 3), images),
}


def table(name):
    """The shape of an example, and the operators that take it, by name."""
    shape, make = SHAPES[name]
    keras.utils.set_random_seed(3)
    return shape, {
        key: operator
        for key, operator in make().items()
        if _is_there(operator, shape)
    }


def _is_there(operator, shape):
    """Whether this Keras has it, for some are newer than the oldest."""
    try:
        operator(keras.Input(shape))
    except AttributeError as error:
        if "module 'keras" not in f"{error}":
            raise
        return False
    return True
