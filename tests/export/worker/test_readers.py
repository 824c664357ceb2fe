"""What a SavedModel stores, and what Python makes of it, as its own model.

One export, and edits of it by protobuf: each must be refused.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

from keras import layers  # noqa: E402

from keras_posenc_worker import runtimes  # noqa: E402
from tests.export.edits import graph_of, message_of  # noqa: E402

DEFAULT, OTHER = "serving_default", "other"
INPUTS = {
    "first": np.array([[1, 2]], "int32"),
    "second": np.array([[3, 4]], "int32"),
    "words": np.array([[b"one", b"two"]], object),
}


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
    return Path(shutil.copytree(export, tmp_path / "1"))


def test_loading_runs_nothing(tmp_path):
    counter = tf.Module()
    counter.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([], "int32", name="step")])
    def step(step):
        return {"count": counter.count.assign_add(step)}

    tf.saved_model.save(counter, str(tmp_path), signatures=step)
    loaded = runtimes.VerifiedModel(str(tmp_path))
    for count in (1, 2):
        outputs = loaded.runners[DEFAULT]({"step": np.int32(1)})
        assert outputs["count"] == count


def change_weight(folder, name, change):
    """Writes the checkpoint again, with one of its tensors changed."""
    prefix = str(folder / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    tensors = {
        key: reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
    }
    for key, value in tensors.items():
        if getattr(value, "shape", ()) == (50, 4) and name in named_by(
            folder, key
        ):
            change(value)
    shutil.rmtree(folder / "variables")
    (folder / "variables").mkdir()
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def named_by(folder, key):
    """The name of the variable that a key of the checkpoint is of."""
    (graph,) = message_of(folder).meta_graphs
    objects = graph.object_graph_def.nodes
    node = objects[0]
    for name in key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE").split("/"):
        (child,) = (c for c in node.children if c.local_name == name)
        node = objects[child.node_id]
    return node.variable.name


def low_bits(value):
    value.view("uint32")[3, 1] ^= 0xFF  # of an id among INPUTS


def row_that_no_case_reaches(value):
    value[40] += 1


@pytest.mark.parametrize(
    "change", [low_bits, row_that_no_case_reaches], ids=lambda c: c.__name__
)
def test_changed_weight_is_named(folder, signatures, change):
    change_weight(folder, "right", change)
    report = kp.verify_export(
        folder,
        signatures[DEFAULT],
        signatures=signatures,
        max_length=1,
        tolerance=100,
        verbose=False,
    )
    assert not report.passed
    assert report.largest_difference < 100
    assert report.different_weights == ["right/embeddings"]
    assert "the file has other weights than the model: right/emb" in str(report)


def swap_items(items, one, other):
    items[one], items[other] = items[other], items[one]


def node_of(graph):
    """The node that calls the default signature, for servers."""
    name, _, _ = graph.signature_def[DEFAULT].outputs["one"].name.partition(":")
    return next(node for node in graph.graph_def.node if node.name == name)


def captured(graph, word):
    node = node_of(graph)
    return next(i for i, name in enumerate(node.input) if word in name)


def weights_swapped_for_python(graph):
    node, objects = node_of(graph), graph.object_graph_def
    bound = objects.concrete_functions[node.attr["f"].func.name].bound_inputs
    count = len(node.input) - len(bound)
    swap_items(
        bound,
        captured(graph, "left") - count,
        captured(graph, "right") - count,
    )


def test_other_outputs_in_python_are_refused(folder, signatures):
    with graph_of(folder) as graph:
        weights_swapped_for_python(graph)
    with pytest.raises(
        kp.ExportVerificationError,
        match="differs between servers and Python: signature 'serving_default'",
    ):
        kp.verify_export(
            folder, signatures[DEFAULT], signatures=signatures, max_length=1
        )
