"""Schedule, loss, accuracies and teacher forcing, each by its formula."""

import json

import hypothesis
import keras
import numpy as np
import pytest
from hypothesis import strategies as st
from keras import ops

from keras_posenc import training
from tests.layers import MaskSeen
from tests.refusals import check, names, table

V = 7


def numpy(x):
    return np.array(ops.convert_to_numpy(x))


# ---- The schedule


@pytest.mark.parametrize(
    ("d_model", "warmup", "scale"),
    [(512, 4000, 1.0), (64, 1, 2.0), (1, 3, 0.1)],
)
def test_schedule_is_the_papers_formula(d_model, warmup, scale):
    schedule = training.NoamSchedule(d_model, warmup_steps=warmup, scale=scale)
    config = json.loads(json.dumps(schedule.get_config()))
    for each in (schedule, training.NoamSchedule.from_config(config)):
        for step in (0, 1, warmup - 2, warmup - 1, warmup, 10 * warmup, 10**7):
            n = max(step, 0) + 1
            rate = scale * d_model**-0.5 * min(n**-0.5, n * warmup**-1.5)
            # A root, a quotient and two products of float32.
            found = float(numpy(each(max(step, 0))))
            assert found == pytest.approx(rate, rel=8 * 2**-24)


def test_optimizer_steps_at_the_schedules_rates(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    schedule = training.NoamSchedule(4, warmup_steps=2)
    model.compile(keras.optimizers.Adam(schedule), "mse")
    rates = []
    x = np.ones((1, 1), "float32")
    for step in range(4):
        rates.append(float(numpy(model.optimizer.learning_rate)))
        model.fit(x, x, verbose=0)
        if step == 1:  # it goes on where it was
            model.save(tmp_path / "model.keras")
            model = keras.saving.load_model(tmp_path / "model.keras")
    expected = [0.5 * min(n**-0.5, n * 2**-1.5) for n in range(1, 5)]
    np.testing.assert_allclose(rates, expected, rtol=8 * 2**-24)


# ---- The loss and the accuracies


def draw(seed, batch=4, seq=6):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(batch, seq, V)).astype("float32")
    targets = rng.integers(0, V, (batch, seq))
    targets[0] = 0  # a row without a token
    targets[1, 0] = 1
    weights = rng.random((batch, seq)).astype("float32")
    return logits, targets, weights


def losses_by_definition(logits, targets, smoothing):
    """-sum of q log p over the vocabulary, of each token; float64."""
    logits = logits.astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    q = (1 - smoothing) * np.eye(V)[targets] + smoothing / V
    return -(q * log_p).sum(-1)


@pytest.mark.parametrize(
    ("smoothing", "from_logits", "ignored"),
    [(0.0, True, -1), (0.1, False, -1), (0.1, True, 0), (0.9, False, 0)],
)
def test_loss_is_the_definitions(smoothing, from_logits, ignored):
    logits, targets, weights = draw(0)
    counts = targets != 0
    losses = losses_by_definition(logits, targets, smoothing)
    predictions = logits
    if not from_logits:
        predictions = np.exp(logits)
        predictions /= predictions.sum(-1, keepdims=True)
    targets = np.where(counts, targets, ignored)

    def found(reduction, given=None):
        loss = training.TokenCrossentropy(
            label_smoothing=smoothing,
            from_logits=from_logits,
            ignored_id=ignored,
            reduction=reduction,
        )
        copy = keras.losses.deserialize(keras.losses.serialize(loss))
        assert copy.get_config() == loss.get_config()
        return numpy(copy(targets, predictions, sample_weight=given))

    for reduction, given, expected in (
        ("mean_with_sample_weight", None, losses[counts].mean()),
        ("sum", None, losses[counts].sum()),
        (None, None, losses * counts),
        (
            "mean_with_sample_weight",
            weights,
            np.average(losses, weights=weights * counts),
        ),
        (
            "mean_with_sample_weight",
            weights[:, 0],
            np.average(losses, weights=weights[:, :1] * counts),
        ),
    ):
        # Some V + seq float32 roundings of numbers below 10.
        np.testing.assert_allclose(
            found(reduction, given), expected, rtol=2e-6, atol=2e-6
        )


def test_large_ids_in_low_precision():
    """bfloat16 holds 256 and 258, and nothing between."""
    logits = 50 * np.eye(300, dtype="float32")[np.newaxis, 257:258]
    before = keras.config.floatx()
    keras.config.set_floatx("bfloat16")
    try:
        loss = training.TokenCrossentropy()
    finally:
        keras.config.set_floatx(before)
    assert float(numpy(loss(np.array([[257]]), logits))) < 1e-6
    assert float(numpy(loss(np.array([257]), logits[0]))) < 1e-6
    low = ops.cast(logits, "bfloat16")
    assert float(numpy(loss(np.array([[257]]), low))) < 1e-6
    double = training.TokenCrossentropy(dtype="float64")
    copy = keras.losses.deserialize(keras.losses.serialize(double))
    assert copy.dtype == "float64"


