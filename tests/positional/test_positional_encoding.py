"""The layer against the oracle: every merge mode, dtype and call argument.

What each layer keeps to (masks, files, gradients, compilers) is in
`test_layer_contract.py`, and the figures as printed are in `test_reference.py`.
"""

import math
import re

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference

LAYOUTS = ("interleaved", "halves")
# Policies, with the dtype that each computes in.
POLICIES = {
    "float32": "float32",
    "mixed_float16": "float16",
    "mixed_bfloat16": "bfloat16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float64": "float64",
}


def random_inputs(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numbers(x):
    """What a tensor of any dtype holds, in float64."""
    return ops.convert_to_numpy(ops.cast(x, "float64"))


def encoding_of(length, dim, call=None, **config):
    """The encoding alone, one row of it: (length, dim)."""
    layer = kp.PositionalEncoding(merge_mode=None, **config)
    outputs = layer(np.zeros((1, length, dim), "float32"), **(call or {}))
    return numbers(outputs)[0]


# What makes a good encoding.


def test_a_position_has_one_vector_at_any_length():
    longest = encoding_of(5000, 8)
    for length in (1, 2, 63, 64, 65, 200, 4097):
        assert np.array_equal(encoding_of(length, 8), longest[:length])


# Against the oracle, in every dtype.


def expected_sum(inputs, encoding, scale, dtype, half_ulp, bound):
    """`inputs * scale + encoding`, and how far off it may be.

    Scale and product are rounded, the encoding is within its bound, and the
    sum is rounded.
    """
    unit = half_ulp(np.array(0.5), dtype) * 2  # relative
    scaling = 0.0 if scale == 1 else np.abs(inputs * scale) * 2.01 * unit
    want = inputs * scale + encoding
    before = scaling + bound
    return want, before + half_ulp(np.abs(want) + before, dtype)


@pytest.mark.parametrize(
    ("dim", "layout", "policy"),
    [
        (dim, LAYOUTS[(i + j) % 2], policy)
        for i, dim in enumerate([1, 2, 3, 64, 512])
        for j, policy in enumerate(POLICIES)
    ],
)
def test_merge_modes(dim, layout, policy, near, encoding_bound, half_ulp):
    dtype = POLICIES[policy]
    inputs = random_inputs(2, 70, dim)
    cast = numbers(ops.cast(inputs, dtype))

    def check(merge_mode, width=dim, **config):
        layer = kp.PositionalEncoding(
            merge_mode=merge_mode, layout=layout, dtype=policy, **config
        )
        outputs = layer(inputs)
        assert keras.backend.standardize_dtype(outputs.dtype) == dtype
        assert tuple(outputs.shape) == layer.compute_output_shape(inputs.shape)
        positions = np.arange(70)
        encoding = reference.positional_encoding(positions, width, 1e4, layout)
        bound = encoding_bound(positions, encoding, dtype)
        return numbers(outputs), encoding, bound

    outputs, encoding, bound = check(None)
    near(outputs, np.stack([encoding] * 2), bound)

    outputs, encoding, bound = check("add")
    near(outputs, *expected_sum(cast, encoding, 1, dtype, half_ulp, bound))

    outputs, encoding, bound = check("add", scale_inputs=True)
    scale = math.sqrt(dim)
    near(outputs, *expected_sum(cast, encoding, scale, dtype, half_ulp, bound))

    for width in (dim, 5):
        options = {} if width == dim else {"encoding_dim": width}
        outputs, encoding, bound = check("concat", width, **options)
        assert outputs.shape == (2, 70, dim + width)
        assert np.array_equal(outputs[..., :dim], cast)
        near(outputs[..., dim:], np.stack([encoding] * 2), bound)


def test_concat_scales_the_inputs_alone(near, encoding_bound):
    inputs = random_inputs(2, 5, 16)
    layer = kp.PositionalEncoding(merge_mode="concat", scale_inputs=True)
    outputs = numbers(layer(inputs))
    near(outputs[..., :16], 4.0 * inputs)  # a power of two, exact
    encoding = reference.positional_encoding(5, 16)
    bound = encoding_bound(np.arange(5), encoding)
    near(outputs[..., 16:], np.stack([encoding] * 2), bound)


@settings(max_examples=30)
@given(
    length=st.integers(1, 140),
    dim=st.integers(1, 20),
    max_wavelength=st.floats(1, 1e7),
    layout=st.sampled_from(LAYOUTS),
    start_index=st.integers(-(2**24), 2**24 - 140),
)
def test_any_configuration(
    length, dim, max_wavelength, layout, start_index, near, encoding_bound
):
    rows = encoding_of(
        length,
        dim,
        call={"start_index": start_index},
        max_wavelength=max_wavelength,
        layout=layout,
    )
    positions = start_index + np.arange(length)
    want = reference.positional_encoding(positions, dim, max_wavelength, layout)
    near(rows, want, encoding_bound(positions, want))


def test_a_layer_takes_any_width_and_length(near, encoding_bound):
    layer = kp.PositionalEncoding(merge_mode=None)
    for length, dim in ((3, 4), (3, 6), (100, 4), (0, 4)):
        outputs = numbers(layer(random_inputs(2, length, dim)))
        want = reference.positional_encoding(length, dim)
        bound = encoding_bound(np.arange(length), want)
        near(outputs, np.stack([want] * 2), bound)
    assert tuple(layer(random_inputs(0, 3, 4)).shape) == (0, 3, 4)


# Where the tokens stand.

BATCH, SEQ, DIM = 2, 6, 5
ROWS = np.arange(SEQ)
IDS = np.array([[1, 1, 1, 2, 2, 0], [4, 3, 3, 3, 4, 4]])
IN_SEGMENT = np.array([[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 0, 1]])
MASK = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 0, 1, 1, 0]], "bool")
AMONG_TOKENS = np.array([[0, 0, 0, 1, 2, 3], [0, 1, 1, 2, 3, 3]])
REALS = [0.0, 0.5, 1.25, -3.75, 1000.5, 123456.789]

