"""Ids with their lengths, for servers that pad with what they please."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.probes.generate import make_probes
from keras_posenc.export.probes.samples import fit_samples
from keras_posenc.export.signatures.resolve import resolve_serving_signatures
from tests.export.files import loaded_file

pytestmark = pytest.mark.tensorflow


def resolve(model, **options):
    return {
        signature.name: signature
        for signature in resolve_serving_signatures(model, **options)
    }


def ask(signature, **inputs):
    tensors = {
        name: tf.constant(value, signature.specs[name].dtype)
        for name, value in inputs.items()
    }
    return {k: v.numpy() for k, v in signature.call(tensors).items()}


@pytest.mark.parametrize(
    ("length", "real", "padding"),
    [(4, 4, 0), (3, 3, 7), (0, 0, 7), (-1, 0, 0), (2**31 - 1, 4, 7)],
)
def test_what_is_past_a_length_is_0(make, length, real, padding):
    inputs = make.ids("words")
    model = keras.Model(inputs, {"ids": layers.Identity()(inputs)})
    from_ids = resolve(model)["from_ids"]
    assert {
        name: (tuple(spec.shape), spec.dtype)
        for name, spec in from_ids.specs.items()
    } == {"ids": ((None, None), "int32"), "lengths": ((None,), "int32")}
    ids = np.array([[5, 0, 6, 8], [1, 2, 3, padding]])
    actual = ask(from_ids, ids=ids, lengths=[length, 3])["ids"]
    expected = [[5, 0, 6, 8][:real] + [0] * (4 - real), [1, 2, 3, 0]]
    np.testing.assert_array_equal(actual, expected)
    # What verification expects is told by other code.
    asked = from_ids.oracle.to_base(
        {"ids": ids, "lengths": np.array([length, 3], "int32")}
    )
    np.testing.assert_array_equal(asked["words"], expected)


def test_padding_is_what_the_model_calls_so():
    """RoBERTa's is 1, and 0 begins its texts."""
    model = kp.TransformerEncoderModel(
        9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=16, pad_id=1
    )
    tokenizer = kp.WordpieceTokenizer(
        ["[CLS]", "[PAD]", "[UNK]", "[SEP]", "a", "b"],
    )
    assert tokenizer.pad_id == 1
    ids = np.array([[0, 4, 5, 3], [0, 5, 3, 0]], "int32")
    padded = np.array([[0, 4, 5, 3], [0, 5, 3, 1]], "int32")
    expected = np.asarray(model(padded))[1, :3]
    text = keras.Input((), dtype="string", name="text")
    of_texts = keras.Model(text, model(tokenizer(text)))
    for whole in (model, of_texts):
        from_ids = resolve(whole)["from_ids"]
        (found,) = ask(from_ids, ids=ids, lengths=[4, 3]).values()
        np.testing.assert_allclose(found[1, :3], expected, rtol=0, atol=1e-6)
        widened = from_ids.oracle.widen({"ids": padded})
        assert widened["lengths"].tolist() == [4, 3]
        # What verification invents ends with zeros, whatever padding is.
        asked = [each.inputs for each in probes(from_ids, None, 5)]
        assert any(
            np.any(each["lengths"] < each["ids"].shape[1]) for each in asked
        )


@pytest.mark.parametrize("lengths", [[2], [2, 3, 4], [[2], [3]]])
def test_lengths_of_other_rows(make, lengths):
    inputs = make.ids()
    model = keras.Model(inputs, {"ids": layers.Identity()(inputs)})
    from_ids = resolve(model)["from_ids"]
    given = {"ids": np.ones((2, 4), "int32"), "lengths": np.array(lengths)}
    graph = tf.function(from_ids.call, autograph=False)
    of_any_shape = {
        name: tf.TensorSpec(None if name == "lengths" else (None, 4), "int32")
        for name in given
    }
    run = graph.get_concrete_function(of_any_shape)
    reason = "lengths.* must hold one number for each example|Shape of tensor"
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        run({k: tf.constant(v, "int32") for k, v in given.items()})
    if given["lengths"].ndim == 1:  # else it is no sample of the signature
        with pytest.raises(ValueError, match=f"{len(lengths)} lengths and 2"):
            from_ids.oracle.to_base(given)


def probes(signature, samples, max_length):
    given = fit_samples([signature], samples)[signature.name]
    made = make_probes(signature, given, max_length, lambda inputs: True)
    return (each for each in made if not each.is_of_tables)


def test_verification_pads_as_servers_do(make):
    from_ids = resolve(make.classifier())["from_ids"]
    cases = [probe.inputs for probe in probes(from_ids, None, 17)]
    shapes = {inputs["ids"].shape for inputs in cases}
    assert shapes == {(1, 1), (3, 2), (3, 17), (1, 17)}
    (rows,) = (i for i in cases if i["ids"].shape == (3, 17))
    assert rows["lengths"].tolist() == [16, 9, 0]
    for row, length in zip(rows["ids"], rows["lengths"], strict=True):
        assert np.all(row[length:] == rows["ids"][0, 0])
    assert rows["ids"][0, 0] == 49
    empty = np.zeros((2, 0), "int32")
    cases = [probe.inputs for probe in probes(from_ids, empty, 5)]
    (inputs,) = (case for case in cases if not case["ids"].size)
    assert inputs["ids"].shape == (2, 0)
    assert inputs["lengths"].tolist() == [0, 0]


def test_samples_of_ids_go_with_lengths_too(make):
    inputs = make.ids()
    vectors = layers.Lambda(lambda x: ops.one_hot(x, 8), (None, 8))(inputs)
    model = keras.Model(inputs, layers.Dense(2)(vectors))
    from_ids = resolve(model)["from_ids"]
    sample = {"ids": [[3, 4, 0], [5, 0, 0]]}
    for given, ids, lengths in (
        (sample, [[3, 4, 3], [5, 3, 3]], [2, 1]),
        ({**sample, "lengths": [2, 3]}, sample["ids"], [2, 3]),
    ):
        (probe,) = probes(from_ids, given, 5)
        assert probe.is_required
        assert probe.is_sample
        assert probe.inputs["lengths"].tolist() == lengths
        assert probe.inputs["ids"].tolist() == ids


@pytest.mark.parametrize(
    "inputs",
    [[((None,), "float32")], [((None,), "int32")] * 2, [((5,), "int32")]],
    ids=["floats", "two", "of fixed length"],
)
def test_model_without_a_sequence_of_ids_has_no_such_signature(inputs):
    made = [keras.Input(shape, dtype=dtype) for shape, dtype in inputs]
    outputs = [layers.Identity()(x) for x in made]
    assert set(resolve(keras.Model(made, outputs))) == {"serving_default"}


def test_batching_changes_no_answer(served):
    """TensorFlow Serving pads by the first element of a request's tensor."""
    run = loaded_file(served.path, "from_ids")
    rows = [[2, 4, 5, 6, 7, 3], [2, 3, 9], [10], [9, 9, 9, 9]]
    lengths = np.array([6, 2, 0, 4], "int32")
    padded = [row + [row[0]] * (6 - len(row)) for row in rows]
    together = run({"ids": np.array(padded), "lengths": lengths})
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        alone = run({"ids": np.array([row]), "lengths": np.array([length])})
        for name, wanted in alone.items():
            found = together[name][index : index + 1]
            if wanted.dtype == object:
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
