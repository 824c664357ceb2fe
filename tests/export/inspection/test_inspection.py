"""What is in an artifact, read from the file itself."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export import units
from keras_posenc.export.inspect import Tensor, locate

pytestmark = pytest.mark.tensorflow

SIGNATURES = {
    "serving_default": {
        "inputs": {"ids": Tensor((None, None), "int32")},
        "outputs": {"scores": Tensor((None, 3), "float32")},
    },
    "short": {
        "inputs": {"ids": Tensor((1, 4), "int32")},
        "outputs": {"scores": Tensor((1, 3), "float32")},
    },
}


def weight_bytes(model):
    return sum(4 * int(np.prod(weight.shape)) for weight in model.weights)


def test_litert_file(litert, model):
    found = kp.inspect_export(str(litert.path))
    assert found.path == litert.path
    assert found.kind == "litert"
    assert found.size_bytes == litert.path.stat().st_size
    assert weight_bytes(model) <= found.weight_bytes < found.size_bytes
    assert found.signatures == SIGNATURES
    assert found.foreign_operators == []
    assert found.operators["GATHER"] >= 2  # one for each signature at least
    assert found.operators["SOFTMAX"] >= 2
    counts = list(found.operators.values())
    assert counts == sorted(counts, reverse=True)


def test_saved_model(saved_model, model):
    found = kp.inspect_export(saved_model.path)
    assert found.path == saved_model.path
    assert found.kind == "saved_model"
    files = [p for p in saved_model.path.rglob("*") if p.is_file()]
    assert found.size_bytes == sum(file.stat().st_size for file in files)
    assert weight_bytes(model) <= found.weight_bytes < found.size_bytes
    assert found.signatures == SIGNATURES
    assert found.foreign_operators == []
    assert found.operators["Softmax"] >= 2


def test_highest_of_the_whole_versions(saved_model, tmp_path):
    for name in ("9", "10", ".11.partial", "latest"):
        shutil.copytree(saved_model.path, tmp_path / name)
    (tmp_path / "12").mkdir()
    (tmp_path / "13").write_text("not ours")
    assert locate(tmp_path) == (tmp_path / "10", "saved_model")
    (tmp_path / "10" / "11").mkdir()  # a version folder with numbers inside
    assert locate(tmp_path / "10") == (tmp_path / "10", "saved_model")


def test_scalars_and_strings_of_a_saved_model(tmp_path):
    import tensorflow as tf

    class Module(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec((), "float32", name="x"),
                tf.TensorSpec(None, "string", name="text"),
            ]
        )
        def __call__(self, x, text):
            return {"y": x + 1, "length": tf.strings.length(text)}

    module = Module()
    tf.saved_model.save(module, tmp_path / "1", signatures=module.__call__)
    assert kp.inspect_export(tmp_path).signatures == {
        "serving_default": {
            "inputs": {
                "x": Tensor((), "float32"),
                "text": Tensor(None, "string"),
            },
            "outputs": {
                "y": Tensor((), "float32"),
                "length": Tensor(None, "int32"),
            },
        }
    }


def test_inspection_as_text(saved_model):
    found = kp.inspect_export(saved_model.path)
    line = (
        f"{found.path}: saved_model, {units.size(found.size_bytes)}, safe, "
        "signatures: serving_default, short"
    )
    assert str(found) == line
    first, weights, *tables = found.details().splitlines()
    assert first == line
    assert weights == f"weights: {units.size(found.weight_bytes)}"
    assert any("MatMul" in row for row in tables)
    found = dataclasses.replace(
        found,
        unsafe_operators=["PyFunc", "SaveV2"],
        foreign_operators=["Rare"],
        quantization="int8",
    )
    first, *warnings = str(found).splitlines()
    assert ": saved_model, int8, " in first
    assert ", UNSAFE, signatures: " in first
    assert warnings == [
        "operators that may do more than compute: PyFunc, SaveV2",
        "operators that the plain runtime lacks: Rare",
    ]


# ---- What is no artifact


@pytest.fixture
def folder(saved_model, tmp_path):
    """A version of one's own to spoil."""
    return shutil.copytree(saved_model.path, tmp_path / "1")


def test_variables_that_are_not_there(folder):
    path = folder / "variables" / "variables.index"
    path.unlink()
    message = f"'{folder}' is no readable SavedModel: variables/variables.index"
    with pytest.raises(ValueError, match=f"^{re.escape(message)} is missing"):
        kp.inspect_export(folder)


def test_graph_without_variables_needs_none(tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.double = tf.function(
        lambda x: {"y": 2 * x},
        input_signature=[tf.TensorSpec((), "float32", name="x")],
    )
    tf.saved_model.save(module, tmp_path, signatures=module.double)
    data = tmp_path / "variables" / "variables.data-00000-of-00001"
    data.write_bytes(bytes(1000))  # of nothing: limits follow from this size
    assert kp.inspect_export(tmp_path).weight_bytes == 0
    shutil.rmtree(tmp_path / "variables")
    assert kp.inspect_export(tmp_path).weight_bytes == 0


def test_file_of_a_saved_model(saved_model):
    path = saved_model.path / "saved_model.pb"
    message = (
        f"'{path}' is a part of a SavedModel: give the folder, "
        f"'{saved_model.path}'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        kp.inspect_export(path)


def test_file_that_is_none(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\0\0\0\0TFL2")
    with pytest.raises(ValueError, match="is neither a LiteRT file, an ONNX"):
        kp.inspect_export(path)


@pytest.mark.parametrize("content", ["variables", "3"])
def test_folder_that_is_none(tmp_path, content):
    (tmp_path / "model" / content).mkdir(parents=True)
    with pytest.raises(ValueError, match="is no SavedModel: it has no saved_m"):
        kp.inspect_export(tmp_path / "model")


@pytest.mark.parametrize("part", [8, 0.9])
def test_truncated_litert_file(litert, tmp_path, part):
    content = litert.path.read_bytes()
    end = part if isinstance(part, int) else int(part * len(content))
    path = tmp_path / "model.tflite"
    path.write_bytes(content[:end])
    with pytest.raises(
        ValueError,
        match="is no readable LiteRT file: "
        r"(it is cut off, or damaged \(|file lacks|the process that reads it )",
    ):
        kp.inspect_export(path)


def test_truncated_saved_model(saved_model, tmp_path):
    content = (saved_model.path / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is no readable SavedModel: "):
        kp.inspect_export(tmp_path)
