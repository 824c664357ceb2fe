"""Weights that a format cannot hold are refused before the long work."""

import pytest

import keras_posenc as kp
from keras_posenc.export.signatures import sizes

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("export", "mode", "share", "advice"),
    [
        ("export_litert", {}, 1, "quantization='int8' divides them by 4"),
        ("export_litert", {"quantization": "float16"}, 1, "LiteRT files hold"),
        ("export_litert", {"quantization": "int8"}, 4, "LiteRT files hold"),
        ("export_onnx", {}, 1, "ONNX files hold"),
    ],
)
def test_more_than_a_file_can_hold(
    monkeypatch, tmp_path, make, export, mode, share, advice
):
    if export == "export_onnx":
        pytest.importorskip("tf2onnx")
    model = make.embedder()
    size = 4 * model.count_params()
    monkeypatch.setattr(sizes, "MOST", size // share - 1)
    suffix = {"export_litert": ".tflite"}.get(export, ".onnx")
    with pytest.raises(kp.ExportError, match=advice):
        getattr(kp, export)(
            model, tmp_path / f"m{suffix}", verbose=False, **mode
        )
    assert not [*tmp_path.iterdir()]


def test_what_a_file_can_hold(monkeypatch, tmp_path, make):
    model = make.embedder()
    monkeypatch.setattr(sizes, "MOST", 4 * model.count_params())
    path = tmp_path / "m.tflite"
    kp.export_litert(model, path, verify=False, verbose=False)
    assert path.exists()
