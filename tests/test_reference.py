"""The oracle itself, held to published figures, mpmath and its properties."""

import itertools
import math
import re
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference as ref

LAYOUTS = ("interleaved", "halves")
UNIT = 2.0**-53  # relative rounding error of one float64 operation
# An entry is sin a cos b + cos a sin b. Sines and cosines good to 4 ulp, each
# times its partner, the partners adding up to at most sqrt(8): 12 units; the
# rounding of the fine angle, below 1.5: 5; of the products and the sum: 2.
ENTRY = 19 * UNIT
# Sums of up to a hundred or so terms of size 1 to 10, a few of them chained.
SUMS = 1e-12

FAR = 2**24
widths = st.integers(1, 65)
even_widths = st.integers(1, 64).map(lambda half: 2 * half)
bases = st.sampled_from([100.0, 1000.0, 10000.0, 500000.0])
layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**32 - 1)
flags = st.lists(st.booleans(), min_size=1, max_size=12)

property_test = settings(deadline=None, max_examples=50)


def table(text: str) -> np.ndarray:
    """Numbers printed in rows, as an array."""
    return np.array([line.split() for line in text.split("\n") if line], float)


HALVES = table("""
0      0      0      1      1      1
0.841  0.046  0.002  0.540  0.999  1
0.909  0.093  0.004 -0.416  0.996  1
0.141  0.139  0.006 -0.990  0.990  1
-0.757 0.185  0.009 -0.654  0.983  1
""")
BASE_1000 = table("""
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
""")
EMBEDDED = table("""
0.28  0.08  0.51 -1.07
-1.27 -0.07  0.77 -0.08
-1.46 -1.10  0.90 -0.00
-0.10 -0.09  0.53 -1.52
0.83 -0.43  0.28 -0.14
0.03 -1.25  1.08  0.62
""")
EMBEDDED_SUM = table("""
0.28  1.08  0.51 -0.07
-0.43  0.47  0.80  0.92
-0.55 -1.51  0.97  1.00
0.04 -1.08  0.63 -0.53
0.08 -1.09  0.40  0.85
-0.93 -0.96  1.23  1.60
""")


