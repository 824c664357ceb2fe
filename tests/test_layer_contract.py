"""What every layer of the package keeps to, on every backend.

A new layer is one more entry of `LAYERS`. Nothing here imports TensorFlow
before a test that is marked as needing it.
"""

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.ops.masks import resolve_mask
from keras_posenc.ops.positions import count_positions
from tests.layers import check_sizes_before_a_run, randomised

BACKEND = keras.config.backend()
DIM = 8
VOCABULARY = 50
# Which tokens are real: padding before, none, between, everywhere, behind. The
# very first token is padding, and a row that begins with some follows a token.
MASK = np.array(
    [
        [0, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [0, 1, 0, 1, 1, 0, 1],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
    ],
    bool,
)
BATCH, SEQ = MASK.shape
# No row, no token in a row, and neither.
NOTHING = [np.ones(size, bool) for size in ((0, SEQ), (2, 0), (0, 0))]
UNITS = {
    "float64": 2**-53,
    "float32": 2**-24,
    "float16": 2**-11,
    "bfloat16": 2**-8,
}

# ---- Positions inside attention, by all three hooks


@keras.saving.register_keras_serializable(package="contract")
class AllHooks(kp.AttentionPosition):
    """Turns queries and keys, favours neighbors, and adds to the values."""

    def build(self, input_shape):
        _, heads, _, dim = input_shape
        self.slope = self.add_weight(
            shape=(heads, 1, 1), initializer="ones", name="slope"
        )
        self.offset = self.add_weight(
            shape=(dim,), initializer="ones", name="offset"
        )
        self.built = True

    def rotate(self, x, positions):
        wide = keras.backend.result_type(x.dtype, "float32")
        angle = 0.3 * ops.expand_dims(ops.cast(positions, wide), (1, 3))
        sine, cosine = (ops.cast(f(angle), x.dtype) for f in (ops.sin, ops.cos))
        a, b = ops.split(x, 2, axis=-1)
        return ops.concatenate(
            [a * cosine - b * sine, a * sine + b * cosine], axis=-1
        )

    def bias(self, query, key, query_positions, key_positions):
        distance = self.distance(query.dtype, query_positions, key_positions)
        return -ops.cast(self.slope, query.dtype) * distance

    def values(self, weights, query_positions, key_positions):
        distance = self.distance(weights.dtype, query_positions, key_positions)
        mean = ops.sum(weights * distance, axis=-1, keepdims=True)
        return mean * ops.cast(self.offset, weights.dtype)

    def distance(self, dtype, query_positions, key_positions):
        wide = keras.backend.result_type(dtype, "float32")
        query_positions, key_positions = (
            ops.cast(positions, wide)
            for positions in (query_positions, key_positions)
        )
        distance = ops.tanh(
            ops.abs(
                ops.expand_dims(query_positions, -1)
                - ops.expand_dims(key_positions, -2)
            )
        )
        return ops.cast(ops.expand_dims(distance, 1), dtype)


# ---- A decoder that attends to its own inputs besides


@keras.saving.register_keras_serializable(package="contract")
class SelfReader(kp.TransformerDecoder):
    """Whatever says where tokens stand, or which are real, says it twice."""

    def call(
        self, inputs, *, padding_mask=None, mask=None, training=None, **kwargs
    ):
        mask = resolve_mask(mask, inputs)
        masks = [each for each in (mask, padding_mask) if each is not None]
        real = [ops.cast(each, "bool") for each in masks]
        again = {
            f"memory_{name}": kwargs[name]
            for name in ("positions", "segment_ids", "attention_mask")
            if name in kwargs
        }
        if real:
            again["memory_mask"] = functools.reduce(ops.logical_and, real)
        return super().call(
            inputs,
            memory=inputs,
            padding_mask=padding_mask,
            mask=mask,
            training=training,
            **again,
            **kwargs,
        )

    def compute_output_spec(self, inputs, **kwargs):
        return super().compute_output_spec(inputs, memory=inputs, **kwargs)


# ---- Attention that is causal unless told otherwise


@keras.saving.register_keras_serializable(package="contract")
class CausalAttention(kp.SelfAttention):
    """For positions that no other attention takes."""

    def call(self, inputs, *, use_causal_mask=True, mask=None, **kwargs):
        return super().call(
            inputs, use_causal_mask=use_causal_mask, mask=mask, **kwargs
        )


# ---- Positions that are vectors


@keras.saving.register_keras_serializable(package="contract")
class OnGrid(kp.SelfAttention):
    """Attends at vectors, made from whatever says where tokens stand."""

    def call(
        self,
        inputs,
        *,
        positions=None,
        start_index=0,
        segment_ids=None,
        mask=None,
        training=None,
        **kwargs,
    ):
        row = count_positions(
            positions,
            start_index=start_index,
            segment_ids=segment_ids,
            length=ops.shape(inputs)[1],
        )
        kwargs |= {"segment_ids": segment_ids, "mask": mask}
        kwargs["positions"] = ops.stack([row, -row], axis=-1)
        return super().call(inputs, training=training, **kwargs)

    def compute_output_spec(self, inputs, **kwargs):
        kwargs["positions"] = keras.KerasTensor((*inputs.shape[:2], 2))
        return super().compute_output_spec(
            inputs, **{**kwargs, "start_index": 0}
        )


# ---- The table


@dataclasses.dataclass(frozen=True)
class Entry:
    """A layer under contract.

    Attributes:
        make: The layer, from its dtype and, if it has one, its dropout.
        roundings: How many roundings stand between an input and an output.
        tensors: The optional tensors of its call, other than the mask.
        together: Those that can be given at once.
        dropout: Whether it has a dropout.
        pools: Whether it gives one vector for each row.
        mixes: Whether tokens influence one another.
        third_derivative: What the third derivatives by weights stay below. A
            sine's, by its frequency, grows with the cube of the position.
        kinks: Whether its gradients jump, as behind a ReLU.
        scheme: Whether it is "attention" with a scheme for positions, so that
            each tensor alone comes to it by a way that is tried there.
    """

    make: Callable[..., keras.Layer]
    roundings: int
    tensors: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    dropout: bool = True
    pools: bool = False
    mixes: bool = True
    third_derivative: float = 100
    kinks: bool = False
    scheme: bool = False


ATTENTION = ("positions", "segment_ids", "padding_mask", "attention_mask")
COUNTED = ("start_index", "segment_ids")
# A projection rounds its kernel, the product and the sum with the bias.
ENCODING_ROUNDINGS = 4  # inputs, encoding, scaling, sum
ATTENTION_ROUNDINGS = 10  # inputs, scaling, weights, sum, two projections
FEED_FORWARD_ROUNDINGS = 8  # inputs, activation, two projections
NORM_ROUNDINGS = 3  # mean and variance, gamma, beta
BLOCK_ROUNDINGS = (
    ATTENTION_ROUNDINGS + FEED_FORWARD_ROUNDINGS + 2 * (1 + NORM_ROUNDINGS)
)
READING_ROUNDINGS = BLOCK_ROUNDINGS + ATTENTION_ROUNDINGS + 1 + NORM_ROUNDINGS


def attention(layer, roundings, *args, spec=None, **options):
    """An entry for a layer with the call of `SelfAttention`.

    `spec` has arguments of its `Attention`, with the class of the position.
    """

    def make(**kwargs):
        own = dict(spec or {})
        if "position" in own:
            own["position"] = own["position"](dtype=kwargs.get("dtype"))
        given = {"attention": kp.Attention(**own), **options, **kwargs}
        return layer(*args, **given)

    return Entry(make, roundings, (*ATTENTION, "start_index"), ATTENTION)


def encoding(
    *tensors, layer=kp.PositionalEncoding, third_derivative=100, **options
):
    """An entry for a mode of an encoding of the input."""
    return Entry(
        lambda **kwargs: layer(**options, **kwargs),
        ENCODING_ROUNDINGS,
        tensors or ("positions", *COUNTED),
        tensors or COUNTED,
        mixes=False,
        third_derivative=third_derivative,
    )


def grid(**options):
    """An entry for a mode of `AxialPositionalEncoding`, with one axis."""
    return Entry(
        lambda **kwargs: kp.AxialPositionalEncoding(1, **options, **kwargs),
        ENCODING_ROUNDINGS,
        mixes=False,
    )


def attending(position, roundings=4, layer=kp.SelfAttention, **options):
    """An entry for a scheme inside grouped attention, by its arguments.

    A scheme may round its angles or distances, products, sums and its result.
    """

    def make(**kwargs):
        return position(**options, dtype=kwargs["dtype"])

    entry = attention(
        layer,
        ATTENTION_ROUNDINGS + roundings,
        2,
        spec={"position": make, "num_key_value_heads": 1},
    )
    return dataclasses.replace(entry, scheme=True)


def pooling(kind, roundings, **options):
    make = functools.partial(kp.Pooling1D, kind, **options)
    return Entry(make, roundings, dropout=False, pools=True)


def combined(dtype):
    """A rotation, a scale of queries alone, and a bias with steps."""
    return kp.positions.CombinedPosition(
        [
            kp.RotaryEmbedding(dtype=dtype),
            kp.positions.ScalableSoftmax(dtype=dtype),
            kp.positions.ForgettingBias(dtype=dtype),
        ],
        dtype=dtype,
    )


def rotary(**options):
    """An entry for rotary embeddings called on a tensor."""
    return Entry(
        lambda **kwargs: kp.RotaryEmbedding(**options, **kwargs),
        4,  # inputs, two products and their sum
        ("positions", *COUNTED),
        COUNTED,
        dropout=False,
        mixes=False,
    )


YARN = {
    "rope_type": "yarn",
    "factor": 4,
    "original_max_position_embeddings": 16,
}
DYNAMIC = {**YARN, "rope_type": "dynamic"}
LONGROPE = {
    **YARN,
    "rope_type": "longrope",
    "original_max_position_embeddings": 4,
    "short_factor": [1, 2],
    "long_factor": [3, 4],
}
BLOCK = {"intermediate_dim": 16, "activation": "gelu"}
HEADS = {"num_heads": 4}
LAYERS = {
    "encoding-add": encoding(scale_inputs=True),
    "encoding-concat": encoding(
        merge_mode="concat", encoding_dim=5, layout="halves"
    ),
    "encoding-alone": encoding(merge_mode=None, max_wavelength=100),
    "encoding-skip-masked": encoding("start_index", skip_masked=True),
    "index-add": encoding(layer=kp.positions.IndexEncoding),
    "index-concat-normalized": encoding(
        layer=kp.positions.IndexEncoding, merge_mode="concat", normalize=True
    ),
    "index-alone-skip-masked": encoding(
        "start_index",
        layer=kp.positions.IndexEncoding,
        merge_mode=None,
        normalize=True,
        skip_masked=True,
    ),
    # Its table reaches beyond every start that is given; its positions are
    # integers, and so tested apart.
    "embedding-add": encoding(
        *COUNTED, layer=kp.PositionEmbedding, sequence_length=6000
    ),
    "embedding-concat-skip-masked": encoding(
        "start_index",
        layer=kp.PositionEmbedding,
        sequence_length=6000,
        merge_mode="concat",
        encoding_dim=5,
        skip_masked=True,
    ),
    # One axis is a sequence; grids come last.
    "axial-concat": grid(merge_mode="concat", encoding_dim=5, layout="halves"),
    "axial-learned": grid(grid_shape=(70,)),
    "time-fixed": encoding(layer=kp.TimeEncoding),
    "time-periods-concat": encoding(
        layer=kp.TimeEncoding,
        periods=(24, 168.5, 1e7),
        merge_mode="concat",
        layout="halves",
    ),
    "time-learned": encoding(
        "segment_ids",
        layer=kp.TimeEncoding,
        kind="learned",
        third_derivative=1e6,
    ),
    "time2vec-concat": encoding(
        "segment_ids",
        layer=kp.TimeEncoding,
        kind="time2vec",
        merge_mode="concat",
        encoding_dim=4,
        third_derivative=1e6,
    ),
    "attention": attention(kp.SelfAttention, ATTENTION_ROUNDINGS, 4),
    "attention-grouped-hooks": attention(
        kp.SelfAttention,
        ATTENTION_ROUNDINGS + 4,
        4,
        spec={"position": AllHooks, "num_key_value_heads": 2},
    ),
    "feed-forward": Entry(
        lambda **kwargs: kp.FeedForward(16, activation="gelu", **kwargs),
        FEED_FORWARD_ROUNDINGS,
        mixes=False,
    ),
    "block-post": attention(
        kp.TransformerEncoderBlock, BLOCK_ROUNDINGS, 4, **BLOCK
    ),
    "block-pre-rms-grouped": attention(
        kp.TransformerEncoderBlock,
        BLOCK_ROUNDINGS,
        4,
        **BLOCK,
        norm=kp.Norm("rms", at="before"),
        use_bias=False,
        attention=kp.Attention(num_key_value_heads=1),
    ),
    "encoder-pre-rms-grouped-hooks": attention(
        kp.TransformerEncoder,
        2 * (BLOCK_ROUNDINGS + 4) + NORM_ROUNDINGS,
        2,
        **HEADS,
        **BLOCK,
        norm=kp.Norm("rms", at="before"),
        spec={"position": AllHooks, "num_key_value_heads": 2},
        skip_padding=False,
    ),
    "decoder-block-parallel-rms-gated-hooks": attention(
        kp.TransformerDecoderBlock,
        BLOCK_ROUNDINGS + 4,
        4,
        intermediate_dim=16,
        activation="silu",
        use_gate=True,
        use_bias=False,
        norm=kp.Norm("rms", at="parallel"),
        spec={"position": AllHooks, "num_key_value_heads": 2},
        cross_attention=None,
    ),
    "decoder-of-memory-pre-hooks": attention(
        SelfReader,
        READING_ROUNDINGS + 4 + NORM_ROUNDINGS,
        1,
        **HEADS,
        **BLOCK,
        norm="before",
        spec={"position": AllHooks, "num_key_value_heads": 2},
    ),
    "decoder-of-memory-with-norms": attention(
        SelfReader,
        # Two sublayers with norms of queries, keys; three of outputs.
        READING_ROUNDINGS + 8 * NORM_ROUNDINGS,
        1,
        **HEADS,
        **BLOCK,
        attention=kp.Attention(
            head_dim=6, query_key_norm=True, use_bias=True, window=2
        ),
        norm=kp.Norm("rms", at="before output"),
        use_bias=False,
    ),
    "rotary": rotary(),
    "rotary-yarn-interleaved": rotary(layout="interleaved", scaling=YARN),
    "rotary-dynamic": rotary(scaling=DYNAMIC),
    "attention-rotary": attending(kp.RotaryEmbedding),
    "attention-rotary-longrope": attending(
        kp.RotaryEmbedding, scaling=LONGROPE
    ),
    "attention-rotary-dynamic": attending(
        kp.RotaryEmbedding, scaling=DYNAMIC, layout="interleaved"
    ),
    "attention-rotary-axial": attending(
        kp.RotaryEmbedding, layer=OnGrid, axes=2
    ),
    "attention-rotary-sections": attending(
        kp.RotaryEmbedding, layer=OnGrid, axes={"mrope_section": [1, 1]}
    ),
    "attention-alibi": attending(kp.AlibiBias),
    "attention-relative-bias": attending(
        kp.RelativePositionBias, num_buckets=8, max_distance=20
    ),
    "attention-disentangled": attending(
        kp.positions.DisentangledBias, num_buckets=4, max_distance=8
    ),
    "attention-relative": attending(
        kp.positions.RelativePositionEmbedding, max_distance=3
    ),
    "attention-kerple": attending(kp.positions.KerpleBias),
    "attention-kerple-power-causal": attending(
        kp.positions.KerpleBias, variant="power", bidirectional=False
    ),
    # Logarithms, their quotient, and a network of two layers.
    "attention-fire": dataclasses.replace(
        attending(kp.positions.FireBias, roundings=12), kinks=True
    ),
    "attention-xl": attending(kp.positions.TransformerXLBias, roundings=8),
    # Scales of two sides, and the angles.
    "attention-xpos": attending(
        kp.positions.XPosEmbedding, 8, CausalAttention, scale_base=8192
    ),
    # Softpluses of both sides, the angles, and the bias, which is cut off.
    "attention-polar": dataclasses.replace(
        attending(kp.positions.PolarEmbedding, roundings=12), kinks=True
    ),
    # One pair is rotated, by what coefficients make of its angle, and one not.
    "attention-fourier": attending(
        kp.positions.FourierEmbedding,
        roundings=8,
        training_length=16,
        num_key_value_heads=1,
    ),
    # Gates with their exponential and logarithm, and sums of them.
    "attention-forgetting": attending(
        kp.positions.ForgettingBias, roundings=12
    ),
    # Gates of scores, sums of them, and products with two vectors.
    "attention-contextual": dataclasses.replace(
        attending(
            kp.positions.ContextualBias, 16, CausalAttention, max_position=2
        ),
        kinks=True,
    ),
    "attention-temperature": attending(
        kp.positions.AttentionTemperature, floor_scale=4
    ),
    # Scores of several times the size.
    "attention-combined": attending(combined, roundings=32),
    "pooling": pooling("mean", 3),
    "pooling-max": pooling("max", 3),
    "pooling-last": pooling("last", 1),
    "pooling-sqrt": pooling("mean_sqrt_length", 3),
    "pooling-weighted": pooling("weighted_mean", 4, start=3),
    "pooling-several": pooling(["last", "weighted_mean"], 4),
}
# Variants of schemes of the table, and what they share code with: every night.
MORE_OF_THE_SAME = (
    "attention-rotary-dynamic",
    "attention-rotary-longrope",
    "attention-forgetting",
    "attention-fourier",
    "attention-temperature",
    "attention-rotary-sections",
    "attention-xpos",
    "attention-kerple",
    "rotary-dynamic",
    "encoding-alone",
    "index-add",
    "pooling-sqrt",
    "attention",
    "block-pre-rms-grouped",
    "encoding-concat",
    "pooling-last",
    "rotary-yarn-interleaved",
    "time-periods-concat",
)


def named(key, *values, suffix=()):
    """Parameters of a test of the entry of this key."""
    return pytest.param(
        *values,
        id="-".join([key, *suffix]),
        marks=pytest.mark.slow if key in MORE_OF_THE_SAME else (),
    )


def both(entry):
    """No tensors, and all that can be given at once."""
    return list(dict.fromkeys([(), entry.together]))


def once(entry):
    """... or all alone, for what a scheme does alike at counted positions."""
    return [entry.together] if entry.scheme else both(entry)


# For what a scheme has no part in: one of them, too.
ONE_SCHEME = [
    named(key, entry)
    for key, entry in LAYERS.items()
    if not entry.scheme or key == "attention-rotary"
]

WITH_POSITIONS = [
    named(key, entry)
    for key, entry in LAYERS.items()
    if "positions" in entry.tensors
]


@pytest.fixture(params=[named(*item) for item in LAYERS.items()])
def entry(request):
    return request.param


# ---- What the layers are given


def built(entry, **kwargs):
    """The layer, built, with the same random weights every time."""
    layer = entry.make(**kwargs)
    layer.build((None, None, DIM))
    return randomised(layer, 7)


@functools.cache
def shared(entry):
    """`built`, once for all tests that change nothing of it."""
    return built(entry)


def sequences(batch=BATCH, seq=SEQ, dtype="float32"):
    rng = np.random.default_rng(11)
    return rng.normal(size=(batch, seq, DIM)).astype(dtype)


def ids_of(mask):
    rng = np.random.default_rng(13)
    ids = rng.integers(1, VOCABULARY, mask.shape)
    return np.where(mask, ids, 0).astype("int32")


def tensors(names, mask, padded=0):
    """The optional tensors; `padded` = 0 or 1 picks what padding holds."""
    rng = np.random.default_rng(17)
    batch, seq = mask.shape
    allowed = rng.random((batch, seq, seq)) < 0.6
    allowed[:, np.arange(seq), np.arange(seq)] = True
    both = mask[:, :, np.newaxis] & mask[:, np.newaxis, :]
    everything = {
        "positions": np.where(
            mask, rng.integers(0, 2000, mask.shape) / 2, (0, 1e6)[padded]
        ).astype("float32"),
        "start_index": rng.integers(-5, 5000, batch).astype("int32"),
        "segment_ids": np.where(
            mask, 1 + np.arange(seq) // 3, (0, 77)[padded]
        ).astype("int32"),
        "padding_mask": np.where(mask, True, bool(padded)),
        "attention_mask": np.where(both, allowed, bool(padded)),
    }
    return {name: everything[name] for name in names}


INPUTS = {
    "ids": ((None,), "int32"),
    "positions": ((None,), "float32"),
    "start_index": ((), "int32"),
    "segment_ids": ((None,), "int32"),
    "padding_mask": ((None,), "bool"),
    "attention_mask": ((None, None), "bool"),
}


def network(layer, names=()):
    """Ids and optional tensors -> embeddings that carry a mask -> layer."""
    ids, *extra = (
        keras.Input(shape, dtype=dtype, name=name)
        for name, (shape, dtype) in INPUTS.items()
        if name in ("ids", *names)
    )
    embedding = keras.layers.Embedding(
        VOCABULARY, DIM, mask_zero=True, name="embedding"
    )
    x = embedding(ids)
    rng = np.random.default_rng(19)
    embedding.set_weights([rng.normal(size=(VOCABULARY, DIM))])
    outputs = layer(x, **{tensor.name: tensor for tensor in extra})
    return keras.Model([ids, *extra] if extra else ids, outputs)


def feed(model, names, mask=MASK, padded=0):
    """What `network(layer, names)` takes."""
    values = {"ids": ids_of(mask), **tensors(names, mask, padded)}
    values = [values[tensor.name] for tensor in model.inputs]
    return values if names else values[0]


@functools.cache
def answered(entry, names):
    """What the shared layer answers to `sequences()`, masked."""
    layer, extra = shared(entry), tensors(names, MASK)
    return numpy(layer(sequences(), **under(layer, MASK), **extra))


@functools.cache
def shared_network(entry, names):
    """`network` of the shared layer, whose embedding stays as it is."""
    return network(shared(entry), names)


def under(layer, mask):
    """The call argument that gives a layer a mask, if it looks at masks."""
    looks = "mask" in inspect.signature(layer.call).parameters
    return {"mask": mask} if looks else {}


class MaskSeen(keras.Layer):
    """Answers with the mask that a tensor carries, or None."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        return mask

    def compute_mask(self, inputs, previous_mask):
        return None


# ---- How answers are compared


def numpy(x):
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype in ("bfloat16", "float16"):
        x = ops.cast(x, "float32")
    return np.asarray(ops.convert_to_numpy(x))


def real(outputs, entry, mask=MASK):
    """The outputs that are promised: those of the real tokens."""
    outputs = numpy(outputs)
    return outputs if entry.pools else outputs[mask]


def bound(entry, expected, dtype="float32"):
    """How far two ways of computing the same may be apart.

    Roundings are independent: n of them add up to sqrt(n), and four standard
    deviations cover every entry. Sums of 16 products may run in another
    order, which counts as 16 roundings; those of the half precisions run in
    float32.
    """
    size = max(1, expected.size)
    scale = max(1.0, float(np.sqrt(np.sum(np.square(expected)) / size)))
    terms = 1 if "16" in dtype else 16
    return 4 * np.sqrt(entry.roundings * terms) * UNITS[dtype] * scale


def near(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


# ---- Configuration and files


def test_keras_file_round_trip(entry, tmp_path):
    model = shared_network(entry, entry.together)
    inputs = feed(model, entry.together)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert [type(layer) for layer in loaded.layers] == [
        type(layer) for layer in model.layers
    ]
    np.testing.assert_array_equal(numpy(loaded(inputs)), numpy(model(inputs)))


@pytest.mark.parametrize("entry", WITH_POSITIONS)
def test_positions_stand_beside_segments(entry):
    """Where positions are given, segments say who belongs together alone."""
    layer, x = shared(entry), sequences()
    given = tensors(("positions", "segment_ids"), MASK)
    mask = under(layer, MASK)
    segments = given.pop("segment_ids")
    outputs = layer(x, **mask, **given, segment_ids=segments)
    if entry.mixes:
        same = segments[:, :, np.newaxis] == segments[:, np.newaxis]
        given["attention_mask"] = same
    elif getattr(layer, "normalize", False):
        pytest.skip("the length of a segment is in test_index_encoding.py")
    expected = real(layer(x, **mask, **given), entry)
    near(real(outputs, entry), expected, bound(entry, expected))


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        named(key, entry, names, suffix=names)
        for key, entry in LAYERS.items()
        for names in (("start_index",), ("positions", "segment_ids"))
        if set(names) <= {*entry.tensors}
    ],
)
def test_integers_of_any_dtype_and_kind(entry, names):
    layer, x = shared(entry), sequences()
    given = {
        name: value.astype("int32")
        for name, value in tensors(names, MASK).items()
    }
    expected = real(layer(x, **under(layer, MASK), **given), entry)
    kinds = (
        lambda value: ops.convert_to_tensor(value.astype("int64")),
        lambda value: value.astype("int64"),
        np.ndarray.tolist,
    )
    # Schemes are given tensors, whatever attention is.
    for kind in kinds[:1] if entry.scheme else kinds:
        other = {name: kind(value) for name, value in given.items()}
        outputs = layer(x, **under(layer, MASK), **other)
        near(real(outputs, entry), expected, bound(entry, expected))


def test_of_nothing_comes_nothing(entry):
    """... with a mask and without; rows without a token are pooled to 0."""
    for names in once(entry):
        layer = shared(entry)
        for mask in NOTHING:
            x, extra = sequences(*mask.shape), tensors(names, mask)
            # With other tensors the mask is always there.
            for given in ({}, under(layer, mask))[bool(names) :]:
                outputs = numpy(layer(x, **given, **extra))
                assert outputs.shape == layer.compute_output_shape(x.shape)
                assert not outputs.any()


# ---- Initial weights


def seeded(config):
    """The same config, where every initializer draws by one seed."""
    normal = keras.initializers.RandomNormal(seed=3)
    if isinstance(config, list | tuple):
        return [seeded(value) for value in config]
    if not isinstance(config, dict):
        return config
    return {
        key: keras.saving.serialize_keras_object(normal)
        if key.endswith("_initializer")
        else seeded(value)
        for key, value in config.items()
    }


def initial_weights(layer, shape):
    """Those that are drawn, of a layer of this config with a seed."""
    twin = type(layer).from_config(seeded(layer.get_config()))
    twin.build(shape)
    weights = [numpy(weight) for weight in twin.trainable_weights]
    return [weight for weight in weights if np.ptp(weight)]


def check_initial_weights(layer, shape):
    """One seed gives the same layer, no two weights of which are equal."""
    weights = initial_weights(layer, shape)
    for one, two in zip(weights, initial_weights(layer, shape), strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in itertools.combinations(weights, 2):
        assert not np.array_equal(one, two)


def test_no_two_weights_begin_equal(entry):
    check_initial_weights(entry.make(), (None, None, DIM))


# ---- Shapes and dtypes


def test_shapes_agree(entry):
    layer = entry.make()
    outputs = layer(sequences(2, 5))
    for sizes in ((2, 5), (None, 5), (2, None), (None, None)):
        symbolic = layer(keras.KerasTensor((*sizes, DIM)))
        assert tuple(symbolic.shape) == layer.compute_output_shape(
            (*sizes, DIM)
        )
        assert len(outputs.shape) == len(symbolic.shape)
        assert all(
            stated in (None, actual)
            for stated, actual in zip(
                symbolic.shape, outputs.shape, strict=True
            )
        )
        assert outputs.shape[-1] == symbolic.shape[-1]
        assert symbolic.dtype == keras.backend.standardize_dtype(outputs.dtype)


class Everything:
    """One model with an output for each entry, so that it is traced once."""

    def __init__(self):
        self.layers = {key: built(entry) for key, entry in LAYERS.items()}
        inputs = {
            name: keras.Input(shape, dtype=dtype, name=name)
            for name, (shape, dtype) in INPUTS.items()
        }
        self.embedding = keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True)
        x = self.embedding(inputs["ids"])
        rng = np.random.default_rng(19)
        self.embedding.set_weights([rng.normal(size=(VOCABULARY, DIM))])
        outputs = {
            key.replace("-", "_"): self.layers[key](
                x, **{name: inputs[name] for name in entry.together}
            )
            for key, entry in LAYERS.items()
        }
        self.model = keras.Model(list(inputs.values()), outputs)

    def feed(self, mask):
        """Its inputs by name."""
        return {"ids": ids_of(mask), **tensors(tuple(INPUTS)[1:], mask)}

    def check(self, answer, masks):
        """Compares what answers to `feed(mask)` with the layers, one by one."""
        wrong = {}
        for mask in masks:
            answers = answer(self.feed(mask))
            x = self.embedding(ids_of(mask))
            for key, layer in self.layers.items():
                entry = LAYERS[key]
                expected = numpy(layer(x, **tensors(entry.together, mask)))
                outputs = np.asarray(answers[key.replace("-", "_")])
                try:
                    near(outputs, expected, bound(entry, expected))
                except AssertionError as error:
                    wrong[key, mask.shape] = str(error)
        assert not wrong, "\n".join(
            f"{key}, {shape}: {error}" for (key, shape), error in wrong.items()
        )


@pytest.fixture(scope="module")
def everything():
    return Everything()


def masks_of_lengths(*lengths):
    """Three rows each: all real, half of it padding, all padding."""
    return [
        np.arange(length) < np.array([[length], [(length + 1) // 2], [0]])
        for length in lengths
    ]


def test_precision(entry):
    x = sequences()
    for policy in ("mixed_float16", "bfloat16"):
        dtype = policy.removeprefix("mixed_")
        layer = built(entry, dtype=policy)
        layer.set_weights(shared(entry).get_weights())
        assert {weight.dtype for weight in layer.trainable_weights} <= {
            layer.variable_dtype
        }
        symbolic = layer.compute_output_spec(keras.KerasTensor(x.shape))
        assert symbolic.dtype == dtype
        for names in once(entry):
            extra = tensors(names, MASK)
            outputs = layer(x, **under(layer, MASK), **extra)
            assert keras.backend.standardize_dtype(outputs.dtype) == dtype
            expected = real(answered(entry, names), entry)
            near(real(outputs, entry), expected, bound(entry, expected, dtype))


# ---- Masks


def test_padding_holds_anything(entry):
    """Implicit masks: what stands at padded places changes no real token."""
    for names in once(entry):
        model = shared_network(entry, names)
        embedding = model.get_layer("embedding")
        (table,) = embedding.get_weights()
        answers = []
        for padded, garbage in ((0, 0.0), (1, np.nan), (1, np.inf)):
            embedding.set_weights(
                [np.vstack([0 * table[:1] + garbage, table[1:]])]
            )
            outputs = numpy(model(feed(model, names, padded=padded)))
            # Each by itself, padding may stay what it is.
            if entry.mixes:
                assert np.isfinite(outputs).all()
            answers.append(real(outputs, entry))
        embedding.set_weights([table])
        for answer in answers[1:]:
            np.testing.assert_array_equal(answer, answers[0])


@pytest.mark.parametrize("entry", WITH_POSITIONS)
def test_padding_stands_anywhere(entry):
    """... also where no token could; all that is answered stays finite."""
    layer, x = shared(entry), sequences()
    positions = tensors(("positions",), MASK)["positions"]
    expected = numpy(layer(x, **under(layer, MASK), positions=positions))
    for nowhere in (np.nan, -np.inf, 2.0**24 + 2):
        call = {
            **under(layer, MASK),
            "positions": np.where(MASK, positions, nowhere).astype("float32"),
        }
        outputs = numpy(layer(x, **call))
        assert np.isfinite(outputs).all()
        np.testing.assert_array_equal(outputs[MASK], expected[MASK])
    gradients = gradients_of(layer, x, weighted_sum, **call)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("entry", WITH_POSITIONS)
def test_a_token_at_nan_is_nan(entry):
    """A mistake shows: no scheme takes NaN for some place or other."""
    layer, x = shared(entry), sequences()
    positions = tensors(("positions",), MASK)["positions"]
    expected = numpy(layer(x, positions=positions))
    moved = numpy(layer(x, positions=positions[:, ::-1]))
    positions[1, 2] = np.nan
    outputs = numpy(layer(x, positions=positions))
    looks_at_positions = not np.array_equal(moved, expected)
    assert np.isnan(outputs[1, 2]).any() == looks_at_positions
    others = np.arange(BATCH) != 1
    near(outputs[others], expected[others], bound(entry, expected))


@pytest.mark.tensorflow  # Keras computes in float64 there alone
@pytest.mark.parametrize("entry", WITH_POSITIONS)
def test_float64_reads_float32_positions_exactly(entry):
    layer, x = built(entry, dtype="float64"), sequences(dtype="float64")
    rng = np.random.default_rng(41)
    # The fraction of one below 0 needs more bits than itself.
    positions = rng.uniform(-3, 3, (BATCH, SEQ)).astype("float32")
    expected = numpy(layer(x, positions=positions.astype("float64")))
    outputs = numpy(layer(x, positions=positions))
    near(outputs, expected, bound(entry, expected, "float64"))


def test_explicit_mask_is_the_implicit_one(entry):
    for names in once(entry):
        layer, model = shared(entry), shared_network(entry, names)
        # The same tensor, with the mask of its embedding and without.
        x = model.get_layer("embedding")(ids_of(MASK))
        bare = ops.convert_to_tensor(numpy(x))
        extra = tensors(names, MASK)
        expected = numpy(layer(bare, **under(layer, MASK), **extra))
        np.testing.assert_array_equal(numpy(layer(x, **extra)), expected)
        np.testing.assert_array_equal(
            numpy(model(feed(model, names))), expected
        )
        # An explicit mask stands above the one that the inputs carry.
        everything = np.ones_like(MASK)
        np.testing.assert_array_equal(
            numpy(layer(x, **under(layer, everything), **extra)),
            numpy(layer(bare, **under(layer, everything), **extra)),
        )


@pytest.mark.parametrize("entry", ONE_SCHEME)
def test_mask_passes_on(entry):
    layer, seen = shared(entry), MaskSeen()
    x = keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True)(ids_of(MASK))
    for names in both(entry):
        extra = tensors(names, MASK)
        carried = seen(layer(x, **extra))
        given = seen(layer(sequences(), **under(layer, MASK), **extra))
        if entry.pools:
            assert carried is None
            assert given is None
            continue
        np.testing.assert_array_equal(numpy(carried), MASK)
        if under(layer, MASK):
            np.testing.assert_array_equal(numpy(given), MASK)
        assert seen(layer(sequences(), **extra)) is None


def test_longer_padding_changes_nothing(entry):
    for names in both(entry):
        layer, x = shared(entry), sequences()
        rng = np.random.default_rng(23)
        more = [(0, 0), (0, 4)]
        long_mask = np.pad(MASK, more)
        long_x = np.concatenate([x, rng.normal(size=(BATCH, 4, DIM))], axis=1)
        short, long = tensors(names, MASK), {}
        for name, value in short.items():
            axes = [(0, 4) if size == SEQ else (0, 0) for size in value.shape]
            long[name] = np.pad(value, axes)
        expected = real(answered(entry, names), entry)
        outputs = numpy(
            layer(long_x.astype("float32"), **under(layer, long_mask), **long)
        )
        outputs = outputs if entry.pools else outputs[:, :SEQ]
        near(real(outputs, entry), expected, bound(entry, expected))


def test_rows_are_independent(entry):
    """... of how many there are, and of NaN in the tokens of another."""
    for names in once(entry):
        layer, x = shared(entry), sequences()
        extra = tensors(names, MASK)
        together = answered(entry, names)
        poisoned = x.copy()
        poisoned[1, -1] = np.nan
        outputs = numpy(layer(poisoned, **under(layer, MASK), **extra))
        others = np.arange(BATCH) != 1
        np.testing.assert_array_equal(outputs[others], together[others])
        # Its own row knows, unless the layer looks at no inputs.
        assert np.isnan(outputs[1]).any() or (outputs[1] == together[1]).all()
        for row in (1, BATCH - 1):
            one = slice(row, row + 1)
            alone = layer(
                x[one],
                **under(layer, MASK[one]),
                **{name: value[one] for name, value in extra.items()},
            )
            near(numpy(alone), together[one], bound(entry, together))


def test_mask_of_true_is_no_mask(entry):
    layer, x = shared(entry), sequences()
    expected = numpy(layer(x))
    outputs = numpy(layer(x, **under(layer, np.ones_like(MASK))))
    near(outputs, expected, bound(entry, expected))


# ---- Gradients


def weighted_sum(outputs, mask=None):
    """One number from all the outputs, or from those of the real tokens."""
    factors = np.random.default_rng(29).normal(size=tuple(outputs.shape))
    if mask is not None and factors.ndim == 3:  # no product with NaN
        outputs = ops.where(mask[..., np.newaxis], outputs, 0)
    return ops.sum(outputs * ops.convert_to_tensor(factors, outputs.dtype))


def gradients_of(layer, x, total, **kwargs):
    """Of `total(layer(x, **kwargs))` by the trainable weights, then by x."""
    return gradients_at([x], layer, total, **kwargs)[0]


def gradients_at(points, layer, total, **kwargs):
    """`gradients_of` at several x of one shape, compiled once."""
    variables = [weight.value for weight in layer.trainable_variables]
    if BACKEND == "jax":
        import jax

        state = [v.value for v in layer.non_trainable_variables]

        def value_of(variables, x):
            outputs, _ = layer.stateless_call(variables, state, x, **kwargs)
            return total(outputs)

        differentiated = jax.jit(jax.grad(value_of, (0, 1)))

    def gradients(x):
        if BACKEND == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                tape.watch(x)
                value = total(layer(x, **kwargs))
            return tape.gradient(value, [*variables, x])
        if BACKEND == "jax":
            by_weights, by_x = differentiated(variables, x)
            return [*by_weights, by_x]
        x = x.clone().requires_grad_()
        layer.zero_grad()
        value = total(layer(x, **kwargs))
        if value.requires_grad:
            value.backward()
        return [*(variable.grad for variable in variables), x.grad]

    answers = []
    for x in map(ops.convert_to_tensor, points):
        *by_weights, by_x = gradients(x)
        assert all(gradient is not None for gradient in by_weights)
        if by_x is None:  # outputs that do not look at the inputs at all
            by_x = ops.zeros_like(x)
        answers.append([numpy(gradient) for gradient in (*by_weights, by_x)])
    return answers


def test_gradients_come_from_real_tokens(entry):
    """Padding has none, and what it holds is in those of nothing else."""
    layer, x = shared(entry), sequences()
    garbage = np.where(np.arange(SEQ) % 2, np.nan, np.inf)[:, np.newaxis]
    expected, (*by_weights, by_x) = gradients_at(
        [
            np.where(MASK[..., np.newaxis], x, padding).astype("float32")
            for padding in (0, garbage)
        ],
        layer,
        lambda outputs: weighted_sum(outputs, MASK),
        **under(layer, MASK),
        **tensors(entry.together, MASK),
    )
    assert len(by_weights) == len(layer.trainable_variables)
    for gradient, same in zip((*by_weights, by_x), expected, strict=True):
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient, same)
    assert all(gradient.any() for gradient in by_weights)
    assert not by_x[~MASK].any()


def test_gradients_are_central_differences(entry):
    """Along one random direction of all weights and the inputs.

    Keras computes in float64 on TensorFlow alone. A step leaves a sixth of its
    square of the third derivative, and the roundings of the outputs, divided
    by the step.
    """
    wide = BACKEND == "tensorflow"
    if entry.kinks and not wide:
        pytest.skip("a step that float32 can see falls over kinks")
    dtype, step = ("float64", 1e-5) if wide else ("float32", 1e-2)
    rng = np.random.default_rng(31)
    layer = built(entry, dtype=dtype)
    x = sequences(dtype=dtype)
    extra = {**tensors(entry.together, MASK), **under(layer, MASK)}
    outputs = numpy(layer(x, **extra))
    tolerance = (
        step**2 / 6 * entry.third_derivative
        + bound(entry, outputs, dtype) * np.sqrt(outputs.size) / step
    )

    def total(outputs):
        # A norm of padding, which is next to nothing, bends beyond measure.
        return weighted_sum(outputs, MASK)

    gradients = gradients_of(layer, x, total, **extra)
    assert gradients[-1].dtype == dtype
    directions = [rng.normal(size=gradient.shape) for gradient in gradients]
    length = np.sqrt(sum(np.sum(each**2) for each in directions))
    starts = [numpy(weight) for weight in layer.trainable_variables]
    ends = []
    for sign in (1, -1):
        *shifts, shift = (sign * step / length * each for each in directions)
        for weight, start, each in zip(
            layer.trainable_variables, starts, shifts, strict=True
        ):
            weight.assign(start + each)
        value = total(layer((x + shift).astype(dtype), **extra))
        ends.append(float(ops.stop_gradient(value)))
    found = sum(map(np.vdot, gradients, directions)) / length
    near(found, (ends[0] - ends[1]) / (2 * step), tolerance)


# ---- Dropout


@pytest.mark.parametrize("entry", ONE_SCHEME)
def test_dropout_drops_in_training_alone(entry):
    if not entry.dropout:
        pytest.skip("the layer has no dropout")
    layer, plain = built(entry, dropout=0.5), built(entry, dropout=0.0)
    assert type(layer).from_config(layer.get_config()).dropout == 0.5
    layer.set_weights(plain.get_weights())
    x = sequences()
    expected = numpy(plain(x, **under(plain, MASK)))
    np.testing.assert_array_equal(
        numpy(plain(x, **under(plain, MASK), training=True)), expected
    )
    for inference in (
        layer(x, **under(layer, MASK)),
        layer(x, **under(layer, MASK), training=False),
    ):
        near(numpy(inference), expected, bound(entry, expected))
    # No seed makes so many draws alike, also where few numbers are not 0.
    draws = np.stack(
        [numpy(layer(x, **under(layer, MASK), training=True)) for _ in range(3)]
    )
    assert np.isfinite(draws).all()
    assert (draws != expected).any(axis=0).mean() > 0.1
    assert (draws != draws[0]).any(axis=0).mean() > 0.1


# ---- Compilers and exports


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "torch", reason="XLA is for TensorFlow and JAX")
def test_compiled_is_eager(everything):
    everything.model.compile(jit_compile=True)
    everything.check(
        lambda inputs: everything.model.predict_on_batch(list(inputs.values())),
        [MASK, *NOTHING],
    )


@pytest.mark.skipif(BACKEND == "torch", reason="XLA is for TensorFlow and JAX")
def test_compiled_training_step_is_the_eager_one():
    entry = LAYERS["encoder-pre-rms-grouped-hooks"]
    weights = []
    for options in ({"jit_compile": True}, {"run_eagerly": True}):
        model = network(built(entry, dropout=0.0), entry.together)
        model.compile(keras.optimizers.SGD(0.1), "mse", **options)
        model.train_on_batch(
            feed(model, entry.together), np.ones((BATCH, SEQ, DIM), "float32")
        )
        weights.append(model.get_weights())
    for compiled, eager in zip(*weights, strict=True):
        near(compiled, eager, bound(entry, eager))


@pytest.mark.slow
@pytest.mark.tensorflow
def test_plain_export_serves_the_same(everything, tmp_path):
    """By Keras itself."""
    import tensorflow as tf

    path = str(tmp_path / "everything")
    everything.model.export(path, format="tf_saved_model", verbose=False)
    served = tf.saved_model.load(path)
    everything.check(
        lambda inputs: served.serve(list(inputs.values())),
        (MASK, *masks_of_lengths(1, 65), *NOTHING),
    )


@pytest.mark.slow
@pytest.mark.tensorflow
def test_runs_in_litert_and_knows_every_size_before(everything, tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    path = tmp_path / "everything.tflite"
    kp.export_litert(everything.model, path, verify=False, verbose=False)
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    everything.check(
        lambda inputs: runner(**inputs), masks_of_lengths(1, 2, 7, 65)
    )
    check_sizes_before_a_run(
        path,
        [
            everything.feed(np.ones(shape, bool))
            for shape in ((1, 5), (3, 17), (1, 2), (2, 200))
        ],
    )


# ---- Grids of several axes: what differs from a grid of one

GRIDS = {
    "axial-2-concat": {
        "num_axes": 2,
        "merge_mode": "concat",
        "encoding_dim": 8,
        "layout": "halves",
        "last_axis_first": True,
    },
    "axial-2-learned": {"num_axes": 2, "grid_shape": (9, 9)},
    "axial-3-learned-alone": {
        "num_axes": 3,
        "grid_shape": (9, 70, 4),
        "merge_mode": None,
    },
}
SIZES = (5, 7, 3)
GRID_DIM = 12  # columns for each of three axes
ON_GRIDS = Entry(kp.AxialPositionalEncoding, ENCODING_ROUNDINGS)


@pytest.fixture(params=GRIDS.values(), ids=GRIDS.keys())
def grid_layer(request):
    layer = kp.AxialPositionalEncoding(**request.param)
    layer.build((*[None] * (layer.num_axes + 1), GRID_DIM))
    return randomised(layer, 7)


def grid_cells(layer):
    rng = np.random.default_rng(37)
    shape = (2, *SIZES[: layer.num_axes], GRID_DIM)
    return rng.normal(size=shape).astype("float32")


def test_grid_of_any_size_and_of_a_file(grid_layer, tmp_path):
    """Symbolic, eager and compiled shapes, and the same numbers in all."""
    shape = (*[None] * grid_layer.num_axes, GRID_DIM)
    check_initial_weights(grid_layer, (None, *shape))
    cells = keras.Input(shape, name="cells")
    keras.Model(cells, grid_layer(cells)).save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    model.compile(jit_compile=BACKEND != "torch")
    for sizes in (SIZES, (1, 1, 1), (9, 2, 1)):
        x = grid_cells(grid_layer)
        some = x[(slice(None), *map(slice, sizes[: grid_layer.num_axes]))]
        outputs = numpy(grid_layer(some))
        assert outputs.shape == grid_layer.compute_output_shape(some.shape)
        symbolic = grid_layer(keras.KerasTensor((None, *some.shape[1:])))
        assert symbolic.shape == (None, *outputs.shape[1:])
        near(model.predict_on_batch(some), outputs, bound(ON_GRIDS, outputs))


def test_grid_mask_passes_on(grid_layer):
    x = grid_cells(grid_layer)
    masked = keras.layers.Masking()(np.where(x[..., :1] > 0, x, 0))
    outputs = grid_layer(masked)
    seen = numpy(MaskSeen()(outputs))
    np.testing.assert_array_equal(seen, x[..., 0] > 0)
    bare = grid_layer(ops.convert_to_tensor(numpy(masked)))
    np.testing.assert_array_equal(numpy(outputs), numpy(bare))
    assert MaskSeen()(bare) is None


# ---- Positions for other layers, which are integers

RANDOMIZED = {
    "spread": {},
    "skip-masked": {"skip_masked": True},
    "skip": {"draw": "skip"},
}


@pytest.fixture(params=RANDOMIZED.values(), ids=RANDOMIZED.keys())
def randomized(request):
    return kp.RandomizedPositions(70, seed=3, **request.param)


def test_randomized_learns_and_is_saved(randomized, tmp_path):
    """Ids -> embeddings at the layer's positions, and a rotary block."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(VOCABULARY, DIM, mask_zero=True)(ids)
    positions = randomized(x)
    x = kp.PositionalEncoding()(x, positions=positions)
    block = kp.SelfAttention(2, attention=kp.RotaryEmbedding())
    model = keras.Model(ids, [block(x, positions=positions), positions])
    given = ids_of(MASK)
    before = randomised(model, 7).get_weights()
    compiled = randomized.skip_masked and BACKEND != "torch"
    model.compile("sgd", ["mse", None], jit_compile=compiled)
    model.train_on_batch(given, np.ones((BATCH, SEQ, DIM), "float32"))
    for one, two in zip(before, model.get_weights(), strict=True):
        assert np.isfinite(two).all()
        assert not np.array_equal(one, two)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for one, two in zip(loaded(given), model(given), strict=True):
        np.testing.assert_array_equal(numpy(one), numpy(two))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
@pytest.mark.parametrize("training", [False, True])
def test_longer_padding_moves_no_token(randomized, training, policy):
    """... and positions are integers, under every policy."""
    config = {**randomized.get_config(), "dtype": policy}
    long_mask = np.pad(MASK, [(0, 0), (0, 4)])
    found = []
    for mask in (MASK, long_mask):
        layer = kp.RandomizedPositions.from_config(config)
        x = np.zeros((*mask.shape, DIM), "float32")
        symbolic = layer(keras.KerasTensor((None, None, DIM)))
        assert (symbolic.shape, symbolic.dtype) == ((None, None), "int32")
        outputs = layer(x, mask=mask, training=training)
        assert keras.backend.standardize_dtype(outputs.dtype) == "int32"
        found.append(numpy(outputs)[:, :SEQ][MASK])
    np.testing.assert_array_equal(*found)
