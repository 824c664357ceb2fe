"""Biases and relative embeddings: other libraries' numbers, and the papers."""

import math

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.ops.attention import attention_weights
from tests import reference as ref
from tests.layers import cases_of, draw, numpy, randomised

HUGGING_FACE = cases_of("position_parity")
UNIT = 2.0**-24
HEADS, DIM = 3, 8
FARTHEST = 100_000
POSITIONS = np.array([[0, 1, 2, 600, 100_000], [7, 3, 3, 0, 12]])


def bias_of(layer, query_positions, key_positions, heads=HEADS, **options):
    """Of queries and keys that are 0."""
    query = ops.zeros((1, heads, np.shape(query_positions)[-1], 4), **options)
    places = map(ops.convert_to_tensor, (query_positions, key_positions))
    return ops.convert_to_numpy(layer.bias(query, query, *places))


def built(layer, heads=HEADS, seed=0):
    layer.build((None, heads, None, 4))
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


# ---- ALiBi


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("heads", "dtype", "positions"),
    [
        (3, "bfloat16", [[0, 1, 2**24 - 1, 1000], [-5, 7, 4097, -(2**23)]]),
        (12, "float16", np.array([[0, 0.5, 1000.25, -3]], "float32")),
        pytest.param(
            *(5, "float32", [[2**40 + 5, 0, 2**40 + 105]]),
            marks=pytest.mark.tensorflow,  # 64 bits
        ),
    ],
    ids=["far", "real", "times"],
)
def test_alibi_is_the_paper(bidirectional, heads, dtype, positions, near):
    """Rounded twice, slope and product, also beside low-precision queries."""
    layer = kp.AlibiBias(bidirectional=bidirectional, dtype=dtype)
    positions = np.asarray(positions)
    queries = positions[:, ::2]
    got = bias_of(layer, queries, positions, heads, dtype=dtype)
    assert got.dtype == "float32"
    want = ref.alibi_bias(
        queries, positions, heads, bidirectional=bidirectional
    )
    near(got, want, 2.1 * UNIT * np.abs(want))


# ---- T5


