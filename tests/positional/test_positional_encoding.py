"""The layer against the oracle: every merge mode, dtype and call argument.

What each layer keeps to (masks, files, gradients, compilers) is in
`test_layer_contract.py`, and the figures as printed are in `test_reference.py`.
"""

import math

import keras
import numpy as np
import pytest
from hypothesis import given
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


# Against the oracle, in every dtype.


@pytest.mark.parametrize(
    ("dim", "layout", "policy"),
    [
        (dim, LAYOUTS[i % 2], policy)
        for i, (dim, policy) in enumerate(
            zip([1, 2, 3, 64, 512, 5], POLICIES, strict=True)
        )
    ],
)
def test_merge_modes(dim, layout, policy, near, encoding_bound, half_ulp):
    dtype = POLICIES[policy]
    inputs = random_inputs(2, 70, dim)
    cast = numbers(ops.cast(inputs, dtype))
    unit = 2 * half_ulp(np.array(0.5), dtype)  # relative

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
        return numbers(outputs), np.stack([encoding] * 2), bound

    near(*check(None))
    outputs, encoding, bound = check("concat", 5, encoding_dim=5)
    np.testing.assert_array_equal(outputs[..., :dim], cast)
    near(outputs[..., dim:], encoding, bound)
    for scale in (False, True):
        outputs, encoding, bound = check("add", scale_inputs=scale)
        scaled = cast * (math.sqrt(dim) if scale else 1)
        # Scale and product are rounded, and the sum.
        of_inputs = scale * 2.01 * unit * abs(scaled)
        bound, want = bound + of_inputs, scaled + encoding
        near(outputs, want, bound + half_ulp(np.abs(want) + bound, dtype))
        outputs, _, _ = check("concat", scale_inputs=scale)
        near(outputs[..., :dim], scaled, of_inputs)


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
    "start-negative": ({}, {"start_index": -7}, ROWS - 7),
    "start-np.uint8": ({}, {"start_index": np.uint8(255)}, 255 + ROWS),
    "start-batch": (
        {},
        {"start_index": np.array([2**20, -70])},
        [ROWS + 2**20, ROWS - 70],
    ),
    "start-one-for-all": ({}, {"start_index": np.array([9])}, ROWS + 9),
    "positions-reals": (
        {},
        {"positions": np.array(REALS, "float32")},
        np.array(REALS, "float32"),
    ),
    "positions-list-of-reals": ({}, {"positions": REALS}, REALS),
    "positions-one-row": ({}, {"positions": (ROWS**2)[np.newaxis]}, ROWS**2),
    "positions-batch": (
        {},
        {"positions": np.stack([ROWS, 10 * ROWS + 0.25])},
        [ROWS, 10 * ROWS + 0.25],
    ),
    "segments-one-row": ({}, {"segment_ids": IDS[:1]}, IN_SEGMENT[0]),
    "segments-start-batch": (
        {},
        {"segment_ids": IDS, "start_index": np.array([100, -3])},
        IN_SEGMENT + np.array([[100], [-3]]),
    ),
    "skip-list": ({"skip_masked": True}, {"mask": MASK.tolist()}, AMONG_TOKENS),
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


@pytest.mark.parametrize(
    "call",
    [
        {"start_index": 2**24 + 1},
        {"start_index": np.int64(-(2**32))},
        {"start_index": np.array([2**32, -(2**32)]), "segment_ids": IDS},
        {"start_index": 2**31 - 2, "segment_ids": IDS},
        {"positions": np.full(SEQ, 2**32)},
        {"positions": np.full((BATCH, SEQ), -np.inf, "float32")},
        {"positions": np.full(SEQ, 2.0**24 + 2, "float32")},
    ],
    ids=str,
)
def test_beyond_the_limit_is_nan(call):
    layer = kp.PositionalEncoding(merge_mode=None)
    outputs = layer(random_inputs(BATCH, SEQ, DIM), **call)
    assert np.all(np.isnan(numbers(outputs)))


# Keras.


@pytest.mark.parametrize("merge_mode", ["concat", None])
def test_dropout_is_behind_the_merge(merge_mode):
    layer = kp.PositionalEncoding(dropout=0.5, merge_mode=merge_mode)
    outputs = numbers(layer(random_inputs(8, 50, 16), training=True))
    # Cosines of position 0 are 1, so what is 0 there was dropped.
    dropped = outputs[:, 0, -15::2] == 0
    assert 0 < np.mean(dropped) < 1
    assert np.all(outputs[:, 0, -15::2][~dropped] == 2)