def near(actual: object, expected: object, tolerance: float) -> None:
    """Equal shapes, and every entry within an absolute tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


# Published figures: the tolerance is half a unit of the last printed digit.


def test_printed_tables() -> None:
    """Five rows of halves, ten rows of base 1000."""
    near(ref.positional_encoding(5, 6, layout="halves"), HALVES, 0.5e-3)
    near(ref.positional_encoding(10, 4, 1000), BASE_1000, 0.5e-8)


def test_printed_sum() -> None:
    """A sentence of embeddings plus its encoding, both sides printed."""
    total = EMBEDDED + ref.positional_encoding(6, 4, 1000)
    near(total, EMBEDDED_SUM, 2 * 0.5e-2)


def test_printed_frequencies() -> None:
    """At n = 100 and width 4, columns turn by 1.00 and 0.10 a position."""
    angles = ref.get_angles(1, np.arange(4), 4, 100)
    near(angles, [1.0, 1.0, 0.1, 0.1], 0.5e-2)


# Angles and encodings.


def test_float32_width_keeps_float64_angles() -> None:
    """A width cast to float32, as in the first TensorFlow code, is no loss."""
    angle = ref.get_angles(7, 5, np.float32(6))
    assert angle.dtype == np.float64
    assert angle == ref.get_angles(7, 5, 6)


MILESTONES = (0, 1, 63, 64, 4095, 4096, 2**18, 12345678, FAR - 1, FAR)
REAL = (-FAR, -7.25, 0.5, 12345.678, FAR - 0.3)


@pytest.mark.parametrize("base", [100.0, 1000.0, 10000.0, 500000.0])
@pytest.mark.parametrize("d_model", [1, 2, 3, 63, 512])
def test_encoding_against_mpmath(d_model: int, base: float) -> None:
    """Every entry within its bound of the exact one, up to 2**24."""
    positions = np.array(MILESTONES + REAL)
    expected = np.empty((len(positions), d_model))
    with mpmath.workdps(40):
        for column in range(d_model):
            pair = mpmath.mpf(2 * (column // 2)) / d_model
            wave = mpmath.cos if column % 2 else mpmath.sin
            for row, position in enumerate(positions):
                angle = mpmath.mpf(position) / mpmath.mpf(base) ** pair
                expected[row, column] = wave(angle)
    columns = [*range(0, d_model, 2), *range(1, d_model, 2)]
    wanted = {"interleaved": expected, "halves": expected[:, columns]}
    for layout, want in wanted.items():
        got = ref.positional_encoding(positions, d_model, base, layout)
        near(got, want, ENTRY + UNIT)  # UNIT: the rounding of `expected`


@property_test
@given(d_model=widths, base=bases, seed=seeds)
def test_halves_permute_the_columns(
    d_model: int, base: float, seed: int
) -> None:
    """Halves are the interleaved sines, then the cosines, bit for bit."""
    positions = np.random.default_rng(seed).uniform(-FAR, FAR, (2, 3))
    plain = ref.positional_encoding(positions, d_model, base)
    halves = ref.positional_encoding(positions, d_model, base, "halves")
    assert plain.shape == halves.shape == (2, 3, d_model)
    sines = (d_model + 1) // 2
    assert np.array_equal(halves[..., :sines], plain[..., 0::2])
    assert np.array_equal(halves[..., sines:], plain[..., 1::2])


@property_test
@given(length=st.integers(0, 40), d_model=widths, layout=layouts)
def test_a_count_is_a_range(length: int, d_model: int, layout: str) -> None:
    """An int means the first positions; each keeps its vector at any length."""
    rows = ref.positional_encoding(length, d_model, layout=layout)
    assert rows.shape == (length, d_model)
    assert rows.dtype == np.float64
    for position in range(length):
        alone = np.asarray(position)
        row = ref.positional_encoding(alone, d_model, layout=layout)
        near(row, rows[position], 2 * ENTRY)


@property_test
@given(
    position=st.integers(-(2**23), 2**23),
    k=st.integers(-(2**23), 2**23),
    d_model=even_widths,
    base=bases,
    layout=layouts,
)
def test_shift_is_linear(
    position: int, k: int, d_model: int, base: float, layout: str
) -> None:
    """PE(pos + k) = M_k PE(pos), M_k a rotation: M_k M_-k = I = M_k M_k^T."""
    here, there = ref.positional_encoding(
        np.array([position, position + k]), d_model, base, layout
    )
    shift = ref.shift_matrix(k, d_model, base, layout)
    back = ref.shift_matrix(-k, d_model, base, layout)
    # Two products of two inexact factors of size 1, and a right-hand side.
    near(shift @ here, there, 6 * ENTRY)
    near(shift @ back, np.eye(d_model), 6 * ENTRY)
    near(back, shift.T, 2 * ENTRY)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ref.positional_encoding(5, 6, layout="halfs"),
            "`layout` must be 'interleaved' or 'halves'. "
            "Received: layout='halfs'.",
        ),
        (
            lambda: ref.shift_matrix(1, 6, layout="halfs"),
            "`layout` must be 'interleaved' or 'halves'. "
            "Received: layout='halfs'.",
        ),
        (
            lambda: ref.shift_matrix(1, 3),
            "`d_model` must be even: an odd width has a sine without its "
            "cosine. Received: d_model=3.",
        ),
        (
            lambda: ref.feed_forward([0.0], {"intermediate_kernel": [[1]]}, ""),
            "`activation` must be 'relu', 'silu', 'gelu' or "
            "'gelu_tanh'. "
            "Received: activation=''.",
        ),
    ],
)
def test_errors_say_what_came(call: Callable[[], object], message: str) -> None:
    """Argument, expectation and what came."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


# Positions.


@property_test
@given(mask=flags)
def test_positions_from_mask(mask: list[bool]) -> None:
    """Real tokens count 0, 1, 2, ...; padding repeats what came before."""
    row = np.array(mask)
    positions = ref.positions_from_mask([row, ~row])
    assert positions.dtype == np.int64
    assert positions[0][row].tolist() == list(range(row.sum()))
    for other in (row, ~row):
        expected = np.maximum(np.cumsum(other) - 1, 0)
        assert np.array_equal(ref.positions_from_mask(other), expected)
    assert np.array_equal(positions[1], ref.positions_from_mask(~row))


