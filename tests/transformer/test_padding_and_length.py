"""Padding that is left out, and queries that go in blocks, change nothing."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.ops import attention
from keras_posenc.transformer import attention as in_attention
from tests import layers
from tests.layers import randomised

DIM, HEADS = 16, 2

POSITIONS = {
    "none": lambda: None,
    **layers.POSITIONS,
    "dynamic rotary": lambda: kp.RotaryEmbedding(
        scaling={
            "rope_type": "dynamic",
            "factor": 2.0,
            "original_max_position_embeddings": 4,
        }
    ),
    "forgetting": kp.positions.ForgettingBias,
    "fourier": lambda: kp.positions.FourierEmbedding(64, gain=3.0),
}
CAUSAL = {**POSITIONS, **layers.CAUSAL_POSITIONS}


SEQ = 7


def mask_of_all_kinds(seq: int = SEQ) -> np.ndarray:
    """Padding on the right, on the left, in between, nowhere, everywhere."""
    index = np.arange(seq)
    lengths = np.array([[seq], [3], [1], [0]])
    holes = np.random.default_rng(0).random((4, seq)) < 0.6
    return np.concatenate([index < lengths, index >= seq - lengths, holes])


MASK = mask_of_all_kinds()
NOTHING = np.zeros_like(MASK)
# What a stack is called with besides: a memory with padding, and without.
STACKS = {
    "encoder": (kp.TransformerEncoder, {}),
    "decoder": (
        kp.TransformerDecoder,
        {
            "memory": np.random.default_rng(6)
            .normal(size=(len(MASK), 5, DIM))
            .astype("float32"),
            # Reversed: rows with tokens read a memory that has none, too.
            "memory_mask": mask_of_all_kinds(5)[::-1],
        },
    ),
}


def inputs(seq: int = SEQ) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(size=(len(MASK), seq, DIM)).astype("float32")


def with_garbage(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Padding that holds what no number times anything is 0 for."""
    return np.where(mask[..., np.newaxis], x, np.nan).astype("float32")


def encoders(position, kind=kp.TransformerEncoder, *, layers=2, **options):
    """Two that differ in `skip_padding` alone."""
    pair = [
        kind(
            layers,
            num_heads=HEADS,
            intermediate_dim=32,
            dropout=0.0,
            attention=position(),
            skip_padding=skip_padding,
            **options,
        )
        for skip_padding in (True, False)
    ]
    for encoder in pair:
        encoder.build((None, None, DIM))
    rng = np.random.default_rng(2)
    weights = [
        rng.normal(0, 0.3, weight.shape).astype("float32")
        for weight in pair[0].get_weights()
    ]
    for encoder in pair:
        encoder.set_weights(weights)
    return pair


@pytest.mark.parametrize(
    ("stack", "position", "is_pre_norm"),
    [
        *(("encoder", name, i % 2 > 0) for i, name in enumerate(POSITIONS)),
        ("encoder", "none", True),
        ("decoder", "rotary", False),
        ("decoder", "shaw", True),
    ],
)
def test_tokens_are_answered_alike(stack, position, is_pre_norm):
    kind, given = STACKS[stack]
    skipping, dense = encoders(
        POSITIONS[position],
        kind,
        # How blocks hand on what they packed is seen without positions too.
        layers=2 if position == "none" else 1,
        norm="before" if is_pre_norm else "after",
    )
    for mask in (MASK, NOTHING):
        x = with_garbage(inputs(), mask)
        got = ops.convert_to_numpy(skipping(x, mask=mask, **given))
        want = ops.convert_to_numpy(dense(x, mask=mask, **given))
        assert np.isfinite(want).all()
        # Sums of up to 32 products of numbers near 1, in another order.
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
        assert np.all(got[~mask] == 0)
        assert np.all(want[~mask] == 0)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("stack", "position"),
    [
        ("encoder", "none"),
        ("decoder", "none"),
        pytest.param("encoder", "xl", marks=pytest.mark.slow),
    ],
)
def test_gradients_are_the_dense_ones(stack, position):
    kind, given = STACKS[stack]

    def gradients(encoder):
        x = with_garbage(inputs(), MASK)
        step = step_of(
            lambda x: encoder(x, mask=MASK, training=True, **given),
            encoder.trainable_variables,
            x,
        )
        if not encoder.skip_padding:  # without a graph, whose tracing is slow
            step = step.python_function
        _, *found = step(x)
        # NaN in a token that stands before a row that begins with padding.
        assert MASK[4, -1]
        assert not MASK[5, 0]
        x[4, -1] = np.nan
        _, of_nan, *_ = step(x)
        others = np.arange(len(MASK)) != 4
        np.testing.assert_array_equal(
            of_nan.numpy()[others], found[0].numpy()[others]
        )
        return [gradient.numpy() for gradient in found]

    for got, want in zip(
        *map(gradients, encoders(POSITIONS[position], kind)), strict=True
    ):
        assert np.isfinite(want).all()
        largest = np.max(np.abs(want))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * largest)


