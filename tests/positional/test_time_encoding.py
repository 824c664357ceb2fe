"""Times: exact from 1970 to the end of the range, in each form they come in."""

import math
from fractions import Fraction

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference

DAY, WEEK, YEAR = 86400.0, 604800.0, 31556952.0
PERIODS = (1.0, 7.3, 3600.0, DAY, WEEK, YEAR, 3.2e9)
NOW = 1795181561  # a day in November 2026
# What ops/turns.py derives for sines and cosines.
BOUND = {"float32": 6e-7, "float64": 1e-13}


def alone(times, **config):
    """The encoding of one row of times: (seq, width)."""
    config = {"periods": PERIODS, **config}
    layer = kp.TimeEncoding(merge_mode=None, **config)
    inputs = np.zeros((1, len(times), 4), "float32")
    outputs = layer(inputs, positions=times)
    return ops.convert_to_numpy(ops.cast(outputs, "float64"))[0]


def expected(times, frequencies=None, layout="interleaved"):
    if frequencies is None:
        frequencies = [1 / Fraction(period) for period in PERIODS]
    angles = reference.time_angles(times, frequencies)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    if layout == "halves":
        waves = np.swapaxes(waves, -1, -2)
    return waves.reshape(*angles.shape[:-1], -1)


RANDOM = np.random.default_rng(0)
TIMES = {
    "int32": RANDOM.integers(-(2**31), 2**31, 50).astype("int32"),
    "uint8": np.arange(250, 256).astype("uint8"),
    "list": [0, 1, NOW, 2**31 - 1, -(2**31)],
    "float32": RANDOM.uniform(-1e5, 1e5, 50).astype("float32"),
    "float32-whole": RANDOM.uniform(0, 2**48, 50).astype("float32"),
    "float32-small": RANDOM.uniform(0, 2, 50).astype("float32"),
    "int64": RANDOM.integers(-(2**48), 2**48, 50),
    "int64-ends": np.array([2**48, -(2**48), 2**24, 2**24 - 1, -1, -(2**24)]),
    "float64": RANDOM.uniform(-2e9, 2e9, 50),
    "float64-far": RANDOM.uniform(-(2**48), 2**48, 50),
    "milliseconds": NOW * 1000 + RANDOM.integers(0, 10**6, 50),
}


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_times(times, dtype, near):
    for layout in ("interleaved", "halves"):
        got = alone(times, layout=layout, dtype=dtype)
        near(got, expected(times, layout=layout), BOUND[dtype])


@given(
    times=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9),
    period=st.floats(1e-3, 1e12),
)
def test_any_time_and_period(times, period, near):
    got = alone(np.array(times, "int32"), periods=(period,))
    near(got, expected(times, [1 / Fraction(period)]), BOUND["float32"])


@pytest.mark.parametrize("kind", ["learned", "time2vec"])
def test_learned_frequencies_are_exact_to_their_last_bit(kind, near):
    times = RANDOM.integers(0, 2**31, 50).astype("int32")
    layer = kp.TimeEncoding(kind, periods=PERIODS, merge_mode=None)
    inputs = np.zeros((1, 50, 4), "float32")
    layer(inputs, positions=times)
    near(layer.frequencies, 1 / np.array(PERIODS), 2.0**-24)
    for scale in (1e-9, 1.0, 1e3):
        frequencies = scale * RANDOM.normal(size=len(PERIODS))
        layer.frequencies.assign(frequencies)
        frequencies = ops.convert_to_numpy(layer.frequencies).tolist()
        got = ops.convert_to_numpy(layer(inputs, positions=times))[0]
        if kind == "learned":
            near(got, expected(times, frequencies), BOUND["float32"])
            continue
        phases = RANDOM.normal(size=len(PERIODS)).astype("float32")
        layer.phases.assign(phases)
        layer.linear.assign([1e-9, -0.5])
        got = ops.convert_to_numpy(layer(inputs, positions=times))[0]
        angles = reference.time_angles(times, frequencies) + phases
        # The sum of angle and phase, below 8, is rounded once more.
        near(got[:, 1:], np.sin(angles), BOUND["float32"] + 4 * 2.0**-24)
        # Three numbers are rounded, and two results, all below 3.
        near(got[:, 0], times * 1e-9 - 0.5, 5 * 3 * 2.0**-24)


