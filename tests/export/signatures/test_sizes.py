"""Weights that a format cannot hold are refused before the long work."""

import pytest

import keras_posenc as kp
from keras_posenc.export.signatures import sizes

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("mode", "share", "advice"),
    [
        ({}, 1, "quantization='int8' divides them by 4"),
        ({"quantization": "float16"}, 1, "LiteRT files hold"),
        ({"quantization": "int8"}, 4, "LiteRT files hold"),
    ],
)
def test_more_than_a_file_can_hold(
    monkeypatch, tmp_path, make, mode, share, advice
):
    model = make.embedder()
    size = 4 * model.count_params()
    monkeypatch.setattr(sizes, "MOST", size // share - 1)
    with pytest.raises(kp.ExportError, match=advice):
        kp.export_litert(model, tmp_path / "m.tflite", verbose=False, **mode)
    pytest.importorskip("tf2onnx")
    with pytest.raises(kp.ExportError, match="ONNX files hold"):
        kp.export_onnx(model, tmp_path / "m.onnx", verbose=False)
    assert not [*tmp_path.iterdir()]
