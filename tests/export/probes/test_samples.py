"""Inputs to verify an artifact with."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.probes.generate import Probes, make_probes
from keras_posenc.export.probes.samples import fit_samples
from keras_posenc.export.signatures.resolve import (
    resolve_numeric_signatures,
    resolve_serving_signatures,
    resolve_signatures,
)

pytestmark = pytest.mark.tensorflow


def cases(model, samples=None, max_length=20, signatures=None):
    """All but extreme cases of a model's signatures, by signature."""
    resolved = resolve_signatures(model, signatures)
    given = fit_samples(resolved, samples)
    return {
        each.name: [
            probe.inputs
            for probe in make_probes(
                each, given[each.name], max_length, taken_by(each)
            )
            if not (probe.extremes or probe.is_of_tables)
        ]
        for each in resolved
    }


def taken_by(signature):
    """Whether a signature's model takes some inputs."""

    def takes(inputs):
        try:
            signature.call({name: tf.constant(x) for name, x in inputs.items()})
        except tf.errors.InvalidArgumentError:
            return False
        return True

    return takes


def grid(model, **options):
    return cases(model, **options)["serving_default"]


def embed(*sizes, shape=(None,), dtype="int32"):
    """A model of ids with embeddings of these sizes."""
    inputs = keras.Input(shape, dtype=dtype, name="ids")
    vectors = [layers.Embedding(size, 4)(inputs) for size in sizes]
    return keras.Model(inputs, sum(vectors[1:], start=vectors[0]))


def shapes_of(inventions, name="ids"):
    return [case[name].shape for case in inventions]


# ---- The grid


@pytest.mark.parametrize("size", [1, 50])
def test_lowest_and_highest_id_of_the_smallest_embedding(size):
    for case in grid(embed(200, size, 70)):
        values = case["ids"]
        assert values.dtype == np.int32
        assert values.max() == size - 1
        assert values.min() >= 0
        if values.size > 1:
            assert values.min() == 0


@pytest.mark.parametrize("batch", [1, 2])
def test_small_static_batches_hold_what_larger_ones_do(batch):
    """The highest id, padding at the end, and padding alone."""
    model = embed(9, shape=(4,))
    found = grid(
        model, signatures={"serving_default": (model, {"ids": (batch, 4)})}
    )
    assert {case["ids"].shape for case in found} == {(batch, 4)}
    rows = np.concatenate([case["ids"] for case in found])
    assert rows[0, 0] == 8
    assert rows[1, :2].all()
    assert not rows[1, 2:].any()
    assert not rows[2].any()