def test_geometric_periods(near):
    layer = kp.TimeEncoding(min_period=60, max_period=YEAR, merge_mode=None)
    times = np.array([0, 1, NOW], "int32")
    got = layer(np.zeros((1, 3, 9), "float32"), positions=times)
    periods = 60 * (YEAR / 60) ** (np.arange(5) / 4)
    want = expected(times, [1 / Fraction(period) for period in periods])
    # 1 ulp of a period moves today's angle by 2 pi NOW / 60 * 2**-52.
    near(got[0], want[:, :9], BOUND["float32"] + 1e-7)


@pytest.mark.tensorflow
@pytest.mark.parametrize("start", [2**31 - 2, 2**40])
def test_counting_goes_on_beyond_int32(start, near):
    layer = kp.TimeEncoding(merge_mode=None)
    inputs = np.zeros((1, 5, 6), "float32")
    got = layer(inputs, start_index=start)
    near(got, layer(inputs, positions=start + np.arange(5)), 0.0)


def test_counting_is_that_of_positional_encoding(near):
    """Base 10 000, width 8, and periods of 2 pi times 10 000**(j / 4)."""
    mask = np.array([[0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0]], bool)
    segments = np.array([[1, 1, 2, 2, 2, 1], [3, 3, 3, 3, 0, 0]])
    inputs = np.zeros((2, 6, 8), "float32")
    periods = tuple(2 * math.pi * 10000 ** (j / 4) for j in range(4))
    for config, call in (
        ({}, {}),
        ({}, {"start_index": np.array([5, -3], "int32")}),
        ({}, {"segment_ids": segments, "start_index": 1000}),
        ({"skip_masked": True}, {"mask": mask}),
    ):
        config = {"merge_mode": None, **config}
        want = kp.PositionalEncoding(**config)(inputs, **call)
        got = kp.TimeEncoding(periods=periods, **config)(inputs, **call)
        near(got, np.broadcast_to(want, (2, 6, 8)), BOUND["float32"] + 2.1e-7)


@pytest.mark.parametrize(
    "call",
    [
        {"positions": np.array([np.nan, np.inf, -np.inf], "float32")},
        {"positions": np.array([2.0**48 + 2**25] * 3, "float32")},
        pytest.param(
            {"positions": np.array([2**48 + 1, -(2**48) - 1, 2**62])},
            marks=pytest.mark.tensorflow,
        ),
    ],
    ids=str,
)
def test_beyond_the_limit_is_nan(call):
    for kind in ("fixed", "learned", "time2vec"):
        layer = kp.TimeEncoding(kind, merge_mode=None)
        outputs = layer(np.zeros((1, 3, 5), "float32"), **call)
        waves = ops.convert_to_numpy(outputs)[..., kind == "time2vec" :]
        assert np.all(np.isnan(waves))


# In graphs and files.


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("dtype", "config"),
    [
        ("int64", {}),
        pytest.param("int32", {"kind": "learned"}, marks=pytest.mark.slow),
    ],
)
def test_litert(dtype, config, tmp_path, near):
    from ai_edge_litert.interpreter import Interpreter

    inputs = keras.Input((None, 14), name="inputs")
    times = keras.Input((None,), dtype=dtype, name="times")
    layer = kp.TimeEncoding(periods=PERIODS, merge_mode=None, **config)
    model = keras.Model([inputs, times], layer(inputs, positions=times))
    sample = {
        "inputs": np.zeros((2, 50, 14), "float32"),
        "times": TIMES[dtype] * np.array([[1], [-1]], dtype),
    }
    path = tmp_path / "times.tflite"
    kp.export_litert(model, path, samples=[sample])
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    (outputs,) = runner(**sample).values()
    # Two encodings, each within its bound.
    near(outputs, model(sample), 2 * BOUND["float32"])