@property_test
@given(ids=st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_positions_from_segments(ids: list[int]) -> None:
    """Each run counts from 0, also where an earlier id comes back."""
    runs = (len(list(run)) for _, run in itertools.groupby(ids))
    expected = [t for length in runs for t in range(length)]
    positions = ref.positions_from_segments([ids, [9] * len(ids)])
    assert positions.tolist() == [expected, list(range(len(ids)))]


# Attention.


@property_test
@given(keep=flags.filter(any), seed=seeds)
def test_masked_keys_do_not_exist(keep: list[bool], seed: int) -> None:
    """Attention under a mask is attention on the kept keys only."""
    rng = np.random.default_rng(seed)
    kept = np.array(keep)
    query = rng.normal(size=(2, 3, 4))
    key = rng.normal(size=(2, len(kept), 4))
    value = rng.normal(size=(2, len(kept), 5))
    bias = rng.normal(size=(3, len(kept)))
    output, weights = ref.scaled_dot_product_attention(
        query, key, value, kept, bias
    )
    expected, expected_weights = ref.scaled_dot_product_attention(
        query, key[:, kept], value[:, kept], bias=bias[:, kept]
    )
    near(output, expected, SUMS)
    near(weights[..., kept], expected_weights, SUMS)
    assert np.all(weights[..., ~kept] == 0)


@property_test
@given(seed=seeds, dim=st.integers(1, 16))
def test_attention_weights(seed: int, dim: int) -> None:
    """Weights sum to 1, in the ratio exp(score / sqrt(dim) + bias)."""
    rng = np.random.default_rng(seed)
    query, key, value = rng.normal(size=(3, 5, dim))
    bias = rng.normal(size=(5, 5))
    output, weights = ref.scaled_dot_product_attention(
        query, key, value, bias=bias
    )
    near(np.sum(weights, axis=-1), np.ones(5), SUMS)
    scores = np.einsum("qd,kd->qk", query, key) / dim**0.5 + bias
    ratio = np.log(weights) - np.log(weights[:, :1])
    near(ratio, scores - scores[:, :1], 10 * SUMS)
    near(output, np.einsum("qk,kd->qd", weights, value), SUMS)


def test_fully_masked_row_is_uniform() -> None:
    """A query without keys weighs all alike, whatever scores and bias."""
    rng = np.random.default_rng(0)
    query, key, value, bias = 1e3 * rng.normal(size=(4, 4, 4))
    mask = np.array([[True], [False], [True], [False]])
    output, weights = ref.scaled_dot_product_attention(
        query, key, value, mask, bias
    )
    assert np.all(np.isfinite(output))
    near(weights[1::2], np.full((2, 4), 0.25), UNIT)
    near(output[1], np.mean(value, axis=0), 1e3 * SUMS)
    free, _ = ref.scaled_dot_product_attention(query, key, value, bias=bias)
    assert np.array_equal(output[0::2], free[0::2])


def attention_weights(
    rng: np.random.Generator, hidden: int, key_width: int
) -> dict[str, np.ndarray]:
    """Random projections, hidden wide but for the keys and values."""
    columns = dict.fromkeys(("query", "output"), hidden)
    columns |= dict.fromkeys(("key", "value"), key_width)
    weights = {}
    for name, width in columns.items():
        weights[f"{name}_kernel"] = rng.normal(size=(hidden, width)) / 3
        weights[f"{name}_bias"] = rng.normal(size=width)
    return weights


def by_einsum(
    x: np.ndarray, w: dict[str, np.ndarray], heads: int, mask: np.ndarray
) -> np.ndarray:
    """Multi-head attention in one go, the heads an axis of their own."""
    q, k, v = (
        (x @ w[f"{name}_kernel"] + w[f"{name}_bias"]).reshape(
            *x.shape[:2], heads, -1
        )
        for name in ("query", "key", "value")
    )
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    scores = np.where(mask[:, None], np.exp(scores), 0)
    scores /= np.sum(scores, axis=-1, keepdims=True)
    mixed = np.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape)
    return mixed @ w["output_kernel"] + w["output_bias"]