@pytest.mark.tensorflow
def test_a_token_that_may_attend_to_nothing_is_answered_alike():
    """It attends to everything, padding too, and has gradients from there."""
    allowed = np.random.default_rng(4).random((len(MASK), SEQ, SEQ)) < 0.2
    assert not np.all(np.any(allowed & MASK[:, np.newaxis], axis=-1)[MASK])

    def answer(encoder):
        given = {"mask": MASK, "attention_mask": allowed, "training": True}
        step = step_of(lambda x: encoder(x, **given), [], inputs())
        run = step if encoder.skip_padding else step.python_function
        return run(inputs())

    for got, want in zip(*map(answer, encoders(lambda: None)), strict=True):
        largest = np.max(np.abs(want))
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("name", ["padding_mask", "attention_mask"])
def test_one_row_of_a_mask_stands_for_all(name):
    encoder, _ = encoders(POSITIONS["none"])
    mask = MASK[1:2]
    if name == "attention_mask":
        mask = np.tril(np.ones((1, SEQ, SEQ), bool))
    got, want = (
        ops.convert_to_numpy(encoder(inputs(), **{name: each}))
        for each in (mask, np.repeat(mask, len(MASK), axis=0))
    )
    np.testing.assert_array_equal(got, want)


def rows_of_products(encoder):
    """A list that will tell how many rows the products of a stack had."""
    rows = []

    def watch(layer, call):
        def watched(x, *args, **kwargs):
            size = x.shape[:-1]
            rows.append(None if None in size else np.prod(size))
            return call(x, *args, **kwargs)

        layer.call = watched

    for layer in encoder._flatten_layers():
        if isinstance(
            layer, keras.layers.Dense | keras.layers.LayerNormalization
        ):
            watch(layer, layer.call)
    return rows


@pytest.mark.tensorflow
@pytest.mark.parametrize("stack", STACKS)
def test_padding_is_no_work(stack):
    """The products of the blocks have as many rows as there are tokens.

    And one more for each row of the batch that begins with padding.
    """
    import tensorflow as tf

    kind, given = STACKS[stack]
    encoder, _ = encoders(POSITIONS["none"], kind)
    rows = rows_of_products(encoder)
    encoder(tf.constant(inputs()), mask=MASK, **given)
    tokens = {(MASK | (np.arange(SEQ) == 0)).sum()}
    if given:  # of whose memory all is attended to where it has no token
        mask = given["memory_mask"]
        mask = mask | ~mask.any(axis=1, keepdims=True)
        tokens.add((mask | (np.arange(5) == 0)).sum())
    assert len(rows) == 2 * (10 if given else 6)
    assert set(rows) == tokens


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("position", "is_static"), [(x, i % 2 > 0) for i, x in enumerate(CAUSAL)]
)
def test_blocks_of_queries_are_exact(position, is_static, monkeypatch):
    import tensorflow as tf

    seq = 11  # no multiple of the block
    layer = kp.SelfAttention(HEADS, attention=CAUSAL[position]())
    layer.build((None, None, DIM))
    randomised(layer)
    mask = mask_of_all_kinds(seq)
    batch = len(mask)
    segments = np.sort(np.random.default_rng(4).integers(0, 3, (batch, seq)))
    square = np.random.default_rng(5).random((batch, seq, seq)) < 0.7
    square |= np.eye(seq, dtype=bool)

    def run():
        sizes = (batch, seq) if is_static else (None, None)

        @tf.function(input_signature=[tf.TensorSpec((*sizes, DIM))])
        def call(x):
            return layer(
                x,
                mask=mask,
                segment_ids=segments,
                attention_mask=square,
                use_causal_mask=True,
            )

        return call(inputs(seq)).numpy()

    want = run()
    monkeypatch.setattr(attention, "MAX_SCORES", batch * HEADS * seq * seq - 1)
    monkeypatch.setattr(attention, "BLOCK", 4)
    np.testing.assert_allclose(run(), want, rtol=0, atol=2e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("position", "is_static"),
    [
        ("rotary", True),
        ("rotary", False),
        pytest.param("dynamic rotary", False, marks=pytest.mark.slow),
        ("t5", True),
        ("shaw", True),
        ("forgetting", True),
        pytest.param("forgetting", False, marks=pytest.mark.slow),
    ],
)
def test_windows_leave_out_other_keys(position, is_static, monkeypatch):
    import tensorflow as tf

    seq, window = 23, 3  # no multiple of the block
    layer = kp.SelfAttention(
        HEADS,
        attention=kp.Attention(POSITIONS[position](), window=window),
    )
    mask = mask_of_all_kinds(seq)
    batch = len(mask)
    segments = np.sort(np.random.default_rng(4).integers(0, 3, (batch, seq)))
    sizes = (batch, seq) if is_static else (None, None)
    attended = []

    def spy(query, key, value, **options):
        attended.append(key.shape[2])
        return attention.attend(query, key, value, **options)

    monkeypatch.setattr(in_attention, "attend", spy)
    monkeypatch.setattr(attention, "BLOCK", 4)

    @tf.function(
        input_signature=[tf.TensorSpec((*sizes, DIM))], autograph=False
    )
    def call(x):
        return layer(
            x, mask=mask, segment_ids=segments, use_causal_mask=is_static
        )

    monkeypatch.setattr(attention, "FEWER", 10**6)
    want = call.python_function(tf.constant(inputs(seq))).numpy()
    monkeypatch.setattr(attention, "FEWER", 2)
    attended.clear()
    got = call(inputs(seq)).numpy()
    # What stands in padding is nobody's promise.
    np.testing.assert_allclose(got[mask], want[mask], rtol=0, atol=1e-6)
    if is_static and position != "shaw":  # which needs all the weights
        assert {*attended} == {4 + 2 * window}


