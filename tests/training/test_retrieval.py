"""Losses and evaluation of encoders that search, against other libraries."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc import training
from tests.layers import FIXTURES
from tests.refusals import check, table

DIMS, WEIGHTS = (16, 8, 4), (1.0, 0.5, 0.25)


@pytest.fixture(scope="module")
def expected():
    with np.load(FIXTURES / "retrieval_parity.npz") as arrays:
        return dict(arrays)


def numpy(x):
    return np.array(ops.convert_to_numpy(x))


def copied(loss):
    """The loss as a file gives it back."""
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert copy.get_config() == loss.get_config()
    return copy


# ---- Losses

LOSSES = {
    "pairs": lambda: training.ContrastiveLoss(),
    "hard": lambda: training.ContrastiveLoss(),
    "symmetric": lambda: training.ContrastiveLoss(symmetric=True),
    "symmetric_hard": lambda: training.ContrastiveLoss(
        temperature=0.2, symmetric=True
    ),
    "dot": lambda: training.ContrastiveLoss(temperature=1, similarity="dot"),
    "matryoshka": lambda: training.MatryoshkaLoss(
        training.ContrastiveLoss(), dims=DIMS, weights=WEIGHTS
    ),
}


def test_matryoshka_of_dot_products(expected):
    """Their vectors keep their length."""
    vectors = expected["vectors"][:, :2].astype("float32")
    dot = LOSSES["dot"]()
    loss = training.MatryoshkaLoss(dot, dims=(8, 4))
    wanted = sum(numpy(dot(None, vectors[..., :dim])) for dim in (8, 4))
    np.testing.assert_allclose(numpy(loss(None, vectors)), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_sentence_transformers(expected, name):
    gradient = expected[f"gradient/{name}"]
    batch, texts, dim = gradient.shape
    vectors = expected["vectors"][:, :texts]
    loss = copied(LOSSES[name]())
    # Sums of float32; similarities are over 0.05.
    bound = {"rtol": 2e-6, "atol": 5e-6}
    value = numpy(loss(None, vectors.astype("float32")))
    np.testing.assert_allclose(value, expected[f"loss/{name}"], **bound)
    # One step of rate 1 is the gradient.
    table = keras.layers.Embedding(batch * texts, dim)
    model = keras.Sequential([keras.Input((texts,), dtype="int32"), table])
    table.set_weights([vectors.reshape(-1, dim)])
    model.compile(keras.optimizers.SGD(1.0), loss)
    ids = np.arange(batch * texts).reshape(batch, texts)
    model.fit(ids, batch_size=batch, shuffle=False, verbose=0)
    step = vectors.reshape(-1, dim) - numpy(table.embeddings)
    np.testing.assert_allclose(step.reshape(gradient.shape), gradient, **bound)


def by_definition(vectors, labels, temperature, symmetric):
    """-log of the share of the own document, of each example; float64."""
    v = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    batch, texts, _ = v.shape
    losses = []
    for i in range(batch):

        def terms(counts, vector, others, i=i):
            return [
                np.exp(vector @ others[j, n] / temperature)
                for j, n in counts
                if (j, n) == (i, 0)
                or labels.shape[1:] <= (n,)
                or labels[j, n] != labels[i, 0]
            ]

        every = [(j, n) for j in range(batch) for n in range(texts - 1)]
        own = np.exp(v[i, 0] @ v[i, 1] / temperature)
        loss = -np.log(own / sum(terms(every, v[i, 0], v[:, 1:])))
        if symmetric:
            every = [(j, 0) for j in range(batch)]
            back = -np.log(own / sum(terms(every, v[i, 1], v[:, :1])))
            loss = (loss + back) / 2
        losses.append(loss)
    return np.array(losses)


# Ids that float32 does not tell apart.
LARGE = 2**24 + np.array([1, 0, 1, 2, 3, 3])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (2, LARGE),
        (2, LARGE[:, np.newaxis]),
        (3, LARGE),
        (3, np.stack([LARGE, LARGE[::-1]], axis=1)),
    ],
)
def test_equal_labels_are_no_negatives(expected, texts, labels, symmetric):
    vectors = expected["vectors"][:, :texts]
    weights = np.arange(1.0, 7.0)
    losses = by_definition(vectors, labels.reshape(6, -1), 0.1, symmetric)
    all_count = by_definition(vectors, np.arange(6)[:, None], 0.1, symmetric)
    assert np.all(losses <= all_count)
    assert np.sum(losses < all_count) >= 4
    for reduction, value in (
        (None, losses * weights),
        ("sum_over_batch_size", np.mean(losses * weights)),
    ):
        loss = copied(
            training.ContrastiveLoss(
                temperature=0.1, symmetric=symmetric, reduction=reduction
            )
        )
        found = numpy(loss(labels, vectors.astype("float32"), weights))
        np.testing.assert_allclose(found, value, rtol=5e-6, atol=2e-5)


def test_low_precision_and_zeros(expected):
    """Vectors are read in bfloat16 and computed with in float32."""
    vectors = ops.cast(expected["vectors"][:, :2], "bfloat16")
    exact = numpy(ops.cast(vectors, "float32"))
    for name in ("pairs", "matryoshka"):
        loss = LOSSES[name]()
        found = loss(None, vectors)
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        assert numpy(found) == numpy(loss(None, exact))
    exact[0, 0] = 0  # of an empty text
    (first, *_) = numpy(
        training.ContrastiveLoss(reduction=None)(None, exact)
    ).tolist()
    assert first == pytest.approx(np.log(6), rel=1e-6)


def towers(dtype=None):
    """An encoder, and the model that trains it with pairs."""
    layer = keras.layers.Dense(16, dtype=dtype)
    encoder = keras.Sequential([keras.Input((8,)), layer])
    query, document = keras.Input((8,)), keras.Input((8,))
    both = ops.stack([encoder(query), encoder(document)], axis=1)
    return encoder, keras.Model([query, document], both)


def noisy_pairs(count=48):
    """Documents, and queries that are them through noise of some axes."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(count, 8)).astype("float32")
    noise = rng.normal(size=(count, 8)) * [3, 3, 3, 3, 3, 0, 0, 0]
    return (documents + noise).astype("float32"), documents