def test_ids_that_no_logit_is_of():
    """Such as -100, which pads the labels of others, and would count here."""
    logits = np.zeros((1, 2, V), "float32")
    loss = training.TokenCrossentropy()
    for wrong in (-100, -1, V):
        targets = np.array([[1, wrong]])
        with pytest.raises(ValueError, match=rf"in \[0, {V}\).*: {wrong}"):
            loss(targets, logits)
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        for wrong in (-100, V):
            found = tf.function(loss)(np.array([[1, wrong]]), logits)
            assert np.isnan(numpy(found))
    ignored = training.TokenCrossentropy(ignored_id=-100)
    assert np.isfinite(numpy(ignored(np.array([[1, -100]]), logits)))


def test_padding_of_another_number_is_loud_under_a_mask():
    """0 is a token then, which the default `ignored_id` would drop."""
    ids, targets = np.array([[1, 2, 0]]), np.array([[0, 2, -1]])
    model = keras.Sequential([keras.layers.Embedding(V, V, mask_zero=True)])
    loss = training.TokenCrossentropy()
    with pytest.raises(ValueError, match="give ignored_id=-1 to the loss"):
        loss(targets, model(ids))
    given = training.TokenCrossentropy(ignored_id=-1)
    assert np.isfinite(numpy(given(np.array([[1, 2, 0]]), model(ids))))
    model.compile(loss=loss)
    if keras.config.backend() == "torch":
        with pytest.raises(ValueError, match="give ignored_id=-1 to the loss"):
            model.fit(ids, targets, verbose=0)
    else:
        found = model.fit(ids, targets, verbose=0).history["loss"]
        assert np.isnan(found).all()


def test_loss_without_a_token_is_0():
    loss = training.TokenCrossentropy()
    assert numpy(loss(np.zeros((2, 3), int), np.ones((2, 3, V)))) == 0


@keras.saving.register_keras_serializable(package="training_tests")
class Spoil(keras.layers.Layer):
    """Puts NaN where the mask has padding."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        return ops.where(ops.expand_dims(mask, -1), inputs, float("nan"))


def test_padding_of_a_mask_reaches_nothing(tmp_path):
    """Neither loss, accuracies nor a weight: by mask and targets."""
    rng = np.random.default_rng(1)
    ids = rng.integers(1, V, (6, 5))
    ids[:, 3:] = 0
    targets = rng.integers(1, V, (6, 5))  # not padded where the inputs are

    def model_of(spoil):
        keras.utils.set_random_seed(1)
        x = inputs = keras.Input((None,), dtype="int32")
        x = keras.layers.Embedding(V, 4, mask_zero=True)(x)
        x = keras.layers.Dense(V)(x)
        model = keras.Model(inputs, Spoil()(x) if spoil else x)
        model.compile(
            "sgd",
            training.TokenCrossentropy(label_smoothing=0.1),
            metrics=[training.TokenAccuracy(), training.SequenceAccuracy()],
        )
        return model

    model = model_of(True)
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    spoilt = model.fit(ids, targets, epochs=2, shuffle=False, verbose=0)
    other = model_of(False)
    short = other.fit(
        ids[:, :3], targets[:, :3], epochs=2, shuffle=False, verbose=0
    )
    assert (
        spoilt.history.keys()
        == short.history.keys()
        >= {"loss", "token_accuracy", "sequence_accuracy"}
    )
    for name, values in short.history.items():
        if name != "loss" and keras.config.backend() == "jax":
            continue  # there `fit` hands metrics no mask
        np.testing.assert_allclose(spoilt.history[name], values, rtol=2e-6)
    for found, expected in zip(model.weights, other.weights, strict=True):
        np.testing.assert_allclose(
            numpy(found), numpy(expected), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("weighted", ["no", "rows", "tokens"])
def test_accuracies_count_tokens_and_rows(weighted):
    """... alike in batches of any length."""
    tokens, rows = training.TokenAccuracy(), training.SequenceAccuracy()
    found, truth, weigh = [], [], []
    for seed, seq in enumerate((6, 3, 11)):
        logits, targets, weights = draw(seed, 5, seq)
        best = np.argmax(logits, -1)
        targets[2:] = np.where(targets[2:] == 0, 0, best[2:])  # some are right
        weights[3, 0] = 0
        targets[3, 0] = best[3, 0] % (V - 1) + 1
        given = {"no": None, "rows": weights[:, 1], "tokens": weights}[weighted]
        for metric in (tokens, rows):
            metric.update_state(targets, logits, sample_weight=given)
        given = 1.0 if given is None else given
        given = np.reshape(given, (-1, 1)) if weighted == "rows" else given
        for row, right, weight in zip(
            targets, best == targets, (targets != 0) * given, strict=True
        ):
            found += [*right]
            weigh += [*weight]
            if (row != 0).any():
                truth.append((right[weight > 0].all(), weight.max()))
    expected = np.average(found, weights=weigh)
    assert float(numpy(tokens.result())) == pytest.approx(expected, rel=1e-6)
    right, weight = zip(*truth, strict=True)
    expected = np.average(right, weights=weight)
    assert 0 < expected < 1
    assert float(numpy(rows.result())) == pytest.approx(expected, rel=1e-6)


# ---- Teacher forcing


ROWS = st.lists(st.lists(st.integers(4, V), max_size=4), min_size=1, max_size=4)


@hypothesis.given(ROWS, st.booleans(), st.booleans())
def test_inputs_are_what_came_before(texts, left, own_start):
    """Of each text alone, wherever its padding is, packed or not."""
    start, end = 2, 3
    layer = training.TeacherForcing(start_id=None if own_start else start)
    length = 7
    rows, packed, segments = [], [], []
    for text in texts:
        row = [start] * own_start + text + [end]
        pad = [0] * (length - len(row))
        rows.append(pad + row if left else row + pad)
        # One text begins where another ends, with padding at the edge alone.
        packed += row
        segments += [len(rows)] * len(row)
    packed, segments = (
        [0, *row] if left else [*row, 0] for row in (packed, segments)
    )

    def pairs(given, targets):
        both = zip(numpy(given).ravel(), numpy(targets).ravel(), strict=True)
        return [(int(a), int(b)) for a, b in both if a or b]

    expected = [
        pair
        for text in texts
        for pair in zip([start, *text], [*text, end], strict=True)
    ]
    given, targets = layer(np.array(rows))
    assert given.shape == targets.shape
    assert pairs(given, targets) == expected
    given, targets = layer(np.array([packed]), segment_ids=np.array([segments]))
    assert pairs(given, targets) == expected


def test_a_start_that_is_there_is_not_put_before_once_more():
    layer = training.TeacherForcing(start_id=2)
    with pytest.raises(ValueError, match=r"`start_id` is put before.*: start"):
        layer(np.array([[2, 5, 3, 0], [0, 0, 2, 3], [0, 0, 0, 0]]))
    with pytest.raises(ValueError, match="`start_id` is put before"):
        layer(np.array([[2, 5, 3], [2, 4, 3]]))  # without any padding
    # A text may have that id, too.
    layer(np.array([[2, 5, 3], [5, 2, 3]]))


def test_teacher_forcing_in_a_model(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    given, targets = training.TeacherForcing(start_id=2)(ids)
    assert given.shape == targets.shape == (None, None)
    model = keras.Model(ids, [given, targets, MaskSeen()(given)])
    model.save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    outputs = model(np.array([[5, 3, 0], [3, 0, 0]]))
    given, targets, mask = map(numpy, outputs)
    assert given.tolist() == [[2, 5, 0], [2, 0, 0]]
    assert targets.tolist() == [[5, 3, 0], [3, 0, 0]]
    assert mask.tolist() == [[1, 1, 0], [1, 0, 0]]
    fixed = training.TeacherForcing()(keras.Input((5,), dtype="int32"))
    assert [each.shape for each in fixed] == [(None, 4)] * 2


WRONG = """
NoamSchedule(0)
    `d_model`...d_model=0