def test_rows_with_padding_at_their_end_and_of_nothing_else():
    """Of each kind of input; and ids of its own embedding, as in BERT."""
    kinds = {
        "words": ((None,), "int32"),
        "segments": ((None,), "int8"),
        "kinds": ((None,), "int32"),
        "mask": ((None,), "int32"),
        "lengths": ((), "int32"),
        "flags": ((None,), "bool"),
        "features": ((None, 4), "float32"),
    }
    inputs = {
        name: keras.Input(shape, dtype=dtype, name=name)
        for name, (shape, dtype) in kinds.items()
    }
    inner = keras.Input((None,), dtype="int32")
    nested = keras.Model(inner, layers.Embedding(30, 4)(inner))
    x = layers.Masking()(inputs["features"]) + nested(inputs["kinds"])
    x += layers.Embedding(200, 4)(inputs["words"])
    x += layers.Embedding(2, 4)(inputs["segments"])
    scales = [ops.cast(inputs[name], "float32") for name in ("mask", "flags")]
    x *= ops.expand_dims(scales[0] + scales[1], -1)
    x *= ops.cast(inputs["lengths"], "float32")[:, None, None]
    found = grid(keras.Model(list(inputs.values()), x))
    assert len(found) == 4
    for case in found:
        batch, length = case["words"].shape
        for name, (shape, dtype) in kinds.items():
            assert (
                case[name].shape
                == (batch, length, *shape[1:])[: 1 + len(shape)]
            )
            assert case[name].dtype == dtype
        highest = [case[name].max() for name in ("words", "segments", "kinds")]
        assert highest == [199, 1, 29]
        # Of what goes to no embedding, 1 says that there is a token.
        assert np.all(case["mask"][0] == 1)
        assert np.all(case["lengths"] == 1)
        for name in ("words", "mask", "features") if batch == 3 else ():
            real = case[name].reshape(batch, length, -1).any(-1)
            assert np.all(real[1, : (length + 1) // 2])
            assert not np.any(real[1, (length + 1) // 2 :])
            assert not np.any(real[2])
    assert case["features"].min() < 0 < case["features"].max()
    assert {*case["flags"].flat} == {True, False}


def test_strings_of_all_kinds():
    inputs = keras.Input((), dtype="string", name="text")
    model = keras.Model(inputs, layers.Identity()(inputs))
    found = grid(model)
    assert shapes_of(found, "text") == [(1,), (3,)]
    texts = [text for case in found for text in case["text"]]
    assert all(isinstance(text, str) for text in texts)
    assert "" in texts
    assert any(not text.isascii() for text in texts)


# ---- Vocabularies


def looked_up(layer):
    """An input of what a layer looks up, and beside it one of ids."""
    dtype = "string" if isinstance(layer, layers.StringLookup) else "int64"
    item = keras.Input((None,), dtype=dtype, name="item")
    ids = keras.Input((None,), dtype="int32", name="ids")
    nested = keras.Sequential([layers.Embedding(30, 4)])
    outputs = [layers.Embedding(7, 4)(layer(item)), nested(ids)]
    return keras.Model([item, ids], outputs)


@pytest.mark.parametrize(
    ("layer", "values"),
    [
        (layers.IntegerLookup(vocabulary=[1000, 7, -3]), {1000, 7, -3, 1001}),
        (
            layers.IntegerLookup(vocabulary=[1000, 7], num_oov_indices=0),
            {1000, 7},
        ),
        (
            layers.StringLookup(vocabulary=["a", "b"]),
            {"a", "b", "an unknown one"},
        ),
        (layers.Lambda(lambda x: tf.function(ops.mod)(x, 7)), {*range(7)}),
    ],
)
def test_what_is_looked_up_is_of_the_vocabulary(layer, values):
    found = grid(looked_up(layer))
    assert len(found) == 4
    for case in found:
        assert set(case["item"].ravel().tolist()) <= values
        # The other ids have their own embedding.
        assert case["ids"].max() == 29
    assert {x for case in found for x in case["item"].ravel()} == values


def test_numbers_that_are_looked_up_are_no_ids_of_tokens():
    def names(first):
        x = layers.Embedding(9, 4)(first)
        model = keras.Model(inputs, layers.GlobalAveragePooling1D()(x))
        return [each.name for each in resolve_serving_signatures(model)]

    inputs = keras.Input((None,), dtype="int64", name="item")
    lookup = layers.IntegerLookup(vocabulary=[1000, 7])
    assert names(inputs) == ["serving_default", "from_ids"]
    assert names(lookup(inputs)) == ["serving_default"]
    assert names(layers.Hashing(9)(inputs + 1)) == ["serving_default"]


# ---- Given samples


def test_samples_come_first(make):
    model, sample = make.embedder(), np.array([[4, 44, 0]])
    for samples in (
        sample,
        [sample],
        {"ids": sample},
        [{"ids": sample}],
        ops.convert_to_tensor(sample),
    ):
        first, *rest = grid(model, samples=samples)
        assert first["ids"].dtype == np.int32
        np.testing.assert_array_equal(first["ids"], sample)
        assert len(rest) == 4


@pytest.mark.parametrize(
    ("options", "longest", "words"),
    [
        ({}, 512, 200),
        ({"sequence_length": 16}, 16, 200),
        ({"max_length": 9000}, 512, 520),
    ],
)
def test_what_a_tokenizer_cuts_is_asked(options, longest, words):
    """A text that is cut, and as many ids as the text has then."""
    text = keras.Input((), dtype="string", name="text")
    tokenizer = kp.CharacterTokenizer(["a", "b"], **options)
    size = tokenizer.vocabulary_size()
    vectors = layers.Embedding(size, 2, mask_zero=True)(tokenizer(text))
    model = keras.Model(text, vectors)
    resolved = resolve_serving_signatures(model)
    assert Probes.fit(resolved).max_length == longest
    assert Probes.fit(resolved, max_length=7).max_length == 7
    numeric = resolve_numeric_signatures(model)
    assert Probes.fit(numeric).max_length == longest
    asked = [case["text"] for case in grid(model)]
    found = max(len(each.split()) for texts in asked for each in texts)
    assert found == words


def test_samples_of_strings():
    inputs = keras.Input((), dtype="string", name="text")
    model = keras.Model(inputs, layers.Identity()(inputs))
    for samples in (
        np.array(["one", "two"]),
        np.array(["one", b"two"], dtype=object),
        {"text": ["one", "two"]},
    ):
        first, *_ = grid(model, samples=samples)
        assert first["text"].dtype == object
        assert np.array(first["text"], "S3").tolist() == [b"one", b"two"]


@pytest.mark.parametrize(
    "resolve", [resolve_signatures, resolve_numeric_signatures]
)
def test_texts_for_an_input_of_one_column(resolve):
    """As Keras's tutorials have it; LiteRT and ONNX take its ids."""
    text = keras.Input((1,), dtype="string", name="text")
    tokens = layers.TextVectorization(vocabulary=["one"])
    model = keras.Model(text, layers.Embedding(3, 2)(tokens(text)))
    signatures = resolve(model)
    flat, column = (
        fit_samples(signatures, np.array(texts))["serving_default"]
        for texts in (["one", "two"], [["one"], ["two"]])
    )
    (array,), (wanted,) = flat[0].values(), column[0].values()
    assert array.tolist() == wanted.tolist()
    assert array.shape == (2, 1)
    # Texts that do not fit are of the model, whose input is not the file's.
    with pytest.raises(ValueError, match=r"'text' .+ \(None, 1\)\. Received"):
        fit_samples(signatures, {"text": [["one", "two"]]})
