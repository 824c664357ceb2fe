"""The layer: figures as printed, every call argument, masks, and Keras."""

import math

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


# Figures as printed are good to half a unit of their last digit.

HALVES = """
 0      0      0      1      1      1
 0.841  0.046  0.002  0.540  0.999  1
 0.909  0.093  0.004 -0.416  0.996  1
 0.141  0.139  0.006 -0.990  0.990  1
-0.757  0.185  0.009 -0.654  0.983  1
"""
BASE_1000 = """
 0            1            0            1
 0.84147098   0.54030231   0.03161751   0.99950004
 0.90929743  -0.41614684   0.0632034    0.99800067
 0.14112001  -0.9899925    0.09472609   0.99550337
-0.7568025   -0.65364362   0.12615407   0.99201066
-0.95892427   0.28366219   0.1574559    0.98752602
-0.2794155    0.96017029   0.18860029   0.98205394
 0.6569866    0.75390225   0.21955609   0.97559988
 0.98935825  -0.14550003   0.25029236   0.9681703
 0.41211849  -0.91113026   0.28077835   0.95977264
"""
EMBEDDED = """
 0.28  0.08  0.51 -1.07
-1.27 -0.07  0.77 -0.08
-1.46 -1.10  0.90 -0.00
-0.10 -0.09  0.53 -1.52
 0.83 -0.43  0.28 -0.14
 0.03 -1.25  1.08  0.62
"""
EMBEDDED_SUM = """
 0.28  1.08  0.51 -0.07
-0.43  0.47  0.80  0.92
-0.55 -1.51  0.97  1.00
 0.04 -1.08  0.63 -0.53
 0.08 -1.09  0.40  0.85
-0.93 -0.96  1.23  1.60
"""


def table(text):
    return np.array([row.split() for row in text.strip().split("\n")], float)


def test_halves_as_printed(near):
    rows = encoding_of(5, 6, layout="halves", dtype="float64")
    near(rows, table(HALVES), 0.5e-3)


def test_base_1000_as_printed(near):
    rows = encoding_of(10, 4, max_wavelength=1000, dtype="float64")
    near(rows, table(BASE_1000), 0.5e-8)


