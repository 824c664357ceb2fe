"""What a SavedModel stores, and what Python makes of it, as its own model."""

import shutil

import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

from keras import layers  # noqa: E402

from keras_posenc_worker import runtimes  # noqa: E402
from tests.export.files import graph_of  # noqa: E402

DEFAULT, OTHER = "serving_default", "other"


@pytest.fixture(scope="module")
def signatures():
    """Two models of the same inputs and outputs, and of the same weights."""
    keras.utils.set_random_seed(0)
    first, second = (
        keras.Input((None,), dtype="int32", name=name)
        for name in ("first", "second")
    )
    words = keras.Input((None,), dtype="string", name="words")
    lookup = layers.StringLookup(vocabulary=["one", "two", "three"])
    left = layers.Embedding(50, 4, name="left")(first)
    right = layers.Embedding(50, 4, name="right")(second)
    known = layers.Embedding(4, 4, name="known")(lookup(words))
    normed = layers.LayerNormalization(epsilon=1e-3)(left + known)
    inputs = [first, second, words]
    return {
        DEFAULT: keras.Model(inputs, {"one": normed, "two": right}),
        OTHER: keras.Model(inputs, {"one": right, "two": normed}),
    }


@pytest.fixture(scope="module")
def export(signatures, tmp_path_factory):
    return kp.export_saved_model(
        signatures[DEFAULT],
        tmp_path_factory.mktemp("readers") / "model",
        signatures=signatures,
        max_length=2,
        verbose=False,
    ).path


@pytest.fixture
def folder(export, tmp_path):
    return shutil.copytree(export, tmp_path / "1")


def test_loading_runs_nothing(tmp_path):
    counter = tf.Module()
    counter.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([], "int32", name="step")])
    def step(step):
        return {"count": counter.count.assign_add(step)}

    tf.saved_model.save(counter, str(tmp_path), signatures=step)
    loaded = runtimes.SavedModel(str(tmp_path))
    for count in (1, 2):
        outputs = loaded.runners[DEFAULT]({"step": np.int32(1)})
        assert outputs["count"] == count


def test_changed_weight_is_named(folder, signatures):
    """... by what the file stores: there is no record."""
    shutil.rmtree(folder / "assets.extra")
    table = signatures[DEFAULT].get_layer("right").embeddings
    before = table.numpy()
    changed = before.copy()
    changed.view("uint32")[3, 1] ^= 0xFF  # the low bits
    table.assign(changed)
    try:
        report = kp.verify_export(
            folder,
            signatures[DEFAULT],
            signatures=signatures,
            max_length=1,
            tolerance=100,
            verbose=False,
        )
    finally:
        table.assign(before)
    assert not report.passed
    assert report.largest_difference < 100
    assert report.different_weights == ["right/embeddings"]
    assert "the file has other weights than the model: right/emb" in str(report)


def test_other_outputs_in_python_are_refused(folder, signatures):
    with graph_of(folder) as graph:
        # The node that calls the signature for servers, and what Python gives.
        output = graph.signature_def[DEFAULT].outputs["one"].name
        (node,) = (
            each
            for each in graph.graph_def.node
            if each.name == output.partition(":")[0]
        )
        objects = graph.object_graph_def
        function = node.attr["f"].func.name
        bound = objects.concrete_functions[function].bound_inputs
        inputs = [*node.input][-len(bound) :]
        left, right = (
            next(i for i, name in enumerate(inputs) if word in name)
            for word in ("left", "right")
        )
        bound[left], bound[right] = bound[right], bound[left]
    with pytest.raises(
        kp.ExportVerificationError,
        match="differs between servers and Python: signature 'serving_default'",
    ):
        kp.verify_export(
            folder, signatures[DEFAULT], signatures=signatures, max_length=1
        )