@property_test
@given(heads=st.sampled_from([1, 2, 4, 8]), seed=seeds)
def test_multi_head_attention(heads: int, seed: int) -> None:
    """The loop over heads equals the form with an axis of heads."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 5, 8))
    weights = attention_weights(rng, 8, 8)
    mask = np.tril(np.ones((1, 5, 5), bool))
    actual = ref.multi_head_attention(x, weights, heads, mask=mask)
    near(actual, by_einsum(x, weights, heads, mask), 10 * SUMS)
    del weights["key_bias"]  # it moves all scores of a query alike
    near(ref.multi_head_attention(x, weights, heads, None, mask), actual, SUMS)


@property_test
@given(groups=st.sampled_from([1, 2, 4]), seed=seeds)
def test_grouped_heads_are_repeated_heads(groups: int, seed: int) -> None:
    """Grouped queries equal full heads whose keys and values repeat."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 5, 8))
    weights = attention_weights(rng, 8, 2 * groups)
    full = dict(weights)
    for name in ("key_kernel", "key_bias", "value_kernel", "value_bias"):
        split = np.split(weights[name], groups, axis=-1)
        repeats = [part for part in split for _ in range(4 // groups)]
        full[name] = np.concatenate(repeats, axis=-1)
    grouped = ref.multi_head_attention(x, weights, 4, groups)
    near(grouped, ref.multi_head_attention(x, full, 4), SUMS)


# The rest of the block.


@property_test
@given(seed=seeds, scale=st.floats(0.1, 100))
def test_normalisations(seed: int, scale: float) -> None:
    """Mean 0 and variance 1, or mean square 1, but for epsilon."""
    rng = np.random.default_rng(seed)
    x = scale * rng.normal(size=(2, 3, 16)) + 1
    gamma, beta = rng.normal(size=(2, 16))
    epsilon = 0.1
    plain = ref.layer_norm(x, np.ones(16), np.zeros(16), epsilon)
    variance = np.var(x, axis=-1)
    near(np.mean(plain, axis=-1), np.zeros((2, 3)), SUMS)
    near(np.var(plain, axis=-1), variance / (variance + epsilon), SUMS)
    near(ref.layer_norm(x, gamma, beta, epsilon), plain * gamma + beta, SUMS)
    plain = ref.rms_norm(x, np.ones(16), epsilon)
    square = np.mean(x**2, axis=-1)
    near(np.mean(plain**2, axis=-1), square / (square + epsilon), SUMS)
    assert np.array_equal(np.sign(plain), np.sign(x))
    near(ref.rms_norm(x, gamma, epsilon), plain * gamma, SUMS)


def test_activations_against_mpmath() -> None:
    """The three activations, between two dense layers that only scale."""
    x = np.linspace(-5, 5, 21)
    weights = {
        "intermediate_kernel": np.array([[2.0]]),
        "intermediate_bias": np.array([0.5]),
        "output_kernel": np.array([[3.0]]),
        "output_bias": np.array([-1.0]),
    }
    cubic = mpmath.mpf("0.044715")
    # (1 + tanh(z)) / 2 is the logistic function of 2 z.
    root = mpmath.sqrt(8 / mpmath.pi)
    exact: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
        "relu": lambda y: max(y, 0),
        "gelu": lambda y: y * mpmath.ncdf(y),
        "gelu_tanh": lambda y: y / (1 + mpmath.exp(-root * (y + cubic * y**3))),
    }
    for activation, function in exact.items():
        expected = [3 * float(function(mpmath.mpf(2 * y + 0.5))) - 1 for y in x]
        actual = ref.feed_forward(x[:, None], weights, activation)
        near(actual[:, 0], expected, SUMS)
    assert np.array_equal(
        ref.feed_forward(x[:, None], weights),
        ref.feed_forward(x[:, None], weights, "relu"),
    )


def block_weights(rng: np.random.Generator) -> dict[str, dict]:
    """Random weights of a block 8 wide, with plain normalisations."""
    return {
        "attention": attention_weights(rng, 8, 8),
        "attention_norm": {"gamma": np.ones(8), "beta": np.zeros(8)},
        "feed_forward": {
            "intermediate_kernel": rng.normal(size=(8, 32)) / 3,
            "intermediate_bias": rng.normal(size=32),
            "output_kernel": rng.normal(size=(32, 8)) / 6,
        },
        "feed_forward_norm": {"gamma": np.ones(8), "beta": np.zeros(8)},
    }


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("rms", [False, True])
def test_encoder_block_order(normalize_first: bool, rms: bool) -> None:
    """Post-norm x = LN(x + f(x)); pre-norm x = x + f(LN(x))."""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(2, 5, 8)), block_weights(rng)
    weights["attention"] = attention_weights(rng, 8, 4)
    for name in ("attention_norm", "feed_forward_norm"):
        weights[name] = {"gamma": rng.normal(size=8)}
        if not rms:
            weights[name]["beta"] = rng.normal(size=8)

    def norm(y: np.ndarray, name: str) -> np.ndarray:
        function = ref.rms_norm if rms else ref.layer_norm
        return function(y, **weights[name], epsilon=1e-5)

    def attend(y: np.ndarray) -> np.ndarray:
        return ref.multi_head_attention(y, weights["attention"], 4, 2)

    def feed(y: np.ndarray) -> np.ndarray:
        return ref.feed_forward(y, weights["feed_forward"], "gelu")

    if normalize_first:
        middle = x + attend(norm(x, "attention_norm"))
        expected = middle + feed(norm(middle, "feed_forward_norm"))
    else:
        middle = norm(x + attend(x), "attention_norm")
        expected = norm(middle + feed(middle), "feed_forward_norm")
    actual = ref.encoder_block(
        x,
        weights,
        4,
        normalize_first,
        epsilon=1e-5,
        activation="gelu",
        num_key_value_heads=2,
    )
    near(actual, expected, SUMS)