# (constructor arguments, call arguments, positions they stand for)
STANDINGS = {
    "default": ({}, {}, ROWS),
    "start": ({}, {"start_index": 7}, 7 + ROWS),
    "start-negative": ({}, {"start_index": -7}, ROWS - 7),
    "start-zero-array": ({}, {"start_index": np.array(0)}, ROWS),
    "start-np.int64": ({}, {"start_index": np.int64(5000)}, 5000 + ROWS),
    "start-np.uint8": ({}, {"start_index": np.uint8(255)}, 255 + ROWS),
    "start-list": ({}, {"start_index": [3, -4]}, [ROWS + 3, ROWS - 4]),
    "start-batch": (
        {},
        {"start_index": np.array([2**20, -70])},
        [ROWS + 2**20, ROWS - 70],
    ),
    "start-one-for-all": ({}, {"start_index": np.array([9])}, ROWS + 9),
    "positions-list": (
        {},
        {"positions": [5, 3, 1, 0, -2, 9]},
        [5, 3, 1, 0, -2, 9],
    ),
    "positions-reals": (
        {},
        {"positions": np.array(REALS, "float32")},
        np.array(REALS, "float32"),
    ),
    "positions-float64": ({}, {"positions": np.array(REALS)}, REALS),
    "positions-list-of-reals": ({}, {"positions": REALS}, REALS),
    "positions-int64": (
        {},
        {"positions": ROWS.astype("int64") * 2**20},
        ROWS * 2**20,
    ),
    "positions-one-row": (
        {},
        {"positions": (ROWS**2)[np.newaxis]},
        ROWS**2,
    ),
    "positions-batch": (
        {},
        {"positions": np.stack([ROWS, 10 * ROWS + 0.25])},
        [ROWS, 10 * ROWS + 0.25],
    ),
    "positions-of-nested-lists": (
        {},
        {"positions": [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]]},
        [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]],
    ),
    "segments": ({}, {"segment_ids": IDS}, IN_SEGMENT),
    "segments-list": ({}, {"segment_ids": IDS.tolist()}, IN_SEGMENT),
    "segments-one-row": ({}, {"segment_ids": IDS[:1]}, IN_SEGMENT[0]),
    "segments-start": (
        {},
        {"segment_ids": IDS, "start_index": 100},
        IN_SEGMENT + 100,
    ),
    "segments-start-batch": (
        {},
        {"segment_ids": IDS, "start_index": np.array([100, -3])},
        IN_SEGMENT + np.array([[100], [-3]]),
    ),
    "skip": ({"skip_masked": True}, {"mask": MASK}, AMONG_TOKENS),
    "skip-list": (
        {"skip_masked": True},
        {"mask": MASK.tolist()},
        AMONG_TOKENS,
    ),
    "skip-start": (
        {"skip_masked": True},
        {"mask": MASK, "start_index": np.int32(50)},
        AMONG_TOKENS + 50,
    ),
    "skip-start-batch": (
        {"skip_masked": True},
        {"mask": MASK, "start_index": np.array([50, 60])},
        AMONG_TOKENS + np.array([[50], [60]]),
    ),
    "skip-without-a-mask": ({"skip_masked": True}, {}, ROWS),
    "mask-alone-moves-nothing": ({}, {"mask": MASK}, ROWS),
}


