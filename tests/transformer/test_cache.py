"""Token by token as all at once: the cache of both decoding models.

Loops over a cache are those of a generator: `tests/generation`.

The oracle is the model's own answer to whole sequences, which other files hold
to the paper.
"""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.ops import attention
from tests.layers import (
    CAUSAL_POSITIONS,
    POSITIONS,
    by_steps,
    numpy,
    randomised,
)
from tests.refusals import check, table

VOCABULARY, LENGTH = 30, 9
SIZES = {"d_model": 16, "num_layers": 2, "num_heads": 4, "intermediate_dim": 32}
SOURCE = np.array(
    [[3, 4, 5, 6, 0, 0], [7, 8, 9, 1, 2, 3], [0, 0, 4, 5, 6, 1]], "int32"
)
TARGET = np.random.default_rng(1).integers(1, VOCABULARY, (3, LENGTH), "int32")
# What is promised; logits are of up to 8.
TOLERANCE = 1e-5
# In bfloat16: 2 + 2 blocks of 26 to 40 roundings, each of numbers of up to 8.
LOW_TOLERANCE = 4 * np.sqrt(130) * 2**-9 * 2
YARN = {
    "rope_type": "yarn",
    "factor": 4,
    "original_max_position_embeddings": 16,
}
IN_ATTENTION = {
    "none": lambda: None,
    **POSITIONS,
    "yarn": lambda: kp.RotaryEmbedding(layout="interleaved", scaling=YARN),
    "t5-causal": lambda: kp.RelativePositionBias(bidirectional=False),
    "fourier": lambda: kp.positions.FourierEmbedding(8, num_key_value_heads=2),
}
# Of a decoder alone: an encoder is not causal.
CAUSAL = {
    **CAUSAL_POSITIONS,
    "sections": lambda: kp.RotaryEmbedding(axes={"mrope_section": [1, 1]}),
    "combined": lambda: kp.positions.CombinedPosition(
        [
            kp.positions.AttentionTemperature(floor_scale=2),
            kp.positions.ScalableSoftmax(),
            kp.positions.ForgettingBias(),
        ]
    ),
}


