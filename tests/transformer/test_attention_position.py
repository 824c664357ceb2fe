"""Positions inside attention: hooks, sharing, and saving."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests.layers import numpy, randomised

SEQ, DIM, HEADS = 6, 8, 2
SIZE = DIM // HEADS
# As in test_self_attention.py.
FLOAT32 = 4 * np.sqrt(32 * 8) * 2**-24


def near(actual, expected, tolerance=FLOAT32):
    actual = actual if isinstance(actual, np.ndarray) else numpy(actual)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def inputs(batch=2, seq=SEQ, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch, seq, DIM)).astype("float32")


@pytest.mark.parametrize(
    ("start", "segments"),
    [(3, None), (np.array([3, 40]), [[1, 1, 2, 2, 2, 3]] * 2)],
)
def test_counting_begins_at_the_start_index(start, segments):
    """... which a bias that depends on more than differences can see."""
    position = kp.positions.FireBias(initial_threshold=1)
    layer = kp.TransformerEncoder(
        2, num_heads=HEADS, intermediate_dim=8, attention=position
    )
    extra = {}
    places = np.arange(SEQ)
    if segments is not None:
        extra = {"segment_ids": np.array(segments)}
        places = np.array([0, 1, 0, 1, 2, 0])
    x, places = inputs(), np.reshape(start, (-1, 1)) + places
    places = np.broadcast_to(places, (2, SEQ))
    expected = numpy(layer(x, positions=places, **extra))
    near(layer(x, start_index=start, **extra), expected)


# ---- The positions that hooks receive


class Witness(kp.AttentionPosition):
    """Remembers what reached it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seen = []

    def rotate(self, x, positions):
        self.seen.append(positions)
        return x

    def bias(self, query, key, query_positions, key_positions):
        self.seen += [query_positions, key_positions]
        self.query, self.key = query, key
        return ops.zeros((1, 1, 1, 1), dtype=query.dtype)

    def values(self, weights, query_positions, key_positions):
        self.seen += [query_positions, key_positions]
        self.shares = weights
        return ops.zeros((1, 1, 1, 1), dtype=weights.dtype)


LAYERS = {
    "attention": lambda **kwargs: kp.SelfAttention(HEADS, **kwargs),
    "block": lambda **kwargs: kp.TransformerEncoderBlock(
        HEADS, intermediate_dim=8, **kwargs
    ),
    "encoder": lambda **kwargs: kp.TransformerEncoder(
        2, num_heads=HEADS, intermediate_dim=8, **kwargs
    ),
}


@pytest.mark.parametrize(
    ("key", "dtype", "functional"),
    [
        ("attention", "bfloat16", True),
        ("block", "mixed_bfloat16", False),
        ("encoder", "bfloat16", False),
        ("encoder", "mixed_bfloat16", True),
    ],
)
def test_real_positions_arrive_as_they_are(key, dtype, functional):
    # In bfloat16 all of these are one and the same number.
    positions = 1000.5 + np.arange(SEQ, dtype="float32")[np.newaxis] / 8
    witness = Witness(dtype=dtype)
    layer = LAYERS[key](attention=witness, dtype=dtype)
    if functional:
        tokens = keras.Input((None, DIM), name="tokens")
        places = keras.Input((None,), name="places")
        model = keras.Model([tokens, places], layer(tokens, positions=places))
        model([inputs(batch=1), positions])
    else:
        layer(inputs(batch=1), positions=positions)
    assert len(witness.seen) == 6 * (2 if key == "encoder" else 1)
    for seen in witness.seen:
        assert keras.backend.standardize_dtype(seen.dtype) == "float32"
        np.testing.assert_array_equal(ops.convert_to_numpy(seen), positions)


@pytest.mark.parametrize(
    ("given", "shape", "dtype"),
    [
        (None, (1, SEQ), "int32"),
        (np.arange(SEQ, dtype="int32") + 7, (1, SEQ), "int32"),
        (np.arange(SEQ, dtype="float32") / 3, (1, SEQ), "float32"),
        (np.ones((2, SEQ), "int32"), (2, SEQ), "int32"),
    ],
)
def test_shapes_that_hooks_receive(given, shape, dtype):
    witness = Witness()
    layer = kp.SelfAttention(
        HEADS, attention=kp.Attention(witness, num_key_value_heads=1)
    )
    layer(inputs(), positions=given)
    for seen in witness.seen:
        assert seen.shape == shape
        assert keras.backend.standardize_dtype(seen.dtype) == dtype
    assert witness.query.shape == (2, HEADS, SEQ, SIZE)
    assert witness.key.shape == (2, 1, SEQ, SIZE)
    assert witness.shares.shape == (2, HEADS, SEQ, SEQ)


