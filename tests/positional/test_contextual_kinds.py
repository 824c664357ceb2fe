"""xPos, FoX, CoPE, temperatures and combinations: the papers, and refusals."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref
from tests.layers import randomised

FIXTURES = np.load(Path(__file__).parents[1] / "fixtures/position_parity.npz")
UNIT = 2.0**-24
HEADS, SEQ, DIM = 2, 9, 8


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x), "float64")


def draw(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape).astype("float32")


def weights_of(position, x=None, mask=None, **options):
    """The causal attention weights of scores that have no other part."""
    x = draw(2, SEQ, 6, seed=1) if x is None else x
    layer = kp.SelfAttention(
        HEADS, attention=kp.Attention(position, head_dim=DIM), **options
    )
    layer.build(x.shape)
    randomised(position)
    dense = layer.query_key_value
    dense.set_weights([0 * weight for weight in dense.get_weights()])
    _, weights = layer(
        x, mask=mask, use_causal_mask=True, return_attention_scores=True
    )
    return numpy(weights)


# ---- xPos


@pytest.mark.parametrize(
    ("scale_base", "places", "layout"),
    [
        (512, [0, 1, 7, 300, 2047, 2048, 5000, 53_700], "halves"),
        (512, [-4096, -4095, -1, 0, 1.5, 100.25], "interleaved"),
        (3, [0, 1, 2, 3, 4, 100, 101, 300], "halves"),
    ],
)
def test_xpos_is_the_paper(scale_base, places, layout, near):
    """As far from 0 as it reaches, and from distance 0 to all of that."""
    layer = kp.positions.XPosEmbedding(scale_base, layout=layout)
    places = np.array([places])
    query, key = draw(2, 1, 1, places.size, DIM)
    turned = layer.rotate(ops.convert_to_tensor(query), places)
    keys = layer.rotate_keys(ops.convert_to_tensor(key), places)
    scores = np.einsum("bhqd,bhkd->bhqk", numpy(turned), numpy(keys))[0, 0]
    want = ref.xpos_scores(
        query[0, 0], key[0, 0], places[0], places[0], scale_base, layout=layout
    )
    # Sines within 6e-7 each, and a dozen roundings of scales and products.
    size = np.abs(query[0, 0]) @ np.abs(key[0, 0]).T
    earlier = np.tril(np.ones_like(want, bool))
    near(scores[earlier], want[earlier], (32 * UNIT * size)[earlier])


@pytest.mark.parametrize("bad", [-4097, 53_760, np.nan, 2.0**24 + 2])
def test_xpos_out_of_reach_is_nan(bad):
    layer = kp.positions.XPosEmbedding()
    x = ops.convert_to_tensor(draw(1, 1, 2, DIM))
    for hook in (layer.rotate, layer.rotate_keys):
        outputs = numpy(hook(x, np.array([[1, bad]], "float32")))
        assert np.isnan(outputs[0, 0, 1]).all()
        assert np.isfinite(outputs[0, 0, 0]).all()


# ---- FoX


def test_forgetting_is_the_paper(near):
    """The gates come from what attention takes, and padding forgets nothing."""
    x = draw(2, SEQ, 6, seed=1)
    mask = np.ones((2, SEQ), bool)
    mask[1, [0, 3, 4]] = False
    position = kp.positions.ForgettingBias(bidirectional=False)
    weights = weights_of(position, x, mask)
    kernel, bias = position.get_weights()
    gates = 1 / (1 + np.exp(-(x.astype("float64") @ kernel + bias)))
    for row in range(2):
        real = np.flatnonzero(mask[row])
        for head in range(HEADS):
            scores = ref.forgetting_bias(gates[row, real, head])
            want = np.nan_to_num(np.exp(scores))
            want /= want.sum(axis=-1, keepdims=True)
            got = weights[row, head][np.ix_(real, real)]
            near(got, want, 64 * UNIT)


def test_forgetting_sums_over_long_texts(near):
    """A thousand gates near 1: a sum of errors of one sign would show."""
    position = kp.positions.ForgettingBias(bidirectional=False)
    position.build((1, HEADS, 1024, DIM), (1, 1024, 1))
    position.set_weights([np.zeros((1, HEADS)), np.full(HEADS, 7.0)])
    places = ops.cumsum(position.steps(ops.ones((1, 1024, 1))), axis=1)
    places = numpy(places)[0, :, 0]
    step = -np.log1p(np.exp(-7.0))
    want = step * np.arange(1, 1025)
    # Each sum rounds once, by half a unit of at most 1.
    near(places, want, 1024 * UNIT * np.abs(want) + UNIT)


def test_forgetting_looks_both_ways(near):
    x = draw(1, SEQ, 6, seed=1)
    position = kp.positions.ForgettingBias()
    position.build((1, HEADS, SEQ, DIM), x.shape)
    randomised(position)
    places = ops.transpose(ops.cumsum(position.steps(x), axis=1), (0, 2, 1))
    bias = numpy(position.contextual_bias(None, None, None, places, places))
    near(bias, np.swapaxes(bias, -1, -2), 0)
    causal = kp.positions.ForgettingBias(bidirectional=False)
    one_way = numpy(causal.contextual_bias(None, None, None, places, places))
    later = np.triu(np.ones((SEQ, SEQ), bool), 1)
    near(one_way, np.where(later, 0, bias), 0)


# ---- CoPE


@pytest.mark.parametrize("max_position", [1, 3, 64])
def test_contextual_is_the_paper(max_position, near):
    query, key = draw(2, 1, HEADS, SEQ, DIM, seed=2)
    visible = np.tril(np.ones((SEQ, SEQ), bool))
    visible[:, 2] = False
    layer = kp.positions.ContextualBias(max_position)
    layer.build((1, HEADS, SEQ, DIM))
    layer.set_weights([draw(max_position + 1, DIM, seed=3)])
    got = layer.contextual_bias(
        ops.convert_to_tensor(query) * DIM**-0.5,
        ops.convert_to_tensor(key),
        ops.convert_to_tensor(visible[None, None]),
        None,
        None,
    )
    got = numpy(got)[0]
    (table,) = layer.get_weights()
    size = np.abs(query[0]).max() * np.abs(table).sum(-1).max()
    for head in range(HEADS):
        want = ref.contextual_bias(query[0, head], key[0, head], table, visible)
        # Positions of up to 9 are sums of 9 gates.
        near(got[head], want, 16 * 9 * UNIT * size)


# ---- Temperatures


def test_temperature_parity(near):
    """A block of Llama 4 without rotation, in float32 as ours."""
    case = {
        name.removeprefix("temperature/"): FIXTURES[name]
        for name in FIXTURES.files
        if name.startswith("temperature/")
    }
    position = kp.positions.AttentionTemperature(
        float(case["attn_scale"]), floor_scale=float(case["floor_scale"])
    )
    layer = kp.SelfAttention(
        2,
        attention=kp.Attention(position, num_key_value_heads=1),
        use_bias=False,
    )
    x = case["inputs"]
    layer.build(x.shape)
    names = ("query_kernel", "key_kernel", "value_kernel")
    kernel = np.concatenate([case[name] for name in names], axis=1)
    layer.set_weights([kernel, case["output_kernel"]])
    got = layer(x, use_causal_mask=True)
    # Scores of up to 60 are rounded, then sums of 12 values of up to 8.
    near(got, case["outputs"], 64 * 8 * 8 * UNIT)


def test_temperature_steps_in_graphs(near):
    """A product with the reciprocal of 47 is one step off at some multiples."""
    layer = kp.positions.AttentionTemperature(1.0, floor_scale=47)
    places = keras.Input((5000,), dtype="int32")
    model = keras.Model(
        places,
        keras.layers.Lambda(
            lambda at: layer.rotate(ops.ones((1, 1, 5000, 1)), at),
            output_shape=(1, 5000, 1),
        )(places),
    )
    row = np.arange(5000)[np.newaxis]
    want = ref.attention_temperature(row, 1.0, 47)
    near(model.predict(row, verbose=0)[0, 0, :, 0], want[0], 32 * UNIT)


def test_temperatures_scale_queries_alone(near):
    x = ops.ones((1, HEADS, 6, DIM))
    places = np.array([[-3.0, 0, 6, 7, 2**20, 2**24]])
    known = np.maximum(places, 0)
    layer = kp.positions.AttentionTemperature(0.1, floor_scale=8)
    want = ref.attention_temperature(known, 0.1, 8)
    near(layer.rotate(x, places)[0, 0, :, 0], want[0], 8 * UNIT)
    assert layer.rotate_keys(x, places) is x
    layer = kp.positions.ScalableSoftmax(0.5)
    layer.build((1, HEADS, 6, DIM))
    layer.set_weights([np.array([0.5, 2.0])])
    got = numpy(layer.rotate(x, places))[0, :, :, 0]
    # n ** (s z) is exp(s log(n) z): section 3.
    near(got, np.outer([0.5, 2], np.log(known[0] + 1)), 16 * 32 * UNIT)
    assert layer.rotate_keys(x, places) is x


# ---- Combinations


def test_combined_is_one_after_the_other(near):
    x = draw(2, SEQ, 8, seed=4)
    rotary, softmax = kp.RotaryEmbedding(), kp.positions.ScalableSoftmax()
    alibi = kp.AlibiBias()
    combined = kp.positions.CombinedPosition([rotary, softmax, alibi, "t5"])
    layer = kp.SelfAttention(HEADS, attention=combined)
    layer.build(x.shape)
    randomised(combined)
    query, key = draw(2, 2, HEADS, SEQ, 4)
    query, key = map(ops.convert_to_tensor, (query, key))
    places = ops.expand_dims(ops.arange(SEQ), 0)
    want = softmax.rotate(rotary.rotate(query, places), places)
    near(combined.rotate(query, places), numpy(want), 0)
    want = rotary.rotate(key, places)
    near(combined.rotate_keys(key, places), numpy(want), 0)
    want = sum(
        numpy(each.bias(query, key, places, places))
        for each in (alibi, combined.attention_positions[3])
    )
    near(combined.bias(query, key, places, places), want, 16 * UNIT)
    alone = weights_of(kp.positions.ForgettingBias(bidirectional=False))
    both = weights_of(
        kp.positions.CombinedPosition(
            [
                kp.AlibiBias(1e9),
                kp.positions.ForgettingBias(bidirectional=False),
            ]
        )
    )
    near(both, alone, 16 * UNIT)  # slopes of 2 ** -5e8 are 0


def test_combined_is_each_in_its_own_precision(near):
    """xPos scales less far in float16, queries and keys alike."""
    xpos, places = kp.positions.XPosEmbedding(8), np.arange(9)[np.newaxis]
    combined = kp.positions.CombinedPosition(
        [kp.positions.AttentionTemperature(), xpos]
    )
    x = ops.cast(draw(1, 1, 9, DIM), "float16")
    for hook in ("rotate", "rotate_keys"):
        want = ops.cast(getattr(xpos, hook)(x, places), "float16")
        near(getattr(combined, hook)(x, places), numpy(want), 0)


# ---- Padding


@pytest.mark.parametrize(
    "position",
    [
        kp.positions.FireBias(initial_threshold=3.0),
        kp.positions.AttentionTemperature(0.5, floor_scale=3),
        kp.positions.CombinedPosition(
            ["rotary", kp.positions.ScalableSoftmax()]
        ),
    ],
    ids=lambda position: type(position).__name__,
)
def test_padding_on_the_left_is_not_counted(position):
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 50, (2, 9))
    ids[1, :5] = 0
    model = kp.TransformerDecoderModel(
        50,
        d_model=16,
        num_layers=1,
        num_heads=2,
        intermediate_dim=16,
        input_position=None,
        attention=position,
    )
    for weight in model.trainable_variables:
        if weight.ndim > 1:
            weight.assign(rng.normal(0, 0.5, weight.shape))
    found = ops.convert_to_numpy(model(ids))[1, 5:]
    alone = ops.convert_to_numpy(model(ids[1:, 5:]))[0]
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-5)