def step_of(call, variables, x, *, jit_compile=False, batch=None):
    """A function of x: the answer, and gradients of x and of all weights."""
    import tensorflow as tf

    goal = np.random.default_rng(3).normal(size=x.shape).astype(x.dtype)

    @tf.function(
        jit_compile=jit_compile,
        autograph=False,
        input_signature=[tf.TensorSpec((batch, *x.shape[1:]), x.dtype)],
    )
    def step(x):
        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            answer = call(x)
            loss = tf.reduce_sum(goal * answer)
        gradients = tape.gradient(
            loss,
            [x, *(variable.value for variable in variables)],
            unconnected_gradients="zero",
        )
        return answer, *map(tf.convert_to_tensor, gradients)

    return step


def check_blocks_of_4(call, variables, x, monkeypatch, **options):
    """Trained by blocks of queries as with all scores at once."""
    want = step_of(call, variables, x).python_function(x)
    monkeypatch.setattr(attention, "MAX_SCORES", 1)
    monkeypatch.setattr(attention, "BLOCK", 4)
    got = step_of(call, variables, x, **options)(x)
    # What is summed to one number's gradient cancels, of the largest less.
    largest = max(np.max(np.abs(each)) for each in want[1:])
    for mine, each in zip(got, want, strict=True):
        assert np.max(np.abs(each)) > 0
        # Weights of a scheme are float32, whatever the layer computes in.
        most = 1e-6 if each.dtype == "float32" else 1e-12
        np.testing.assert_allclose(mine, each, rtol=0, atol=most * largest)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("position", "dtype", "options"),
    [
        ("none", "float32", {"batch": 12}),
        ("shaw", "float64", {}),
        pytest.param(
            "t5", "float32", {"jit_compile": True}, marks=pytest.mark.slow
        ),
        *(
            pytest.param(position, dtype, {}, marks=pytest.mark.slow)
            for position in POSITIONS
            for dtype in ("float32", "float64")
        ),
    ],
)
def test_training_in_blocks_is_exact(position, dtype, options, monkeypatch):
    seq = 11  # no multiple of the block
    mask = mask_of_all_kinds(seq)
    draw = np.random.default_rng(4)
    segments = np.sort(draw.integers(0, 3, mask.shape))
    layer = kp.SelfAttention(
        HEADS,
        use_bias=False,  # of keys has no gradient
        attention=POSITIONS[position](),
        dtype=dtype,
    )
    layer.build((None, None, DIM))
    layer.set_weights(
        [draw.normal(0, 0.3, weight.shape) for weight in layer.weights]
    )
    check_blocks_of_4(
        lambda x: layer(x, mask=mask, segment_ids=segments, training=True),
        layer.trainable_variables,
        inputs(seq).astype(dtype),
        monkeypatch,
        **options,
    )


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("kind", "options", "given"),
    [
        (
            kp.TransformerDecoder,
            {"cross_attention": "t5"},
            STACKS["decoder"][1],
        ),
        (kp.TransformerEncoder, {"attention": "alibi"}, {}),
    ],
    ids=["memory", "positions of the data"],
)
def test_stacks_are_trained_in_blocks(kind, options, given, monkeypatch):
    stack = kind(
        1,
        num_heads=HEADS,
        intermediate_dim=32,
        dropout=0.0,
        dtype="float64",
        **options,
    )
    stack.build((None, None, DIM))
    mask = mask_of_all_kinds(11)

    def call(x):
        places = {} if given else {"positions": x[..., 0]}
        return stack(x, mask=mask, training=True, **given, **places)

    check_blocks_of_4(
        call,
        [w for w in stack.trainable_variables if w.name != "bias"],
        inputs(11).astype("float64"),
        monkeypatch,
    )


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_dropout_is_recomputed_as_it_was(jit_compile, monkeypatch):
    """What attention answers is linear in its values.

    So the sum of each weight of the values times its gradient is the loss, if
    both come from the same mask.
    """
    seq = 11
    monkeypatch.setattr(attention, "MAX_SCORES", 1)
    monkeypatch.setattr(attention, "BLOCK", 4)
    layer = kp.SelfAttention(
        HEADS, dropout=0.5, use_bias=False, dtype="float64"
    )
    layer.build((None, None, DIM))
    x = inputs(seq).astype("float64")
    x[1] = x[0, 0]  # a row of one token, again and again
    goal = np.random.default_rng(3).normal(size=x.shape)
    step = step_of(
        lambda x: layer(x, training=True),
        [layer.query_key_value.kernel],
        x,
        jit_compile=jit_compile,
    )
    answer, _, gradient = step(x)
    of_values = (layer.query_key_value.kernel.numpy() * gradient)[:, -DIM:]
    loss = np.sum(goal * answer)
    np.testing.assert_allclose(np.sum(of_values), loss, rtol=1e-12)
    # Each block has a mask of its own, and so has each step.
    assert np.max(np.abs(answer[1, :4] - answer[1, 4:8])) > 1e-3
    assert np.max(np.abs(step(x)[0] - answer)) > 1e-3