# ---- Sharing and saving


IDS = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5]])
BARE = 1 + 12 * 3  # an embedding, and 12 weights in each block


def layout(positions):
    """The config of each position, and which of them are one layer."""
    ids = [id(position) for position in positions]
    return [(p and p.get_config(), ids.index(id(p))) for p in positions]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [kp.positions.KerpleBias("power")] * 3,
        lambda: [kp.RelativePositionBias(8), None, kp.RelativePositionBias()],
        lambda: [
            first := kp.RelativePositionBias(),
            kp.RelativePositionBias(8),
            first,
        ],
    ],
    ids=["shared", "each", "twice"],
)
def test_positions_of_blocks_are_saved_as_they_are_shared(make, tmp_path):
    positions = make()
    given = positions[0] if len({*map(id, positions)}) == 1 else positions
    model = kp.TransformerEncoderModel(
        20,
        d_model=DIM,
        num_layers=3,
        num_heads=HEADS,
        intermediate_dim=8,
        dropout=0.0,
        input_position=None,
        attention=given,
    )
    randomised(model)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    near(loaded(IDS), numpy(model(IDS)), 0)
    for each in (model, loaded):
        assert len(each.weights) == BARE + 2
        blocks = [b.attention.attention_position for b in each.encoder.blocks]
        assert layout(blocks) == layout(positions)
        held = each.encoder.attention
        held = [held] * 3 if given is positions[0] else held
        assert layout([spec.position for spec in held]) == layout(positions)


@pytest.mark.parametrize(
    ("hook", "cut"),
    [
        ("rotate", lambda x: x[..., :1]),  # which would broadcast
        ("rotate", lambda x: x[0]),
        ("bias", lambda x: x[:, :, :, :2]),
        ("bias", lambda x: ops.repeat(x, 2, axis=1)),
        ("values", lambda x: ops.expand_dims(x, 0)),
        ("values", lambda x: x[..., :2]),
    ],
)
def test_hooks_of_a_wrong_shape(hook, cut):
    class Wrong(kp.AttentionPosition):
        pass

    def answer(self, x, *positions):
        if hook == "bias":
            return cut(ops.matmul(x, ops.swapaxes(x, -1, -2)))
        return cut(ops.zeros((2, HEADS, 3, 4)) if hook == "values" else x)

    setattr(Wrong, hook, answer)
    layer = kp.SelfAttention(HEADS, attention=Wrong(name="a_name"))
    x = ops.ones((2, 3, 4 * HEADS))
    message = f"The hook `{hook}` of Wrong 'a_name' must return"
    with pytest.raises(ValueError, match=message):
        layer(x)


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        *((hook, None) for hook in ("rotate", "bias", "values")),
        *((hook, 0.0) for hook in ("bias", "values")),
    ],
)
def test_hooks_that_have_nothing_to_say(hook, answer):
    class Silent(kp.AttentionPosition):
        pass

    setattr(Silent, hook, lambda self, *arguments: answer)
    x = np.random.default_rng(0).normal(size=(2, 3, 4 * HEADS))
    layer = kp.SelfAttention(HEADS, attention=Silent())
    outputs = layer(x)
    layer.attention_position = None
    np.testing.assert_array_equal(outputs, layer(x))


@keras.saving.register_keras_serializable(package="tests")
class Backwards(kp.RotaryEmbedding):
    def rotate(self, x, positions):
        return super().rotate(x, -positions)


@pytest.mark.parametrize("kind", [kp.RotaryEmbedding, Backwards])
def test_blocks_rotate_in_a_stack_as_alone(kind):
    """They share the sines of one call, unless a subclass has its own way."""
    x = inputs(seq=5)
    sizes = {"num_heads": HEADS, "intermediate_dim": 8}
    stack = kp.TransformerEncoder(3, attention=kind(), **sizes)
    stack.build(x.shape)
    found = numpy(stack(x))
    for block in stack.blocks:
        x = block(x)
    near(found, numpy(x), 0)
