"""The same model gives the same LiteRT and ONNX file, byte for byte.

In another process it also gives the same SavedModel.
"""

import hashlib
import os
import subprocess
import sys

import keras
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats.onnx_order import sort_graph

pytestmark = pytest.mark.tensorflow


def model():
    """An encoder with a table of positions inside attention."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = kp.TransformerEncoderModel(
        20,
        d_model=8,
        num_layers=2,
        num_heads=2,
        intermediate_dim=16,
        attention_position="t5",
        name="encoder",
    )(ids)
    x = kp.MaskedAveragePooling1D(name="mean")(x)
    return keras.Model(ids, layers.Dense(2, name="scores")(x), name="model")


def recurrent():
    """Loops, since the graph does not know the length."""
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((None, 4), name="x")
    x = layers.GRU(3, return_sequences=True, name="gru")(x)
    outputs = layers.LSTM(3, name="lstm")(x)
    return keras.Model(inputs, outputs, name="recurrent")


def saved_model_digests(folder):
    """Of all files except `fingerprint.pb`, which has a random number."""
    path = folder / "saved_model"
    kp.export_saved_model(model(), path, verify=False, verbose=False)
    return {
        each.relative_to(path).as_posix(): hashlib.sha256(
            each.read_bytes()
        ).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != "fingerprint.pb"
    }


EXPORTS = (
    (kp.export_litert, model, "model.tflite"),
    (kp.export_onnx, recurrent, "recurrent.onnx"),
    (kp.export_onnx, model, "model.onnx"),
)


def digests(folder, exports=EXPORTS):
    found = []
    for export, make, name in exports:
        path = folder / name
        export(make(), path, verify=False, verbose=False)
        found.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def test_again_in_one_process(tmp_path):
    pytest.importorskip("onnx")
    exports = EXPORTS[:2]  # one file of each format
    first = digests(tmp_path, exports)
    layers.Dense(3)(keras.Input((2,)))  # counters of names go on
    assert digests(tmp_path, exports) == first


def test_outputs_keep_their_names():
    """Also outputs that are constants, of which some are equal."""
    helper = pytest.importorskip("onnx").helper
    values = [
        helper.make_tensor(name, 1, [1], [3.0]) for name in ("b", "a", "c")
    ]
    outputs = [helper.make_tensor_value_info(x, 1, [1]) for x in ("a", "b")]
    added = helper.make_node("Add", ["b", "c"], ["y"])
    outputs.append(helper.make_tensor_value_info("y", 1, [1]))
    graph = helper.make_graph([added], "g", [], outputs, values)
    sort_graph(graph, (), {})
    assert [each.name for each in graph.output] == ["a", "b", "y"]
    assert {"a", "b"} <= {each.name for each in graph.initializer}
    known = {each.name for each in graph.initializer}
    assert {*graph.node[0].input} <= known


@pytest.mark.slow
def test_in_processes_that_hash_otherwise(tmp_path):
    pytest.importorskip("onnx")
    code = f"""
import sys
from pathlib import Path
from importlib import util
spec = util.spec_from_file_location("same", {__file__!r})
same = util.module_from_spec(spec)
spec.loader.exec_module(same)
folder = Path(sys.argv[1])
folder.mkdir()
print(same.saved_model_digests(folder), same.digests(folder))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.split("\n")[-2]
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert "'1/saved_model.pb'" in found.pop()
    for seed in ("1", "2"):
        path = tmp_path / seed / "saved_model"
        assert kp.verify(model(), path, max_length=2, verbose=False).passed