class Angles(keras.Layer):
    """A user's own positions."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, positions=None):
        if positions is None:
            positions = ops.arange(ops.shape(inputs)[1])
        angles = ops.cast(ops.expand_dims(positions, -1), inputs.dtype)
        return inputs + ops.sin(angles)


AT_THE_INPUT = {
    "none": lambda: None,
    "sinusoidal": lambda: "sinusoidal",
    "learned": lambda: kp.PositionEmbedding(LENGTH + 5, dropout=0.5),
    "index": lambda: kp.positions.IndexEncoding(skip_masked=True, dropout=0.5),
    "time": lambda: kp.TimeEncoding(kind="learned"),
    "own": lambda: Angles(),
}
PLAIN = kp.Attention()
# What blocks of recent decoders have.
NORMS = {
    "attention": kp.Attention(
        num_key_value_heads=2, head_dim=6, query_key_norm=True, use_bias=True
    ),
    "use_bias": False,
    "norm": kp.Norm("rms", at="before output"),
}
BLOCKS = {
    "post": {},
    "pre-rms-grouped": {
        "norm": kp.Norm("rms", at="before"),
        "attention": kp.Attention(num_key_value_heads=2),
        "embeddings": "separate",
    },
    "norms": NORMS,
}
WINDOWS = {**NORMS, "pad_id": -1}


def whole(**options):
    layers = {"num_layers": 1, "num_decoder_layers": 2}
    return randomised(
        kp.Transformer(VOCABULARY, **{**SIZES, **layers, **options})
    )


def alone(**options):
    return randomised(
        kp.TransformerDecoderModel(VOCABULARY, **{**SIZES, **options})
    )


def near(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(
        numpy(actual), numpy(expected), rtol=0, atol=tolerance
    )


@pytest.mark.parametrize(
    ("position", "blocks"),
    [
        (position, BLOCKS[names[i % len(names)]])
        for names in [[*BLOCKS]]
        for i, position in enumerate(IN_ATTENTION.values())
    ],
    ids=IN_ATTENTION,
)
def test_steps_are_the_whole(position, blocks):
    spec = replace(blocks.get("attention", PLAIN), position=position())
    across = replace(spec, position=kp.RelativePositionBias())
    blocks = {**blocks, "attention": spec, "cross_attention": across}
    model = whole(num_decoder_layers=1, **blocks)
    expected = model({"source": SOURCE, "target": TARGET})
    cache = model.build_cache(SOURCE, LENGTH + 2)
    near(by_steps(model, cache, TARGET), expected)


@pytest.mark.parametrize("name", CAUSAL)
def test_steps_of_causal_positions(name):
    """Padding before a prompt counts for nothing, in the cache neither."""
    model = alone(
        input_position=None,
        attention=kp.Attention(CAUSAL[name](), num_key_value_heads=2, window=4),
        num_layers=1,
    )
    target = TARGET.copy()
    if name != "combined":  # temperatures are of positions, not of distances
        target[1, :3] = 0
    cache = model.build_cache(3, LENGTH + 2)
    got = numpy(by_steps(model, cache, target))
    real = target > 0
    near(got[real], numpy(model(target))[real])


@pytest.mark.parametrize("make", [whole, alone])
@pytest.mark.parametrize("name", AT_THE_INPUT)
def test_steps_of_input_positions(name, make):
    """Positions count from the first real token: padding on either side."""
    target = TARGET.copy()
    target[0, 6:] = target[1, :3] = target[2, 2] = 0
    real = target > 0
    position = AT_THE_INPUT[name]()
    if make is whole:
        options = {"target_attention": None, "num_decoder_layers": 1}
        of_cache, inputs = SOURCE, {"source": SOURCE, "target": target}
    else:
        options, of_cache, inputs = {"num_layers": 1}, 3, target
    model = make(input_position=position, **options)
    cache = model.build_cache(of_cache, LENGTH)
    if name in ("index", "own"):  # as in files of steps, which hold no table
        cache.pop("encoding", None)
    steps = numpy(by_steps(model, cache, target))
    near(steps[real], numpy(model(inputs))[real])


@pytest.mark.parametrize(
    ("position", "most"),
    [
        ("alibi", None),
        *(
            pytest.param(name, 1, marks=pytest.mark.tensorflow)
            for name in ("rotary", "t5", "shaw", "xl")
        ),
    ],
)
def test_a_prompt_in_parts(position, most, monkeypatch):
    """... also where a part has so many scores that it goes in blocks."""
    if most:
        monkeypatch.setattr(attention, "MAX_SCORES", most)
        monkeypatch.setattr(attention, "BLOCK", 2)
    model = alone(attention=IN_ATTENTION[position]())
    cache = model.build_cache(3, 20)
    parts = []
    for begin, end in ((0, 4), (4, 6), (6, 9)):
        logits, cache = model.call_with_cache(TARGET[:, begin:end], cache)
        parts.append(logits)
    monkeypatch.undo()
    near(ops.concatenate(parts, axis=1), model(TARGET))
    assert int(ops.convert_to_numpy(cache["slot"])) == LENGTH


@pytest.mark.parametrize(
    ("make", "options", "left"),
    [
        (kp.RotaryEmbedding, {}, False),
        (kp.positions.FireBias, {}, True),
        (kp.RotaryEmbedding, WINDOWS, False),
        (kp.RotaryEmbedding, WINDOWS, True),
    ],
)
def test_ragged_prompts_are_each_alone(make, options, left):
    """Slots are not positions; what padding holds is nobody's business."""
    spec = replace(options.get("attention", PLAIN), position=make())
    options = {**options, "attention": spec}
    if options.get("pad_id") == -1:
        options["attention"] = [replace(spec, window=2), spec]
    model = alone(**options)
    lengths = np.array([5, 2, 4])
    places = np.arange(5)
    mask = places < lengths[:, np.newaxis]
    if left:
        mask = np.ascontiguousarray(mask[:, ::-1])  # as torch needs it
    prompt = np.where(mask, TARGET[:, :5], 29)
    more = TARGET[:, 5:7]
    logits, cache = model.call_with_cache(
        prompt, model.build_cache(3, LENGTH), mask=mask
    )
    steps = by_steps(model, cache, more, prompt=1)
    for row in range(3):
        tokens = np.concatenate([prompt[row][mask[row]], more[row]])
        expected = model(tokens[np.newaxis])
        real = logits[row][mask[row]]
        near(real, expected[0, : lengths[row]])
        near(steps[row], expected[0, lengths[row] :])


def test_padding_of_nan():
    """Id 0 is padding unless a mask says otherwise, whatever its vector."""
    model = whole()
    target = TARGET[:, :7].copy()
    target[1, 4:6] = target[2, :2] = 0
    expected = by_steps(model, model.build_cache(SOURCE, LENGTH), target, 5)
    table = numpy(model.embedding.embeddings)
    table[0] = np.nan
    model.embedding.embeddings.assign(table)
    outputs = by_steps(model, model.build_cache(SOURCE, LENGTH), target, 5)
    # Its own logit is a product with that vector.
    near(outputs[..., 1:], expected[..., 1:], 0)


def test_reordered_rows_go_on_as_they_were():
    model = whole(attention=kp.RelativePositionBias())
    _, cache = model.call_with_cache(
        TARGET[:, :4], model.build_cache(SOURCE, LENGTH)
    )
    rows = np.array([2, 0, 0, 1], "int32")
    sources = model({"source": SOURCE[rows], "target": TARGET[rows]})
    reordered = model.reorder_cache(cache, rows)
    near(by_steps(model, reordered, TARGET[rows, 4:6], 1), sources[:, 4:6])