@pytest.mark.tensorflow
@pytest.mark.parametrize("training", [False, True])
def test_no_square_of_scores_is_kept(training):
    """No tensor of a graph is as long as a text in two directions."""
    import tensorflow as tf

    encoder = kp.TransformerEncoder(
        1,
        num_heads=HEADS,
        intermediate_dim=32,
        attention=kp.positions.RelativePositionEmbedding(3),
    )
    encoder.build((None, None, DIM))

    def squares(seq):
        x = np.zeros((2, seq, DIM), "float32")
        step = tf.function(encoder, input_signature=[tf.TensorSpec(x.shape)])
        if training:
            step = step_of(
                lambda x: encoder(x, training=True),
                encoder.trainable_variables,
                x,
            )
        graph = step.get_concrete_function().graph
        graph = graph.as_graph_def(add_shapes=True)
        nodes = [*graph.node]
        for function in graph.library.function:
            nodes += function.node_def
        return [
            node.name
            for node in nodes
            for shape in node.attr["_output_shapes"].list.shape
            if [size.size for size in shape.dim].count(seq) > 1
        ]

    assert squares(89)
    assert not squares(5003)


@pytest.mark.tensorflow
@pytest.mark.parametrize("stack", STACKS)
def test_xla_compiles_no_shape_that_depends_on_padding(stack):
    """XLA would compile each batch again, or compute all the padding."""
    import tensorflow as tf

    kind, given = STACKS[stack]
    encoder, _ = encoders(POSITIONS["none"], kind)
    rows = rows_of_products(encoder)
    for jit_compile in (False, True):
        rows.clear()
        tf.function(
            lambda x, mask: encoder(x, mask=mask, training=True, **given),
            jit_compile=jit_compile,
            autograph=False,
        ).get_concrete_function(inputs(), tf.constant(MASK))
        assert (None in rows) != jit_compile
    assert {MASK.size} <= {*rows} <= {MASK.size, len(MASK) * 5}