@pytest.mark.parametrize("standing", STANDINGS)
def test_standings(standing, near, encoding_bound):
    config, call, positions = STANDINGS[standing]
    positions = np.broadcast_to(np.asarray(positions, float), (BATCH, SEQ))
    want = reference.positional_encoding(positions, DIM)
    for dtype in ("float32", "bfloat16"):
        bound = encoding_bound(positions, want, dtype)
        layer = kp.PositionalEncoding(merge_mode=None, dtype=dtype, **config)
        near(layer(random_inputs(BATCH, SEQ, DIM), **call), want, bound)


def arrays_of(call):
    """Those call arguments that become tensors, as arrays."""
    arrays = {name: np.asarray(value) for name, value in call.items()}
    for name, array in arrays.items():
        if array.dtype == "int64":
            arrays[name] = array.astype("int32")
    return arrays


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("standing", "jit_compile"),
    [
        ("default", False),
        ("default", True),
        ("start-batch", True),
        ("positions-reals", False),
        ("segments-start-batch", True),
        ("skip-start-batch", False),
    ],
)
def test_graphs_of_unknown_shapes(standing, jit_compile, near, encoding_bound):
    import tensorflow as tf

    config, call, positions = STANDINGS[standing]
    call = arrays_of(call)
    layer = kp.PositionalEncoding(merge_mode=None, **config)

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec((None, None, DIM)),
            {
                name: tf.TensorSpec([None] * array.ndim, array.dtype)
                for name, array in call.items()
            },
        ],
    )
    def graph(inputs, call):
        return layer(inputs, **call)

    positions = np.broadcast_to(np.asarray(positions, float), (BATCH, SEQ))
    want = reference.positional_encoding(positions, DIM)
    bound = encoding_bound(positions, want)
    near(graph(random_inputs(BATCH, SEQ, DIM), call), want, bound)
    if standing == "default":
        for length in (1, 64, 130):
            want = reference.positional_encoding(length, DIM)
            bound = encoding_bound(np.arange(length), want)
            near(graph(random_inputs(1, length, DIM), {})[0], want, bound)


@pytest.mark.parametrize("policy", ["float16", "mixed_bfloat16", "bfloat16"])
def test_positions_are_not_autocast(policy, near, encoding_bound):
    # 1000 and 1001 are one number in bfloat16, 5000 and 5001 in float16.
    positions = np.array([1000, 1001, 5000, 5001, 1000.5], "float32")
    layer = kp.PositionalEncoding(merge_mode=None, dtype=policy)
    outputs = numbers(layer(random_inputs(1, 5, 8), positions=positions)[0])
    want = reference.positional_encoding(positions, 8)
    near(outputs, want, encoding_bound(positions, want, POLICIES[policy]))
    assert not np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[2], outputs[3])


BEYOND = {
    "start": {"start_index": 2**24 + 1},
    "start-2**40": {"start_index": 2**40},
    "start-np.int64": {"start_index": np.int64(-(2**32))},
    "start-batch": {"start_index": np.array([2**32, 2**32 + 5])},
    "start-segments": {"start_index": 2**32, "segment_ids": IDS},
    "start-batch-segments": {
        "start_index": np.array([2**32, -(2**32)]),
        "segment_ids": IDS,
    },
    "start-segments-int32": {"start_index": 2**31 - 2, "segment_ids": IDS},
    "int64": {"positions": np.full(SEQ, 2**32)},
    "nan": {"positions": np.full(SEQ, np.nan)},
    "-inf": {"positions": np.full((BATCH, SEQ), -np.inf, "float32")},
    "float32": {"positions": np.full(SEQ, 2.0**24 + 2, "float32")},
}