@property_test
@given(seed=seeds, normalize_first=st.booleans())
def test_encoder_block_properties(seed: int, normalize_first: bool) -> None:
    """No order of its own, padding unseen, residual path, unit variance."""
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(2, 5, 8)), block_weights(rng)

    def block(y: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        return ref.encoder_block(
            y, weights, 4, normalize_first, epsilon=1e-9, mask=mask
        )

    order = rng.permutation(5)
    near(block(x[:, order]), block(x)[:, order], 100 * SUMS)
    real = np.array([True, True, True, False, False])
    padded = np.where(real[:, None], x, 77.0)
    masked = block(padded, np.broadcast_to(real, (2, 1, 5)))
    near(masked[:, real], block(x[:, real]), 100 * SUMS)
    if normalize_first:
        weights["attention"]["output_kernel"] = np.zeros((8, 8))
        weights["attention"]["output_bias"] = np.zeros(8)
        weights["feed_forward"]["output_kernel"] = np.zeros((32, 8))
        assert np.array_equal(block(x), x)
    else:
        near(np.mean(block(x), axis=-1), np.zeros((2, 5)), SUMS)
        # 1 - variance / (variance + epsilon), for a variance above 1e-3.
        near(np.var(block(x), axis=-1), np.ones((2, 5)), 1e-6)


@property_test
@given(mask=flags, seed=seeds)
def test_masked_average(mask: list[bool], seed: int) -> None:
    """The mean of the real tokens, zeros for none; padding may be NaN."""
    rng = np.random.default_rng(seed)
    real = np.array(mask)
    x = rng.normal(size=(2, len(real), 3))
    x[:, ~real] = np.nan
    expected = x[:, real].mean(axis=1) if real.any() else np.zeros((2, 3))
    near(ref.masked_average(x, [real, real]), expected, SUMS)


# ---- Positions inside attention


@property_test
@given(
    position=st.one_of(st.integers(-FAR, FAR), st.floats(-FAR, FAR, width=32)),
    rate=st.floats(-1, 1),
)
def test_phases_against_mpmath(position: float, rate: float) -> None:
    """To the bound of an entry of the encoding."""
    with mpmath.workdps(40):
        angle = mpmath.mpf(position) * mpmath.mpf(rate)
        expected = [float(mpmath.sin(angle)), float(mpmath.cos(angle))]
    sines, cosines = ref.phases(position, [rate])
    near(np.concatenate([sines, cosines]), expected, 2 * ENTRY)


@property_test
@given(pairs=st.integers(1, 9), seed=seeds, layout=layouts)
def test_rotation_is_a_complex_product(
    pairs: int, seed: int, layout: str
) -> None:
    """RoFormer's equation 12: (a + b i) exp(i m theta)."""
    rng = np.random.default_rng(seed)
    x, rates = rng.normal(size=(4, 2 * pairs + 1)), rng.random(pairs)
    positions = rng.integers(0, 1000, 4)
    turned = ref.rotary_embedding(x, positions, rates, layout)
    first, second = np.arange(pairs), pairs + np.arange(pairs)
    if layout == "interleaved":
        first, second = 2 * first, 2 * first + 1
    turn = np.exp(1j * positions[:, np.newaxis] * rates)
    expected = (x[:, first] + 1j * x[:, second]) * turn
    near(turned[:, first], expected.real, SUMS)
    near(turned[:, second], expected.imag, SUMS)
    near(turned[:, -1], x[:, -1], 0.0)


def test_scaled_frequencies_at_their_ends() -> None:
    """Fast pairs stay and slow ones are divided; dynamic ends at factor."""
    plain = ref.rotary_rates("default", 64)
    options = {"scaling_factor": 8, "original_max_position_embeddings": 512}
    for rope_type in ("yarn", "llama3"):
        rates = ref.rotary_rates(rope_type, 64, **options)
        near(rates[0] / plain[0], 1.0, 4 * UNIT)
        near(rates[-1] / plain[-1], 1 / 8, 4 * UNIT)
        assert np.all(np.diff(rates / plain) <= 4 * UNIT)
    rates = ref.rotary_rates("linear", 64, scaling_factor=8)
    near(rates * 8, plain, 4 * UNIT)
    # NTK-aware interpolation: the slowest pair is divided by the growth, here
    # of the length itself at factor 1, and the fastest is kept.
    options["scaling_factor"] = 1
    rates = ref.rotary_rates("dynamic", 64, length=2048, **options)
    near(rates[[0, -1]] / plain[[0, -1]], [1.0, 1 / 4], 64 * UNIT)


def test_printed_alibi_slopes() -> None:
    """For 8 heads 1/2 ... 1/256, for 16 the roots between (section 3)."""
    eight = -ref.alibi_bias([1], [0], 8)[:, 0, 0]
    near(eight, 0.5 ** np.arange(1, 9), 0.0)
    sixteen = -ref.alibi_bias([0], [1], 16)[:, 0, 0]
    near(sixteen, 0.5 ** (np.arange(1, 17) / 2), 4 * UNIT)
    twelve = -ref.alibi_bias([0], [1], 12)[:, 0, 0]
    near(twelve, [*eight, *sixteen[0:8:2]], 4 * UNIT)


def test_t5_buckets_as_described() -> None:
    """Exact to 8, then growing to 128, beyond which all share the last."""
    buckets = [ref.t5_bucket(-distance) for distance in range(8)]
    assert buckets == list(range(8))
    assert [ref.t5_bucket(-d) for d in (8, 11, 12, 16, 127, 128, 10**6)] == [
        *(8, 8, 9, 10, 15, 15, 15)
    ]
    assert [ref.t5_bucket(d) for d in (0, 1, 8, 128)] == [0, 17, 24, 31]
    assert ref.t5_bucket(5, bidirectional=False) == 0


def test_transformer_xl_shifts_rows() -> None:
    """Its term b + d by the relative shift of the paper's appendix B."""
    rng = np.random.default_rng(0)
    seq, dim, width = 5, 4, 6
    query = rng.normal(size=(1, seq, dim))
    weights = {
        "kernel": rng.normal(size=(width, 1, dim)),
        "content_bias": np.zeros((1, dim)),
        "position_bias": rng.normal(size=(1, dim)),
    }
    where = np.arange(seq)
    bias = ref.transformer_xl_bias(query, query, where, where, weights)
    encoding = ref.positional_encoding(
        np.arange(seq - 1, -1, -1), width, layout="halves"
    )
    relative = encoding @ weights["kernel"][:, 0]
    scores = (query[0] + weights["position_bias"]) @ relative.T
    padded = np.pad(scores, [(0, 0), (1, 0)])
    shifted = np.reshape(padded, (seq + 1, seq))[1:]
    lower = np.tril(np.ones((seq, seq), bool))
    near(bias[0][lower], shifted[lower] / math.sqrt(dim), SUMS)


def test_fire_sees_a_share() -> None:
    """With a network that answers with what it sees."""
    identity = {"hidden_kernel": [[1.0]], "output_kernel": [[1.0]]}
    bias = ref.fire_bias([3, 100], [0, 3, 50], 2.0, 10.0, identity)
    expected = [
        [math.log(7) / math.log(21), 0.0, math.nan],
        [1.0, math.log(195) / math.log(201), math.log(101) / math.log(201)],
    ]
    np.testing.assert_allclose(bias[0], expected, rtol=8 * UNIT, atol=0)


def test_kerple_includes_alibi() -> None:
    """Exponent 1 is a linear bias."""
    distance = np.abs(np.arange(5)[:, np.newaxis] - np.arange(5))
    linear = ref.kerple_bias(distance, [0.5, 0.25], [1.0, 1.0], "power")
    two = ref.alibi_bias(np.arange(5), np.arange(5), 2, alibi_bias_max=2)
    near(linear, two, 0.0)
    logarithm = ref.kerple_bias([[math.e - 1]], [2.0], [1.0])
    near(logarithm, [[[-2.0]]], 8 * UNIT)


def test_relative_attention_without_tables_is_attention() -> None:
    """Tables of zeros change nothing; one of ones adds the sum of weights."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2, 5, 4))
    plain, _ = ref.scaled_dot_product_attention(q, k, v)
    zeros, ones = np.zeros((7, 4)), np.ones((7, 4))
    got = ref.relative_attention(q, k, v, np.arange(5), zeros, zeros)
    near(got, plain, SUMS)
    got = ref.relative_attention(q, k, v, np.arange(5), ones, ones)
    near(got, plain + 1, SUMS)


# ---- Times and grids


@property_test
@given(
    time=st.integers(-(2**48), 2**48),
    fraction=st.floats(0, 1),
    frequency=st.floats(1e-12, 1e3),
)
def test_time_angles_against_mpmath(time, fraction, frequency):
    with mpmath.workdps(60):
        turns = (mpmath.mpf(time) + fraction) * mpmath.mpf(frequency)
        sine, cosine = mpmath.sinpi(2 * turns), mpmath.cospi(2 * turns)
    angle = ref.time_angles([time], [frequency], fraction)[0, 0]
    # The turn and its product with 2 pi are rounded, and 2 pi is: 3 units of
    # at most pi; the sine or cosine itself to 4 ulp.
    bound = (3 * math.pi + 8) * UNIT
    assert abs(math.sin(angle) - float(sine)) <= bound
    assert abs(math.cos(angle) - float(cosine)) <= bound


def test_axial_encoding_of_one_cell():
    # Cell (2, 3) of width 8: two pairs for each axis, of base 100: 1 and 0.1.
    angles = [2.0, 0.2, 3.0, 0.3]
    want = np.ravel([[math.sin(a), math.cos(a)] for a in angles])
    got = ref.axial_encoding((4, 5), 8, 100.0)
    assert got.shape == (4, 5, 8)
    np.testing.assert_allclose(got[2, 3], want, rtol=0, atol=2 * ENTRY)
    other = ref.axial_encoding((4, 5), 8, 100.0, last_axis_first=True)
    np.testing.assert_array_equal(other[2, 3], np.roll(got[2, 3], 4))
    # What is too many is cut off at the end.
    np.testing.assert_array_equal(
        ref.axial_encoding((4, 5), 7, 100.0), got[..., :7]
    )


def test_index_encoding_of_a_row():
    segments, mask = [[7, 7, 7, 8, 8]], [[1, 1, 0, 1, 1]]
    index = ref.index_encoding([[0, 1, 2, 0, 1]], segments, mask, True)
    assert index[..., 0].tolist() == [[0, 0.5, 1, 0, 0.5]]
    row = ref.index_encoding([[0, 1, 2, 3, 4]], None, mask, True)
    assert row[..., 0].tolist() == [[0, 0.25, 0.5, 0.75, 1]]
    assert ref.index_encoding([[3, 4]])[..., 0].tolist() == [[3, 4]]


def test_resized_table_of_three_rows():
    table = [[0.0, 5.0], [2.0, 3.0], [8.0, 1.0]]
    want = [[0, 5], [1, 4], [2, 3], [5, 2], [8, 1]]
    assert ref.resized_table(table, 5).tolist() == want
    assert ref.resized_table(table, 1).tolist() == [[0, 5]]
