"""What is in an artifact, read from the file itself."""

import dataclasses
import re
import shutil

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export import units, worker_client
from keras_posenc.export.inspect import Tensor, locate
from keras_posenc_worker import read

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


@pytest.mark.parametrize("kind", ["litert", "saved_model"])
def test_what_is_read(kind, request, model):
    path = request.getfixturevalue(kind).path
    found = kp.inspect_export(str(path))
    # Anyone may have written it: what read it reads no other file.
    assert read.__name__ not in {name for _, name, *_ in worker_client._spares}
    assert found.path == path
    assert found.kind == kind
    files = [path] if kind == "litert" else path.rglob("*")
    sizes = [file.stat().st_size for file in files if file.is_file()]
    assert found.size_bytes == sum(sizes)
    weights = sum(4 * int(np.prod(each.shape)) for each in model.weights)
    assert weights <= found.weight_bytes < found.size_bytes
    assert found.signatures == SIGNATURES
    assert found.foreign_operators == []
    # One for each signature at least.
    assert found.operators["SOFTMAX" if kind == "litert" else "Softmax"] >= 2
    counts = list(found.operators.values())
    assert counts == sorted(counts, reverse=True)


def test_highest_of_the_whole_versions(saved_model, tmp_path):
    for name in ("9", "10", ".11.partial", "latest"):
        shutil.copytree(saved_model.path, tmp_path / name)
    (tmp_path / "12").mkdir()
    (tmp_path / "13").write_text("not ours")
    assert locate(tmp_path) == (tmp_path / "10", "saved_model")
    (tmp_path / "10" / "11").mkdir()  # a version folder with numbers inside
    assert locate(tmp_path / "10") == (tmp_path / "10", "saved_model")


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


# ---- What is no exported model


def cut(path, part):
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])


# What is done to a folder with a version and a LiteRT file; what is inspected.
SPOILT = {
    "graph": (
        lambda folder: cut(folder / "1/saved_model.pb", 0.5),
        "1",
        "1' is no readable SavedModel: ",
    ),
    "empty": (
        lambda folder: (folder / "empty" / "3").mkdir(parents=True),
        "empty",
        "is no SavedModel: it has no saved_model.pb",
    ),
    "another": (
        lambda folder: (folder / "m.tflite").write_bytes(b"\0\0\0\0TFL2"),
        "m.tflite",
        "is neither a LiteRT file, an ONNX",
    ),
    "start": (
        lambda folder: (folder / "m.tflite").write_bytes(b"\x1c\0\0\0TFL3"),
        "m.tflite",
        "' is no readable LiteRT file: it is cut off, or damaged ",
    ),
    "truncated": (
        lambda folder: cut(folder / "m.tflite", 0.9),
        "m.tflite",
        "' is no readable LiteRT file: ",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_is_refused(saved_model, litert, tmp_path, case):
    spoil, name, message = SPOILT[case]
    shutil.copytree(saved_model.path, tmp_path / "1")
    shutil.copy(litert.path, tmp_path / "m.tflite")
    spoil(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        kp.inspect_export(tmp_path / name)