TokenCrossentropy(label_smoothing=1)
    label_smoothing=1
TokenCrossentropy(reduction="sum_over_batch_size")
    `reduction` must be...'sum_over_batch_size'
TokenCrossentropy()(ones((2, 2), int), ones((2, 3, 7)))
    Targets must be ids...(2, 2)...(2, 3, 7)
TokenCrossentropy()(ones((2, 3), int), ones((2, 3, 7)), ones((3,)))
    `sample_weight` must have shape...(3,)
TeacherForcing()(-ones((1, 2), int))
    has -1, which is no id, ...pad_id=0...give pad_id=-1 ...ignored_id
TokenCrossentropy(dtype="float16")
    `dtype` must be 'float32' or 'float64'...'float16'
TeacherForcing()(ones((2, 3)))
    `inputs` must be of an integer dtype
TeacherForcing()(ones((2, 3), int), segment_ids=ones((2, 1), int))
    `segment_ids` must have shape...(2, 1)
TeacherForcing(start_id=0)
    start_id=0
"""


@pytest.mark.parametrize(("call", "said"), table(WRONG))
def test_refuses(call, said):
    check(call, said, {**names(training), "ones": np.ones})


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_of_nothing_nothing_counts(shape):
    """A batch without a row, or rows without a token, change no mean."""
    nothing = np.zeros(shape, "int32"), np.zeros((*shape, 5), "float32")
    some = np.array([[1, 2]]), np.eye(5, dtype="float32")[[[1, 3]]]
    for metric, result in (
        (training.TokenAccuracy(), 0.5),
        (training.SequenceAccuracy(), 0.0),
    ):
        for given in (nothing, some, nothing):
            metric.update_state(*given)
        assert float(metric.result()) == result
    for options in ({}, {"label_smoothing": 0.1}, {"from_logits": False}):
        loss = training.TokenCrossentropy(**options)
        assert float(loss(*nothing)) == 0.0
