"""Signatures that XLA compiles for a few sizes."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.signatures.compiled import (
    compile_signatures,
    resolve_compiled,
)
from keras_posenc.export.signatures.signature import Signature
from tests.export.conftest import VOCABULARY, classifier

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
saved_model_pb2 = pytest.importorskip(
    "tensorflow.core.protobuf.saved_model_pb2"
)

SIZES = {"lengths": [4, 8], "batch_sizes": [1, 2]}


def batch(rows, length):
    rng = np.random.default_rng(length)
    return rng.integers(1, VOCABULARY, (rows, length)).astype("int32")


def compiled(call, *names):
    """A graph of `call`, from tensors of ids, compiled for `SIZES`."""
    specs = {
        name: keras.InputSpec(shape=(None, None), dtype="int32")
        for name in names
    }
    signature = Signature("serving_default", classifier(), specs, call)
    (found,) = compile_signatures([signature], resolve_compiled(SIZES))
    spec = tf.TensorSpec((None, None), "int32")
    return tf.function(found.call, [dict.fromkeys(names, spec)])


def test_padding_to_the_next_size():
    """As many shapes as sizes; what is larger stays as it is."""

    def call(tensors):
        ids = tensors["ids"]
        return {"same": ids, "first": ids[:, 0], "shape": tf.shape(ids)}

    answer = compiled(call, "ids")
    for rows in range(1, 4):
        for length in (1, 4, 5, 8, 9):
            given = batch(rows, length)
            found = answer({"ids": tf.constant(given)})
            np.testing.assert_array_equal(found["same"], given)
            np.testing.assert_array_equal(found["first"], given[:, 0])
            wanted = [rows, 4 if length <= 4 else 8]
            if rows > 2 or length > 8:
                wanted = [rows, length]
            assert found["shape"].numpy().tolist() == wanted


@pytest.mark.parametrize(("other", "is_padded"), [(3, True), (5, False)])
def test_inputs_are_padded_to_one_length(other, is_padded):
    answer = compiled(
        lambda tensors: {"shape": tf.shape(tensors["one"])},
        "one",
        "other",
    )
    found = answer(
        {"one": tf.constant(batch(1, 3)), "other": tf.constant(batch(1, other))}
    )
    assert found["shape"].numpy().tolist() == [1, 4 if is_padded else 3]


@pytest.mark.slow
def test_export(tmp_path):
    """What XLA compiles skips no padding, and what it does not does."""
    keras.utils.set_random_seed(0)
    model = classifier()
    sizes = {"lengths": [8]}
    # Each verification compiles each program twice. An export is verified in
    # test_c_program.py.
    artifact = kp.export_saved_model(
        model, tmp_path, compiled=sizes, verify=False, verbose=False
    )
    assert (
        "--xla_cpu_compilation_enabled"
        in (artifact.path / "MODEL_CARD.md").read_text()
    )
    loaded = tf.saved_model.load(str(artifact.path))
    for rows, length in ((1, 3), (1, 8), (1, 9), (3, 2)):
        given = batch(rows, length)
        found = loaded.signatures["serving_default"](ids=tf.constant(given))
        wanted = model(given)
        np.testing.assert_allclose(found["scores"], wanted, rtol=0, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        loaded.signatures["serving_default"](ids=tf.constant([[VOCABULARY]]))
    again = {"max_length": 9, "verbose": False}
    report = kp.verify(model, artifact.path, compiled=sizes, **again)
    assert report.passed
    assert "ids of shape (1, 8)" in {case.inputs for case in report.cases}
    report = kp.verify(model, artifact.path, **again)
    assert not report.passed
    assert "different graph: " in str(report)
    saved = saved_model_pb2.SavedModel.FromString(
        (artifact.path / "saved_model.pb").read_bytes()
    )
    functions = {
        each.signature.name: each
        for each in saved.meta_graphs[0].graph_def.library.function
    }
    programs = [
        name
        for name, each in functions.items()
        if each.attr["_XlaMustCompile"].b
    ]
    assert len(programs) == 2  # of the model, and of its embeddings
    by_xla, remaining = set(), programs
    while remaining:
        by_xla.add(name := remaining.pop())
        remaining += [
            attribute.func.name
            for node in functions[name].node_def
            for attribute in node.attr.values()
            if attribute.HasField("func")
        ]

    def operators(names):
        return {node.op for name in names for node in functions[name].node_def}

    assert "MatMul" in operators(by_xla)
    packs = "UnsortedSegmentSum"
    assert packs not in operators(by_xla)
    assert packs in operators(functions.keys() - by_xla)


def test_padding_that_counts_is_no_export(tmp_path):
    """A program of a model without masks answers for its padding."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    mean = keras.ops.mean(keras.layers.Embedding(9, 2)(ids), axis=1)
    with pytest.raises(kp.ExportVerificationError):
        kp.export_saved_model(
            keras.Model(ids, mean),
            tmp_path,
            compiled={"lengths": [4]},
            max_length=4,
            verbose=False,
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yes", "must be True, a dict of `lengths` and `batch_sizes`, or None"),
        ([16, 32], "must be True, a dict"),
        (
            {"length": [16]},
            "may have `lengths` and `batch_sizes`. Received: 'l",
        ),
        ({"lengths": 16}, "'lengths' must be integers above 0 that increase"),
        ({"lengths": []}, "'lengths' must be"),
        ({"lengths": [32, 16]}, "that increase, up to 16384, such as .16, 32"),
        ({"lengths": [16, 16]}, "that increase"),
        ({"batch_sizes": [0, 1]}, "'batch_sizes' must be integers above 0"),
        ({"batch_sizes": [True]}, "'batch_sizes' must be"),
    ],
)
def test_sizes_that_are_none(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        kp.export_saved_model(classifier(), tmp_path, compiled=given)


def looked_up():
    words = keras.Input((None,), dtype="int64", name="words")
    known = keras.layers.IntegerLookup(vocabulary=[1, 2])(words)
    return keras.Model(words, keras.layers.Embedding(4, 2)(known))


def images():
    pixels = keras.Input((None, None, 3), name="pixels")
    return keras.Model(pixels, keras.layers.Conv2D(2, 1)(pixels))


def low():
    ids = keras.Input((None,), dtype="int32", name="ids")
    rows = keras.layers.Embedding(4, 2, dtype="mixed_bfloat16")(ids)
    return keras.Model(ids, rows)


def pairs():
    """Texts of two inputs, of which no signature takes the ids."""
    tokenizer = kp.CharacterTokenizer("ab")
    given = [keras.Input((), dtype="string", name=name) for name in "xy"]
    ids = keras.ops.concatenate([tokenizer(text) for text in given], axis=1)
    rows = keras.layers.Embedding(9, 2)(ids)
    return keras.Model(given, kp.MaskedAveragePooling1D()(rows))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (low, "computes in bfloat16, which compiled programs round diff"),
        (pairs, "no other signature takes its ids"),
        (looked_up, "'serving_default': it looks up 'words' in a vocabulary"),
        (images, "its input 'pixels', of shape .*, has more than one dynamic"),
    ],
)
def test_what_xla_cannot_compile(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        kp.export_saved_model(make(), tmp_path, compiled=True)


def test_programs_that_cannot_be_asked(tmp_path):
    """Samples reach one program, or none."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    mean = keras.ops.mean(keras.ops.one_hot(ids, 9), axis=1)
    with pytest.raises(ValueError, match="its programs cannot all be"):
        kp.export_saved_model(
            keras.Model(ids, mean),
            tmp_path,
            compiled=True,
            samples={"ids": np.ones((1, 200), "int32")},
        )


def test_generators_are_not_compiled(tmp_path):
    decoder = kp.TransformerDecoderModel(
        20, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
    )
    generator = kp.Generator(decoder, max_length=4, start_id=1, end_ids=2)
    with pytest.raises(
        ValueError, match="its outputs are choices, as a generator"
    ):
        kp.export_saved_model(generator, tmp_path, compiled=True)