def evaluator_of(encoder, queries, documents, **options):
    return training.RetrievalEvaluator(
        encoder,
        queries=queries,
        documents=documents,
        relevant=[{i} for i in range(len(queries))],
        **options,
    )


def test_an_encoder_learns_to_search(tmp_path):
    encoder, pairs = towers("mixed_bfloat16")
    queries, documents = noisy_pairs()
    evaluator = evaluator_of(encoder, queries, documents)
    seldom = evaluator_of(
        lambda x: encoder.predict_on_batch(x),
        queries,
        documents,
        every=3,
        prefix="seldom_",
    )
    before = evaluator()
    pairs.compile(
        keras.optimizers.Adam(0.05),
        training.MatryoshkaLoss(
            training.ContrastiveLoss(symmetric=True), dims=(16, 4)
        ),
    )
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", "val_ndcg@10", mode="max", save_best_only=True
    )
    labels = np.arange(len(queries))
    history = pairs.fit(
        [queries, documents],
        labels,
        validation_data=([queries, documents], labels),
        batch_size=16,
        epochs=8,
        verbose=0,
        callbacks=[evaluator, seldom, best],
    ).history
    after = evaluator()
    assert history["loss"][-1] < history["loss"][0]
    assert history["val_ndcg@10"][-1] == after["ndcg@10"]
    assert history["seldom_mrr@1"] == history["val_mrr@1"][2::3]
    # Of 5 seeds, the least gain is 0.44.
    assert after["recall@1"] > before["recall@1"] + 0.2
    # The file has the loss, too.
    again = keras.saving.load_model(tmp_path / "best.keras")
    found = again.evaluate(
        [queries, documents], labels, batch_size=16, verbose=0
    )
    best_epoch = np.argmax(history["val_ndcg@10"])
    assert found == pytest.approx(history["val_loss"][best_epoch], rel=1e-5)