@pytest.mark.parametrize("call", BEYOND.values(), ids=BEYOND)
def test_beyond_the_limit_is_nan(call):
    layer = kp.PositionalEncoding(merge_mode=None)
    outputs = layer(random_inputs(BATCH, SEQ, DIM), **call)
    assert np.all(np.isnan(numbers(outputs)))


# Masks.


def embed(dim=DIM):
    return keras.layers.Embedding(10, dim, mask_zero=True)


@pytest.mark.parametrize("padding", [1, 3, 70])
def test_left_padding_changes_nothing(padding):
    embedding = embed()
    layer = kp.PositionalEncoding(skip_masked=True)
    tokens = np.array([[3, 4, 5, 6, 7]])
    padded = np.pad(tokens, [(0, 0), (padding, 0)])
    got = numbers(layer(embedding(padded)))
    want = numbers(layer(embedding(tokens)))
    assert np.array_equal(got[:, padding:], want)


# Keras.


def test_dropout_is_active_in_training_alone(near, half_ulp):
    inputs = random_inputs(8, 50, 16)
    plain = numbers(kp.PositionalEncoding()(inputs))
    layer = kp.PositionalEncoding(dropout=0.1)
    for training in (False, None):
        assert np.array_equal(numbers(layer(inputs, training=training)), plain)
    outputs = numbers(layer(inputs, training=True))
    dropped = outputs == 0
    # 6 400 entries: 0.1 within five standard deviations.
    count = outputs.size
    assert abs(np.mean(dropped) - 0.1) < 5 * math.sqrt(0.1 * 0.9 / count)
    # The rest is scaled up: the quotient and the product are rounded.
    want = np.where(dropped, 0.0, plain / 0.9)
    near(outputs, want, np.abs(want) * 4 * 2.0**-24)


def test_dropout_keeps_the_dtype():
    layer = kp.PositionalEncoding(dropout=0.1, dtype="mixed_bfloat16")
    outputs = layer(random_inputs(1, 2, 3), training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"


@pytest.mark.parametrize("merge_mode", ["concat", None])
def test_dropout_is_behind_the_merge(merge_mode):
    layer = kp.PositionalEncoding(dropout=0.5, merge_mode=merge_mode)
    outputs = numbers(layer(random_inputs(8, 50, 16), training=True))
    # Cosines of position 0 are 1, so what is 0 there was dropped.
    dropped = outputs[:, 0, -15::2] == 0
    assert 0 < np.mean(dropped) < 1
    assert np.all(outputs[:, 0, -15::2][~dropped] == 2)


# Bad input: the argument, what it must be, and what came.


@pytest.mark.parametrize("merge_mode", ["add", None])
def test_encoding_dim_needs_concat(merge_mode):
    message = (
        "`encoding_dim` needs merge_mode='concat'. "
        f"Received: encoding_dim=4, merge_mode={merge_mode!r}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        kp.PositionalEncoding(encoding_dim=4, merge_mode=merge_mode)


@pytest.mark.parametrize("shape", [(6, 5), (2, 6, 5, 1), (2, 6, 0)])
def test_inputs_of_bad_shape(shape):
    new, built = (kp.PositionalEncoding(name="where") for _ in range(2))
    built.build((None, None, 5))
    message = (
        r"PositionalEncoding 'where' expects inputs of shape "
        r"\(batch, seq, dim\), with dim known and above 0\. "
        rf"Received: inputs of shape \({', '.join(map(str, shape))}\)"
    )
    for layer in (new, built):
        for inputs in (np.zeros(shape, "f4"), keras.KerasTensor(shape)):
            with pytest.raises(ValueError, match=message):
                layer(inputs)


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, None), (2, 6, 0), [1] * 4])
def test_built_for_a_bad_shape(shape):
    with pytest.raises(ValueError, match=r"expects inputs of shape \(batch, "):
        kp.PositionalEncoding().build(shape)


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_inputs_of_bad_dtype(dtype):
    shape = (2, 6, 5)
    message = (
        "PositionalEncoding 'where' expects inputs of a float dtype, such as "
        "the output of an Embedding layer. Received: inputs of dtype " + dtype
    )
    for inputs in (np.zeros(shape, dtype), keras.KerasTensor(shape, dtype)):
        with pytest.raises(ValueError, match=message):
            kp.PositionalEncoding(name="where")(inputs)