def test_mixed_precision():
    exact, low = whole(), whole(dtype="mixed_bfloat16")
    low.set_weights(exact.get_weights())
    cache = low.build_cache(SOURCE, LENGTH)
    key = cache["blocks"][0]["key"]
    assert keras.backend.standardize_dtype(key.dtype) == "bfloat16"
    expected = exact({"source": SOURCE, "target": TARGET})
    near(by_steps(low, cache, TARGET), expected, LOW_TOLERANCE)


@pytest.mark.tensorflow
@pytest.mark.parametrize("rows", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_steps_that_xla_compiles(rows):
    """One row is multiplied in parts, and tokens are written in place."""
    import tensorflow as tf

    model = whole(attention=kp.RotaryEmbedding(), num_decoder_layers=1)
    source, target = SOURCE[:rows], TARGET[:rows]
    expected = model({"source": source, "target": target[:, :4]})
    cache = model.build_cache(source, 4)
    step = tf.function(  # AutoGraph reads all that is called, for seconds
        model.call_with_cache, jit_compile=True, autograph=False
    )
    parts = []
    for index in range(4):
        logits, cache = step(target[:, index : index + 1], cache)
        parts.append(logits)
    near(ops.concatenate(parts, axis=1), expected)
    # What does not fit is left out.
    _, full = step(target[:, 4:5], cache)
    for block, after in zip(cache["blocks"], full["blocks"], strict=True):
        for name in ("key", "value"):
            np.testing.assert_array_equal(after[name], block[name])


# ---- What is refused


DYNAMIC = {**YARN, "rope_type": "dynamic"}
REFUSED = """
alone(attention=kp.RotaryEmbedding(scaling=DYNAMIC)).build_cache(2, 9)
    rope_type='dynamic' cannot be cached: how it encodes a token
alone(input_position=kp.positions.IndexEncoding(True)).build_cache(2, 9)
    IndexEncoding as `input_position` with normalize=True divides by
alone(input_position=kp.AxialPositionalEncoding(1)).build_cache(2, 9)
    has no call argument `positions`
alone(input_position=kp.PositionEmbedding(8)).build_cache(2, 9)
    learned only 8 positions...max_length=9
step(TARGET[:, :5], cache)
    has 4 slots ..., of which 0 are
step(token, cache, mask=np.ones((3, 1)))
    `mask` must be bool
step(token, full)
    of which 4 are used
step(TARGET[:2, :1], cache)
    `token_ids` must have shape
step(TARGET[:, 0], cache)
    `token_ids` must have shape
step(token * 1.0, cache)
    `token_ids` must be of an integer dtype
step(TARGET[:, :0], cache)
    `token_ids` must hold at least one
step(token, other.build_cache(3, 4))
    `cache` must be one...token
step(token, None)
    Received: cache=None
other.call_with_cache(token, cache)
    `cache` must be one...token
model.build_cache(SOURCE, 0)
    `max_length` must be a positive
model.build_cache(SOURCE * 0.5, 4)
    `source` must be of an integer
other.build_cache(0, 0)
    `max_length` must
other.build_cache(1, 2.5)
    `max_length` must
other.build_cache(-1, 4)
    `batch_size` must
other.build_cache(TARGET, 4)
    `batch_size` must
"""


@pytest.fixture(scope="module")
def scope():
    model, other = whole(), alone()
    cache = model.build_cache(SOURCE, 4)
    _, full = model.call_with_cache(TARGET[:, :4], cache)
    step, token = model.call_with_cache, TARGET[:, :1]
    return {**globals(), **locals()}


@pytest.mark.parametrize(("call", "said"), table(REFUSED))
def test_refusals(call, said, scope):
    check(call, said, scope)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float64", 1e-12), ("bfloat16", LOW_TOLERANCE)],
)
def test_a_loop_overwrites_its_own_cache(dtype, tolerance):
    import tensorflow as tf

    model = whole(attention=kp.RotaryEmbedding(), dtype=dtype)
    cache = model.build_cache(SOURCE, LENGTH)
    expected = by_steps(model, cache, TARGET)

    @tf.function(autograph=False)
    def by_loop(target, cache):
        def step(index, cache, found):
            token = tf.gather(target, index, axis=1)[:, tf.newaxis]
            logits, cache = model.call_with_cache(token, cache, write="memory")
            return index + 1, cache, found.write(index, logits[:, 0])

        found = tf.TensorArray(expected.dtype, LENGTH)
        _, _, found = tf.while_loop(
            lambda index, *_: index < LENGTH,
            step,
            (tf.constant(0), model.own_cache(cache), found),
        )
        return tf.transpose(found.stack(), (1, 0, 2))

    graph = by_loop.get_concrete_function(TARGET, cache).graph
    body = next(
        each
        for each in graph.as_graph_def().library.function
        if "while_body" in each.signature.name
    )
    assert "InplaceUpdate" in {node.op for node in body.node_def}
    for _ in range(2):  # the second as the first: the cache is as it was
        near(by_loop(TARGET, cache), expected, tolerance)