@pytest.mark.parametrize("kind", [keras.Sequential, kp.PretrainedModel])
def test_predictions_before_lora_are_not_kept(kind):
    """Keras traces `predict` once, and LoRA comes later."""
    encoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    model = kind([keras.Input((8,)), encoder])
    queries, documents = noisy_pairs(20)
    evaluator = evaluator_of(model, queries, documents)
    before = model.predict(queries, verbose=0)
    encoder.predict(queries, verbose=0)
    assert evaluator() == evaluator_of(lambda x: model(x), queries, documents)()
    training.enable_lora(encoder, rank=2)
    (layer,) = encoder.layers
    layer.lora_kernel_b.assign(np.full((2, 4), 10.0))
    exact = evaluator_of(lambda x: model(x), queries, documents)()
    if kind is keras.Sequential:  # whose own `predict` would be the old one
        assert evaluator() == exact
    expected = numpy(model(queries))
    assert not np.allclose(before, expected)
    for each in (model, encoder):
        found = each.predict(queries, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert evaluator() == exact


@pytest.mark.tensorflow
def test_last_batch_of_one_learns_nothing():
    """In a graph, which does not know the size; from `tf.data`."""
    import tensorflow as tf

    queries, documents = noisy_pairs(3)
    _, pairs = towers()
    pairs.compile("sgd", training.ContrastiveLoss(reduction="sum"))
    dataset = tf.data.Dataset.from_tensor_slices((queries, documents))
    dataset = dataset.map(lambda *both: (both,))
    whole = pairs.evaluate(dataset.batch(2), verbose=0)
    first = pairs.evaluate(dataset.take(2).batch(2), verbose=0)
    last = pairs.evaluate(dataset.skip(2).batch(2), verbose=0)
    assert last == 0
    assert whole == pytest.approx(first * 2 / 3)  # a mean by examples
    unknown = tf.TensorSpec((2, None, 4))
    with pytest.raises(ValueError, match="a query and its document"):
        tf.function(pairs.loss).get_concrete_function(None, unknown)


# ---- The evaluation


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("form", ["places", "ids", "gains"])
def test_metrics_are_other_libraries(expected, similarity, form):
    """sentence-transformers', and with gains scikit-learn's nDCG."""
    queries, documents = expected["queries"], expected["documents"]
    gains = expected["gains"]
    relevant = [{*np.flatnonzero(row)} for row in gains]
    if form == "gains":
        relevant = [dict(enumerate(row)) for row in gains]
    if form == "ids":
        relevant = {
            f"q{i}": [f"d{j}" for j in own] for i, own in enumerate(relevant)
        }
        queries = {f"q{i}": row for i, row in enumerate(queries)}
        documents = {f"d{i}": row for i, row in enumerate(documents)}
    found = training.RetrievalEvaluator(
        keras.Sequential([keras.Input((16,)), keras.layers.Identity()]),
        document_encoder=lambda x: ops.convert_to_tensor(x, "float32"),
        queries=queries,
        documents=documents,
        relevant=relevant,
        at=(1, 3, 10),
        similarity=similarity,
        batch_size=7,
    )()
    assert len(found) == 9
    for name, value in found.items():
        graded = "graded_" if form == "gains" and "ndcg" in name else ""
        other = expected[f"{similarity}/{graded}{name}"]
        assert value == pytest.approx(float(other), abs=1e-12), name


def test_equal_scores_keep_their_order_and_nan_shows():
    rows = np.array([[1.0, 0.0]] * 4)
    found = training.RetrievalEvaluator(
        lambda x: x,
        queries=rows[:1],
        documents=rows,
        relevant=[{1: 3, 2: 1}],
        at=(1, 2, 4),
    )()
    ideal = 3 + 1 / np.log2(3)
    assert found == pytest.approx(
        {
            **{"recall@1": 0, "mrr@1": 0, "ndcg@1": 0},
            **{"recall@2": 0.5, "mrr@2": 0.5},
            "ndcg@2": 3 / np.log2(3) / ideal,
            **{"recall@4": 1, "mrr@4": 0.5},
            "ndcg@4": (3 / np.log2(3) + 1 / np.log2(4)) / ideal,
        }
    )
    # Products with equal vectors may be rounded differently.
    rng = np.random.default_rng(0)
    for scale in (1, 1e20):
        query = scale * rng.normal(size=(1, 768))
        same = np.repeat(scale * rng.normal(size=(1, 768)), 101, axis=0)
        found = training.RetrievalEvaluator(
            lambda x: x,
            queries=query,
            documents=same,
            relevant=[{100}],
            at=(101,),
            similarity="dot" if scale == 1 else "cosine",
        )()
        assert found["mrr@101"] == pytest.approx(1 / 101)
    spoilt = evaluator_of(lambda x: x * np.nan, rows, rows, at=[1])()
    assert np.isnan([*spoilt.values()]).all()


# ---- What is refused


def evaluator(**options):
    given = {
        "encoder": lambda x: np.ones((len(x), 2)),
        "queries": {"q": "a text"},
        "documents": {"d": "a text", "e": "another"},
        "relevant": {"q": {"d"}},
        "at": (1,),
    }
    return training.RetrievalEvaluator(**{**given, **options})()


def dims(dims, **options):
    loss = options.pop("loss", training.ContrastiveLoss())
    return training.MatryoshkaLoss(loss, dims=dims, **options)(None, PAIRS)


PAIRS = np.ones((3, 2, 4), "float32")
SCOPE = {
    **{"evaluator": evaluator, "dims": dims, "PAIRS": PAIRS, "ones": np.ones},
    "ContrastiveLoss": training.ContrastiveLoss,
    "loss": training.ContrastiveLoss(),
}
WRONG = """
ContrastiveLoss(temperature=0)
    temperature=0
ContrastiveLoss(symmetric=1)
    symmetric=1
ContrastiveLoss(similarity="l2")
    similarity='l2'
ContrastiveLoss(dtype="float16")
    must be 'float32' or 'float64'...'float16'
loss(None, PAIRS[:, 0])
    stack([query, document], axis=1)...(3, 4)
loss(None, PAIRS[:, :1])
    a query and its document...(3, 1, 4)
loss(None, PAIRS[:1])
    at least 2 examples...(1, 2, 4)
loss(ones(3), PAIRS)
    `y_true` must be of an integer dtype...float
loss(ones(1, int), PAIRS)
    labels... (3,) or (3, 1)
loss(ones((3, 2), int), PAIRS)
    labels... (3,) or (3, 1)
dims((2,), loss="mse")
    `loss` must be a keras.losses.Loss...'mse'
dims(4)
    `dims`...dims=
dims(())
    `dims`...dims=
dims((2.5,))
    `dims`...dims=
dims((4, 2), weights=(1,))
    as many as `dims`, 2
dims((8, 2))
    at most the width of the vectors, 4
evaluator(encoder="model")
    `encoder`...'model'
evaluator(queries="a text")
    `queries`...'a text'
evaluator(documents=[])
    `documents` must not be empty
evaluator(relevant="q")
    `relevant` must be a mapping...'q'
evaluator(relevant={"x": {"d"}})
    ids of `queries`...'x'
evaluator(relevant={"q": "d"})
    such as {'d'}...query 'q'
evaluator(relevant={"q": {"x"}})
    of `documents`...'x'...'q'
evaluator(relevant={"q": {"d": 0}})
    leave out queries...'q'
evaluator(relevant={"q": {"d": -1}})
    relevant=-1
evaluator(at=())
    `at` must be a sequence...at=()
evaluator(at=(3,))
    number of documents, 2...at=(3,)
evaluator(every=0)
    every=0
evaluator(encoder=lambda x: ones(3))
    `encoder` must give vectors...(1, dim)...(3,)
evaluator(document_encoder=lambda x: ones((2, 3)))
    the same width...(1, 2) and (2, 3)
"""


@pytest.mark.parametrize(("call", "said"), table(WRONG))
def test_refuses(call, said):
    check(call, said, SCOPE)