def test_sum_as_printed(near):
    layer = kp.PositionalEncoding(max_wavelength=1000)
    total = layer(table(EMBEDDED)[np.newaxis])
    # Both sides are printed, to two digits.
    near(total[0], table(EMBEDDED_SUM), 2 * 0.5e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_neighbours_as_printed(layout, near):
    rows = encoding_of(5, 6, layout=layout)
    distance = np.linalg.norm(rows[1:] - rows[:-1], axis=-1)
    near(distance, np.full(4, 0.9600), 0.5e-4)
    near(np.linalg.norm(rows, axis=-1), np.full(5, 1.7321), 0.5e-4)
    near(np.sum(rows[1:] * rows[:-1], axis=-1), np.full(4, 2.5392), 0.5e-4)


def test_circle_and_cylinder(near):
    bound = 3.42 * 2.0**-24  # of each entry; so of the radius, to a factor
    circle = encoding_of(32, 2)
    near(np.hypot(*circle.T), np.ones(32), math.sqrt(2) * bound)
    turns = np.arctan2(*circle.T)
    want = np.angle(np.exp(1j * np.arange(32)))
    near(turns, want, 2 * bound)
    cylinder = encoding_of(500, 3)
    near(np.hypot(*cylinder[:, :2].T), np.ones(500), math.sqrt(2) * bound)
    assert np.all(np.diff(cylinder[:, 2]) > 0)


# What makes a good encoding.


def test_a_position_has_one_vector_at_any_length():
    longest = encoding_of(5000, 8)
    for length in (1, 2, 63, 64, 65, 200, 4097):
        assert np.array_equal(encoding_of(length, 8), longest[:length])


def test_equal_steps_are_equally_far_apart(near, encoding_bound):
    rows = encoding_of(5000, 16)
    bound = np.max(encoding_bound(np.arange(5000), rows))
    for step in (1, 2, 7, 100):
        distance = np.linalg.norm(rows[step:] - rows[:-step], axis=-1)
        # A difference of two entries, in each of 16 columns.
        tolerance = 2 * math.sqrt(16) * bound
        near(distance, np.full(5000 - step, distance[0]), 2 * tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shift_is_a_linear_map(layout, near, encoding_bound):
    rows = encoding_of(300, 8, layout=layout)
    bound = np.max(encoding_bound(np.arange(300), rows))
    for k in (1, 5, 64, 250):
        shift = reference.shift_matrix(k, 8, layout=layout)
        # A row of M_k holds one sine and one cosine: at most sqrt(2) in all.
        near(rows[:-k] @ shift.T, rows[k:], (1 + math.sqrt(2)) * bound)


def test_nothing_is_learned():
    layer = kp.PositionalEncoding(dropout=0.1)
    layer(random_inputs(2, 3, 4))
    assert layer.weights == []
    assert layer.count_params() == 0


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
        pytest.param(
            dim,
            LAYOUTS[(i + j + k) % 2],
            policy,
            marks=pytest.mark.slow if k else (),
        )
        for i, dim in enumerate([1, 2, 3, 64, 512])
        for j, policy in enumerate(POLICIES)
        for k in range(2)
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("standing", STANDINGS)
def test_standings(standing, dtype, near, encoding_bound):
    config, call, positions = STANDINGS[standing]
    positions = np.broadcast_to(np.asarray(positions, float), (BATCH, SEQ))
    want = reference.positional_encoding(positions, DIM)
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
        ("start", False),
        ("start-batch", True),
        ("positions-reals", False),
        ("positions-batch", True),
        ("segments-start", False),
        ("segments-start-batch", True),
        ("skip", False),
        ("skip-start-batch", True),
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


def test_positions_are_not_autocast_in_a_model(near, encoding_bound):
    positions = np.array([[1000, 1001, 1000.5]], "float32")
    inputs = keras.Input((None, 8))
    places = keras.Input((None,))
    layer = kp.PositionalEncoding(merge_mode=None, dtype="mixed_bfloat16")
    model = keras.Model([inputs, places], layer(inputs, positions=places))
    outputs = model.predict([random_inputs(1, 3, 8), positions], verbose=0)
    want = reference.positional_encoding(positions, 8)
    near(outputs, want, encoding_bound(positions, want, "bfloat16"))


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

TOKENS = np.array([[0, 0, 3, 4, 5, 6], [7, 8, 0, 9, 1, 0]])  # as MASK says


class TellMask(keras.layers.Layer):
    """Answers with the mask that reaches it, -1 where none does."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return -ops.ones_like(inputs[..., 0])
        return ops.cast(mask, inputs.dtype)

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(inputs.shape[:2], inputs.dtype)


def embed(dim=DIM):
    return keras.layers.Embedding(10, dim, mask_zero=True)


BESIDE = {
    "nothing": {},
    "positions": {"positions": np.arange(SEQ, dtype="int32")},
    "start_index": {"start_index": np.array([1, 2], "int32")},
    "segment_ids": {"segment_ids": IDS.astype("int32")},
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("merge_mode", ["add", "concat", None])
def test_the_mask_passes_through(merge_mode, beside):
    layer = kp.PositionalEncoding(merge_mode=merge_mode)
    outputs = layer(embed()(TOKENS), **BESIDE[beside])
    assert np.array_equal(numbers(TellMask()(outputs)), MASK)


@pytest.mark.parametrize("beside", BESIDE)
def test_the_mask_passes_through_a_functional_model(beside):
    tokens = keras.Input((SEQ,), dtype="int32", batch_size=BATCH)
    arguments = {
        name: keras.Input(batch_shape=array.shape, dtype=array.dtype.name)
        for name, array in BESIDE[beside].items()
    }
    outputs = kp.PositionalEncoding()(embed()(tokens), **arguments)
    model = keras.Model([tokens, *arguments.values()], TellMask()(outputs))
    told = model([TOKENS.astype("int32"), *BESIDE[beside].values()])
    assert np.array_equal(numbers(told), MASK)


def test_the_mask_passes_through_a_sequential_model():
    model = keras.Sequential([embed(), kp.PositionalEncoding(), TellMask()])
    assert np.array_equal(model.predict(TOKENS, verbose=0), MASK)


def test_no_mask_from_nowhere():
    outputs = kp.PositionalEncoding()(random_inputs(BATCH, SEQ, DIM))
    assert np.all(numbers(TellMask()(outputs)) == -1)


def test_an_explicit_mask_wins(near):
    layer = kp.PositionalEncoding(skip_masked=True)
    embedded = embed()(TOKENS)
    other = ~MASK
    got = layer(embedded, mask=other)
    want = layer(ops.convert_to_tensor(numbers(embedded)), mask=other)
    near(got, numbers(want))
    assert np.any(numbers(got) != numbers(layer(embedded)))
    assert np.array_equal(numbers(TellMask()(got)), other)


@pytest.mark.parametrize("beside", ["nothing", "start_index"])
def test_a_carried_mask_is_skipped(beside, near, encoding_bound):
    call = BESIDE[beside]
    start = np.reshape(call.get("start_index", 0), (-1, 1))
    layer = kp.PositionalEncoding(merge_mode=None, skip_masked=True)
    want = reference.positional_encoding(AMONG_TOKENS + start, DIM)
    bound = encoding_bound(AMONG_TOKENS + start, want)
    near(layer(embed()(TOKENS), **call), want, bound)

    tokens = keras.Input((None,), dtype="int32")
    arguments = {name: keras.Input((), dtype="int32") for name in call}
    outputs = layer(embed()(tokens), **arguments)
    model = keras.Model([tokens, *arguments.values()], outputs)
    data = [TOKENS.astype("int32"), *call.values()]
    near(model.predict(data if call else data[0], verbose=0), want, bound)


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


def test_first_in_a_sequential_model_of_tokens(near, encoding_bound, half_ulp):
    embedding = embed()
    model = keras.Sequential([embedding, kp.PositionalEncoding()])
    outputs = numbers(model(TOKENS))
    encoding = reference.positional_encoding(SEQ, DIM)
    bound = encoding_bound(ROWS, encoding)
    inputs = numbers(embedding(TOKENS))
    near(
        outputs,
        *expected_sum(inputs, encoding, 1, "float32", half_ulp, bound),
    )
    # Tokens still count: the encoding does not replace them.
    assert not np.array_equal(outputs[0], outputs[1])


CONFIGS = [
    {},
    {
        "max_wavelength": 500,
        "layout": "halves",
        "scale_inputs": True,
        "skip_masked": True,
        "dropout": 0.25,
        "dtype": "mixed_bfloat16",
        "name": "where",
        "trainable": False,
    },
    {"merge_mode": "concat", "encoding_dim": 3},
    {"merge_mode": "concat"},
    {"merge_mode": None},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_config_round_trip(config):
    layer = kp.PositionalEncoding(**config)
    written = layer.get_config()
    for name, value in config.items():
        if name == "dtype":
            assert layer.dtype_policy.name == value
        else:
            assert written[name] == value
    again = kp.PositionalEncoding.from_config(written)
    assert again.get_config() == written
    inputs = random_inputs(2, 3, 4)
    assert np.array_equal(numbers(again(inputs)), numbers(layer(inputs)))


def test_registered_name():
    name = keras.saving.get_registered_name(kp.PositionalEncoding)
    assert name == "keras_posenc>PositionalEncoding"


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_saved_and_loaded(config, tmp_path):
    tokens = keras.Input((None,), dtype="int32")
    outputs = kp.PositionalEncoding(**config)(embed(4)(tokens))
    model = keras.Model(tokens, outputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[-1].get_config() == model.layers[-1].get_config()
    data = TOKENS.astype("int32")
    assert np.array_equal(numbers(loaded(data)), numbers(model(data)))


def test_saved_and_loaded_with_positions(tmp_path):
    inputs, places = keras.Input((None, 4)), keras.Input((None,))
    outputs = kp.PositionalEncoding()(inputs, positions=places)
    model = keras.Model([inputs, places], outputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    data = [random_inputs(2, 3, 4), random_inputs(2, 3)]
    assert np.array_equal(numbers(loaded(data)), numbers(model(data)))


@pytest.mark.parametrize(
    "batch_shape", [(2, 6, 4), (None, 6, 4), (2, None, 4), (None, None, 4)]
)
@pytest.mark.parametrize(
    ("config", "dim"),
    [
        ({}, 4),
        ({"merge_mode": None}, 4),
        ({"merge_mode": "concat"}, 8),
        ({"merge_mode": "concat", "encoding_dim": 3}, 7),
    ],
    ids=str,
)
def test_shapes(config, dim, batch_shape):
    layer = kp.PositionalEncoding(**config)
    inputs = keras.Input(batch_shape=batch_shape)
    outputs = layer(inputs)
    assert outputs.shape == (*batch_shape[:2], dim)
    assert layer.compute_output_shape(batch_shape) == outputs.shape
    assert layer.compute_output_shape(list(batch_shape)) == outputs.shape
    assert outputs.dtype == "float32"
    model = keras.Model(inputs, outputs)
    data = random_inputs(2, 6, 4)
    assert np.array_equal(numbers(model(data)), numbers(layer(data)))


def test_built_from_a_list():
    layer = kp.PositionalEncoding(dropout=0.5)
    layer.build([None, None, 4])
    assert layer.built


@pytest.mark.parametrize("policy", POLICIES)
def test_symbolic_dtype(policy):
    outputs = kp.PositionalEncoding(dtype=policy)(keras.Input((None, 4)))
    assert outputs.dtype == POLICIES[policy]


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_compiled_model_answers_and_learns(jit_compile, near):
    model = keras.Sequential(
        [
            embed(),
            kp.PositionalEncoding(),
            kp.MaskedAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse", jit_compile=jit_compile)
    eager = numbers(model(TOKENS))
    # Averages of 4 tokens of size 1 to 2, times 5 kernel entries below 1.
    near(model.predict(TOKENS, verbose=0), eager, 100 * 2.0**-24)
    before = numbers(model.layers[0].embeddings)
    model.fit(TOKENS, np.ones((2, 1)), verbose=0)
    after = numbers(model.layers[0].embeddings)
    assert np.all(np.any(before != after, axis=-1)[np.unique(TOKENS[MASK])])


@pytest.mark.tensorflow
@pytest.mark.parametrize("scale_inputs", [False, True])
@pytest.mark.parametrize("merge_mode", ["add", "concat", None])
def test_gradient(merge_mode, scale_inputs, near):
    import tensorflow as tf

    layer = kp.PositionalEncoding(
        merge_mode=merge_mode, scale_inputs=scale_inputs
    )
    inputs = tf.constant(random_inputs(2, 3, 6))
    weights = random_inputs(2, 3, 12 if merge_mode == "concat" else 6, seed=1)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = tf.reduce_sum(layer(inputs) * weights)
    gradient = tape.gradient(loss, inputs)
    if merge_mode is None:
        assert gradient is None
        return
    scale = math.sqrt(6) if scale_inputs else 1.0
    want = weights[..., :6] * scale
    near(gradient, want, np.abs(want) * 2.01 * 2.0**-24)


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


@pytest.mark.parametrize("policy", POLICIES)
def test_dropout_keeps_the_dtype(policy):
    layer = kp.PositionalEncoding(dropout=0.1, dtype=policy)
    outputs = layer(random_inputs(1, 2, 3), training=True)
    dtype = keras.backend.standardize_dtype(outputs.dtype)
    assert dtype == POLICIES[policy]


@pytest.mark.parametrize("merge_mode", ["concat", None])
def test_dropout_is_behind_the_merge(merge_mode):
    layer = kp.PositionalEncoding(dropout=0.5, merge_mode=merge_mode)
    outputs = numbers(layer(random_inputs(8, 50, 16), training=True))
    # Cosines of position 0 are 1, so what is 0 there was dropped.
    dropped = outputs[:, 0, -15::2] == 0
    assert 0 < np.mean(dropped) < 1
    assert np.all(outputs[:, 0, -15::2][~dropped] == 2)


# Bad input: the argument, what it must be, and what came.

BAD_CONSTRUCTIONS = [
    (
        {"layout": "halfs"},
        r"`layout` must be 'interleaved' or 'halves'\. "
        r"Received: layout='halfs'",
    ),
    ({"layout": None}, r"`layout` must be .* Received: layout=None"),
    ({"layout": ["halves"]}, r"`layout` must .* layout=\['halves'\]"),
    (
        {"merge_mode": "sum"},
        r"`merge_mode` must be 'add', 'concat' or None\. "
        r"Received: merge_mode='sum'",
    ),
    (
        {"max_wavelength": 0.99},
        r"`max_wavelength` must be a finite number of at least 1\. "
        r"Received: max_wavelength=0\.99",
    ),
    ({"max_wavelength": 0}, r"`max_wavelength` must .* max_wavelength=0"),
    ({"max_wavelength": -1e4}, r"`max_wavelength` must .*=-10000\.0"),
    ({"max_wavelength": math.inf}, r"`max_wavelength` must .*=inf"),
    ({"max_wavelength": math.nan}, r"`max_wavelength` must .*=nan"),
    ({"max_wavelength": "10000"}, r"`max_wavelength` must .*='10000'"),
    ({"max_wavelength": None}, r"`max_wavelength` must .*=None"),
    ({"max_wavelength": True}, r"`max_wavelength` must .*=True"),
    (
        {"encoding_dim": 4},
        r"`encoding_dim` needs merge_mode='concat'\. "
        r"Received: encoding_dim=4, merge_mode='add'",
    ),
    (
        {"encoding_dim": 4, "merge_mode": None},
        r"`encoding_dim` needs .* encoding_dim=4, merge_mode=None",
    ),
    *(
        (
            {"merge_mode": "concat", "encoding_dim": value},
            r"`encoding_dim` must be a positive integer\. "
            rf"Received: encoding_dim={value}$",
        )
        for value in (0, -3, 4.5, True, math.nan)
    ),
    *(
        (
            {"dropout": value},
            r"`dropout` must be a number in \[0, 1\)\. "
            rf"Received: dropout={value!r}$",
        )
        for value in (1, 1.0, 1.5, -0.1, "0.1", None, math.nan, True)
    ),
    *(
        (
            {name: value},
            rf"`{name}` must be True or False\. Received: {name}={value!r}$",
        )
        for name in ("scale_inputs", "skip_masked")
        for value in (1, 0, None, "True")
    ),
]


@pytest.mark.parametrize(("config", "message"), BAD_CONSTRUCTIONS)
def test_bad_constructions(config, message):
    with pytest.raises(ValueError, match=message):
        kp.PositionalEncoding(**config)


def test_configuration_by_keyword_alone():
    with pytest.raises(TypeError, match="without a name"):
        kp.PositionalEncoding(10000)


BAD_SHAPES = {
    "rank-2": (6, 5),
    "rank-4": (2, 6, 5, 1),
    "width-0": (2, 6, 0),
}


@pytest.mark.parametrize("shape", BAD_SHAPES.values(), ids=BAD_SHAPES)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("built", [False, True])
def test_inputs_of_bad_shape(shape, symbolic, built):
    layer = kp.PositionalEncoding(name="where")
    if built:
        layer.build((None, None, 5))
    inputs = keras.KerasTensor(shape) if symbolic else np.zeros(shape, "f4")
    message = (
        r"PositionalEncoding 'where' expects inputs of shape "
        r"\(batch, seq, dim\), with dim known and above 0\. "
        rf"Received: inputs of shape \({', '.join(map(str, shape))}\)"
    )
    with pytest.raises(ValueError, match=message):
        layer(inputs)


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, None), (2, 6, 0), [1] * 4])
def test_built_for_a_bad_shape(shape):
    with pytest.raises(ValueError, match=r"expects inputs of shape \(batch, "):
        kp.PositionalEncoding().build(shape)


def test_inputs_of_unknown_width():
    message = r"with dim known and above 0\. Received: .*\(None, None, None\)"
    with pytest.raises(ValueError, match=message):
        kp.PositionalEncoding()(keras.Input((None, None)))


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_inputs_of_bad_dtype(dtype, symbolic):
    inputs = np.zeros((2, 6, 5), dtype)
    if symbolic:
        inputs = keras.KerasTensor(inputs.shape, dtype)
    message = (
        "PositionalEncoding 'where' expects inputs of a float dtype, such as "
        "the output of an Embedding layer. Received: inputs of dtype " + dtype
    )
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
    ({}, {"positions": np.arange(5)}, POSITIONS + r".* of shape \(5,\)"),
    ({}, {"positions": np.arange(7.0)}, POSITIONS + r".* of shape \(7,\)"),
    ({}, {"positions": np.array(1)}, POSITIONS + r".* of shape \(\)"),
    ({}, {"positions": np.zeros((2, 5))}, POSITIONS + r".* \(2, 5\)"),
    ({}, {"positions": np.zeros((3, 6))}, POSITIONS + r".* \(3, 6\)"),
    ({}, {"positions": np.zeros((6, 1))}, POSITIONS + r".* \(6, 1\)"),
    ({}, {"positions": np.zeros((2, 6, 5))}, POSITIONS + r".* \(2, 6, 5\)"),
    ({}, {"positions": ROWS, "start_index": 1}, APART + "start_index"),
    ({}, {"positions": ROWS, "start_index": np.array(1)}, APART + "start_"),
    ({}, {"positions": ROWS, "start_index": np.array([1, 2])}, APART + "st"),
    ({"skip_masked": True}, {"positions": ROWS}, APART + "skip_masked=True"),
    (
        {"skip_masked": True},
        {"segment_ids": IDS},
        "`segment_ids` cannot be used with skip_masked=True",
    ),
    (
        {},
        {"segment_ids": IDS.astype("float32")},
        f"`segment_ids` {INTEGERS}segment_ids of dtype float32",
    ),
    (
        {},
        {"segment_ids": IDS > 1},
        f"`segment_ids` {INTEGERS}segment_ids of dtype bool",
    ),
    ({}, {"segment_ids": ROWS}, f"`segment_ids` {ROW}" + r".* \(6,\)"),
    ({}, {"segment_ids": IDS[:, :5]}, f"`segment_ids` {ROW}" + r".* \(2, 5\)"),
    ({}, {"segment_ids": IDS[[0, 0, 0]]}, f"`segment_ids` {ROW}" + r".*\(3, 6"),
    ({}, {"start_index": 1.5}, f"`start_index` {INTEGERS}.* float32"),
    ({}, {"start_index": True}, f"`start_index` {INTEGERS}.* bool"),
    (
        {},
        {"start_index": np.array([1, 2], "float32")},
        f"`start_index` {INTEGERS}start_index of dtype float32",
    ),
    ({}, {"start_index": np.arange(3)}, START + r".* \(3,\)"),
    ({}, {"start_index": np.zeros((2, 1), int)}, START + r".* \(2, 1\)"),
    ({}, {"mask": MASK[:, :5]}, f"`mask` {ROW}mask of shape " + r"\(2, 5\)"),
    ({}, {"mask": MASK[0]}, f"`mask` {ROW}mask of shape " + r"\(6,\)"),
    ({}, {"mask": MASK[..., np.newaxis]}, f"`mask` {ROW}.*" + r"\(2, 6, 1\)"),
    (
        {"skip_masked": True},
        {"mask": MASK[[0, 1, 1]]},
        f"`mask` {ROW}.*" + r"\(3, 6\)",
    ),
]


@pytest.mark.parametrize("symbolic", [False, True], ids=["eager", "symbolic"])
@pytest.mark.parametrize(("config", "call", "message"), BAD_CALLS)
def test_bad_calls(config, call, message, symbolic):
    layer = kp.PositionalEncoding(**config)
    inputs = random_inputs(2, 6, 5)
    if symbolic:
        inputs = keras.KerasTensor(inputs.shape)
        call = {
            name: keras.KerasTensor(value.shape, value.dtype.name)
            if isinstance(value, np.ndarray)
            else value
            for name, value in call.items()
        }
    with pytest.raises(ValueError, match=message):
        layer(inputs, **call)


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