SIZES = r"with batch=2, seq=6\. Received: "
ROW = r"must have shape \(batch, seq\), " + SIZES
POSITIONS = r"`positions` must have shape \(seq,\) or \(batch, seq\), " + SIZES
START = r"`start_index` must have shape \(\) or \(batch,\), " + SIZES
APART = (
    "`positions` gives the position of every token, and cannot be used with "
)
INTEGERS = "must be of an integer dtype. Received: "

BAD_CALLS = [
    # (constructor arguments, call arguments, message); inputs are (2, 6, 5)
    *(
        (
            {},
            {"positions": np.zeros(shape)},
            POSITIONS + "positions of shape " + re.escape(str(shape)),
        )
        for shape in ((5,), (7,), (), (2, 5), (3, 6), (6, 1), (2, 6, 5))
    ),
    *(
        ({}, {"positions": ROWS, "start_index": start}, APART + "start_index")
        for start in (1, np.array(1), np.array([1, 2]))
    ),
    ({"skip_masked": True}, {"positions": ROWS}, APART + "skip_masked=True"),
    (
        {"skip_masked": True},
        {"segment_ids": IDS},
        "`segment_ids` cannot be used with skip_masked=True",
    ),
    ({}, {"segment_ids": IDS > 1}, f"`segment_ids` {INTEGERS}.* bool"),
    *(
        ({}, {"segment_ids": ids}, f"`segment_ids` {ROW}")
        for ids in (ROWS, IDS[:, :5], IDS[[0, 0, 0]])
    ),
    *(
        ({}, {"start_index": start}, f"`start_index` {INTEGERS}")
        for start in (1.5, True, np.array([1, 2], "float32"))
    ),
    *(
        ({}, {"start_index": np.zeros(shape, int)}, START)
        for shape in ((3,), (2, 1))
    ),
    *(
        (config, {"mask": mask}, f"`mask` {ROW}")
        for config in ({}, {"skip_masked": True})
        for mask in (MASK[:, :5], MASK[0], MASK[..., np.newaxis])
    ),
]


@pytest.mark.parametrize(("config", "call", "message"), BAD_CALLS)
def test_bad_calls(config, call, message):
    inputs = random_inputs(2, 6, 5)
    symbolic = {
        name: keras.KerasTensor(value.shape, value.dtype.name)
        if isinstance(value, np.ndarray)
        else value
        for name, value in call.items()
    }
    for x, arguments in (
        (inputs, call),
        (keras.KerasTensor(inputs.shape), symbolic),
    ):
        with pytest.raises(ValueError, match=message):
            kp.PositionalEncoding(**config)(x, **arguments)


@pytest.mark.parametrize(
    "call",
    [
        {"positions": (None, None)},
        {"positions": (None,)},
        {"positions": (1, 6)},
        {"segment_ids": (None, None)},
        {"start_index": (None,)},
        {"start_index": ()},
        {"mask": (None, None)},
    ],
    ids=str,
)
@pytest.mark.parametrize("batch_shape", [(2, 6, 5), (None, None, 5)])
def test_unknown_sizes_are_taken_on_trust(call, batch_shape):
    dtypes = {"positions": "float32", "mask": "bool"}
    call = {
        name: keras.KerasTensor(shape, dtypes.get(name, "int32"))
        for name, shape in call.items()
    }
    outputs = kp.PositionalEncoding()(keras.KerasTensor(batch_shape), **call)
    assert outputs.shape == batch_shape


@pytest.mark.tensorflow
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_nothing_of_a_length_known_only_to_a_graph(shape):
    import tensorflow as tf

    layer = kp.PositionalEncoding(dropout=0.0)
    run = tf.function(
        layer, input_signature=[tf.TensorSpec((None, None, 8), "float32")]
    )
    assert tuple(run(tf.zeros((*shape, 8))).shape) == (*shape, 8)