def numbered(num_buckets, max_distance, bidirectional=True):
    """A layer whose bias is the number of the bucket."""
    layer = kp.RelativePositionBias(
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    layer.build((None, 1, None, 4))
    layer.embeddings.assign(np.arange(num_buckets)[:, np.newaxis])
    return layer


@pytest.mark.parametrize("case", [c for c in HUGGING_FACE if "t5/" in c])
def test_buckets_parity(case):
    """Integer for integer, at every distance of up to 100,000."""
    num_buckets, max_distance, both = map(int, case.split("/")[1].split("_"))
    layer = numbered(num_buckets, max_distance, bool(both))
    relative = np.arange(-FARTHEST, FARTHEST + 1)
    theirs = HUGGING_FACE[case]
    runs = np.searchsorted(theirs["starts"], relative, "right")
    start = 2**24 - FARTHEST
    got = bias_of(layer, [[start]], (start + relative)[np.newaxis], 1)
    np.testing.assert_array_equal(got[0, 0, 0], theirs["buckets"][runs - 1])


def test_real_distances_count_by_their_whole_part():
    layer = numbered(8, 20)
    got = bias_of(
        layer, [[0.0]], np.array([[1.9, -1.9, 0.5, -0.5, 1e9]], "f4"), 1
    )
    whole = bias_of(layer, [[0]], np.array([[1, -1, 0, 0, 10**9]], "i4"), 1)
    np.testing.assert_array_equal(got, whole)


# ---- KERPLE and FIRE


@pytest.mark.parametrize("directions", ["both", "causal"])
def test_kerple_parity(directions, near):
    """NeMo's, in float32, has as many roundings as ours."""
    case = cases_of("learned_bias_parity")[f"kerple/log/{directions}"]
    layer = kp.positions.KerpleBias("log", bidirectional=directions == "both")
    layer.build((None, HEADS, None, 4))
    layer.set_weights([np.log(case["scale"]), np.log(case["shape"])])
    want = case["bias"]
    places = np.arange(want.shape[-1])[np.newaxis]
    # An exponent of up to 2 log(23), and two weights through a logarithm.
    bound = 2 * (8 + 2 * math.log(23) * 4) * UNIT * np.abs(want) + UNIT
    near(bias_of(layer, places, places)[0], want, bound)


@pytest.mark.parametrize(
    ("variant", "bidirectional"),
    [("log", True), ("power", True), ("power", False)],
)
def test_kerple_is_the_paper(variant, bidirectional, near):
    layer = built(kp.positions.KerpleBias(variant, bidirectional=bidirectional))
    scale, shape = (w.astype("float64") for w in layer.get_weights())
    shape = np.exp(shape) if variant == "log" else 2 / (1 + np.exp(-shape))
    keys = POSITIONS[:, ::2]
    relative = keys[:, np.newaxis] - POSITIONS[..., np.newaxis]
    distance = np.abs(relative) if bidirectional else np.maximum(-relative, 0)
    want = ref.kerple_bias(distance, np.exp(scale), shape, variant)
    # Half a dozen roundings, of which an exponent's of up to 23 = 2 log(1e5).
    bound = (6 + 2 * 23) * UNIT * np.abs(want) + UNIT
    near(bias_of(layer, POSITIONS, keys), want, bound)


def test_kerple_is_one_at_first(near):
    layer = kp.positions.KerpleBias("power")
    layer.build((None, HEADS, None, 4))
    bias = bias_of(layer, [[0]], [[0, 1, 5]])
    near(bias[0, :, 0], np.tile([0.0, -1.0, -5.0], (HEADS, 1)), 8 * UNIT * 5)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("threshold", [0.5, 512])
def test_fire_is_the_paper(bidirectional, threshold, near):
    layer = built(
        kp.positions.FireBias(
            initial_threshold=threshold, bidirectional=bidirectional
        )
    )
    got = bias_of(layer, POSITIONS, POSITIONS)
    log_rate, log_factor, *network = layer.get_weights()
    rate, reach = np.exp(float(log_rate)), np.exp(float(log_factor)) * threshold
    names = ("hidden_kernel", "hidden_bias", "output_kernel")
    network = dict(zip(names, network, strict=True))
    want = ref.fire_bias(POSITIONS, POSITIONS, rate, reach, network)
    earlier = ~np.isnan(want)
    assert earlier.mean() > 0.5
    # Of the share the published code's 1e-6 over the logarithm at least, and
    # some roundings; then 32 products.
    share = 1e-6 / np.log(1 + rate * reach) + 16 * UNIT
    steep = np.abs(network["hidden_kernel"]) @ np.abs(network["output_kernel"])
    bound = steep.max() * share + 4 * np.sqrt(32) * 8 * UNIT
    near(got[earlier], want[earlier], bound)
    other = np.swapaxes(got, -1, -2)
    if not bidirectional:
        zero = np.diagonal(got, axis1=-2, axis2=-1)[..., np.newaxis]
        other = np.where(earlier, got, zero)
    near(got, other, 2 * bound)


# ---- Shaw's relative embeddings

# Four standard deviations of sums of 16 products of size 1 and some more.
SUMS = 4 * np.sqrt(32 * 8) * UNIT


def test_relative_keys_parity(near):
    case = HUGGING_FACE["shaw"]
    query = case["query"]
    layer = kp.positions.RelativePositionEmbedding(3, values=False)
    layer.build(query.shape)
    layer.set_weights([case["keys"]])
    positions = ops.expand_dims(ops.arange(query.shape[2]), 0)
    scaled = ops.convert_to_tensor(query * query.shape[-1] ** -0.5)
    near(layer.bias(scaled, scaled, positions, positions), case["bias"], SUMS)


@pytest.mark.parametrize("given", [False, True])
def test_relative_values_are_the_paper(given, near):
    """Of counted tokens, and of positions of which padding has none."""
    rng = np.random.default_rng(0)
    layer = kp.SelfAttention(
        2, attention=kp.positions.RelativePositionEmbedding(3)
    )
    x = rng.normal(size=(3, 9, DIM)).astype("float32")
    layer.build(x.shape)
    randomised(layer, rng)
    mask = rng.random((3, 9)) < 0.8
    places = rng.integers(-20, 20, (3, 9)) if given else np.arange(9)
    extra = {"positions": places} if given else {}
    got = layer(x, mask=mask, **extra)
    kernel, bias = map(numpy, layer.query_key_value.weights)
    x = np.where(mask[..., np.newaxis], x, 0)  # as padding counts
    projected = np.reshape(x @ kernel + bias, (3, 9, 3, 2, DIM // 2))
    # (batch, seq, three, heads, dim) -> three of (batch, heads, seq, dim)
    q, k, v = np.transpose(projected, (2, 0, 3, 1, 4))
    places = np.where(mask, places, 0) if given else places
    attended = ref.relative_attention(
        *(q, k, v, np.broadcast_to(places, (3, 9))[:, np.newaxis]),
        *layer.attention.position.get_weights(),
        mask=mask[:, np.newaxis, np.newaxis],
    )
    kernel, bias = map(numpy, layer.output_projection.weights)
    joined = np.reshape(np.swapaxes(attended, 1, 2), (3, 9, DIM))
    near(got, joined @ kernel + bias, SUMS)


# ---- Transformer-XL


def test_xl_weights_parity(near):
    """XLNet's attention, which shifts rows of scores, gives these weights."""
    case = HUGGING_FACE["xl"]
    query = case["query"]
    _, heads, seq, dim = query.shape
    layer = kp.positions.TransformerXLBias()
    layer.build(query.shape)
    layer.kernel.assign(np.reshape(case["kernel"], (-1, heads * dim)))
    layer.content_bias.assign(case["content_bias"])
    layer.position_bias.assign(case["position_bias"])
    positions = ops.expand_dims(ops.arange(seq), 0)
    scaled = ops.convert_to_tensor(query * dim**-0.5)
    key = ops.convert_to_tensor(case["key"])
    bias = layer.bias(scaled, key, positions, positions)
    got = attention_weights(scaled, key, mask=None, bias=bias)
    # Scores of size 4 from sums of 24 products, under a softmax.
    near(got, case["weights"], 4 * np.sqrt(24) * 4 * UNIT)


@pytest.mark.parametrize("far", [2**24 - 600, -(2**20), 0.25])
def test_xl_sees_differences_alone(far, near):
    """... and repeats the keys of a group."""
    layer = built(kp.positions.TransformerXLBias(6, max_wavelength=1000), 2)
    query, key = (
        ops.convert_to_tensor(draw(1, heads, 4, 4, seed=heads))
        for heads in (2, 1)
    )
    places = np.array([[0, 3, 3, 500]])
    want = numpy(layer.bias(query, key, places, places))
    moved = places + far
    got = layer.bias(query, ops.repeat(key, 2, axis=1), moved, moved)
    # Two encodings of 1e-6 each, of sums of 6 * 4 products of normals.
    near(got, want, 4 * np.sqrt(24) * 4 * 2e-6)
