"""OpenVINO, an independent reader, gives an exported model's answers."""

import runpy
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
openvino = pytest.importorskip("openvino")

READER = Path(__file__).parents[3] / "export" / "openvino" / "reader.py"


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(50, 16, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(1, num_heads=2, intermediate_dim=32),
            kp.Pooling1D("mean"),
            keras.layers.Dense(3, activation="softmax", name="scores"),
        ]
    )


@pytest.fixture(scope="module", params=["saved_model", "onnx"])
def compiled(request, model, tmp_path_factory):
    """Its one signature: OpenVINO reads `serving_default` alone."""
    folder = tmp_path_factory.mktemp("openvino")
    options = {"verify": False, "verbose": False}  # another runtime does below
    if request.param == "onnx":
        pytest.importorskip("tf2onnx")
        artifact = kp.export_onnx(model, folder / "m.onnx", **options)
        read_model = openvino.Core().read_model
    else:
        artifact = kp.export_saved_model(model, folder, **options)
        read_model = runpy.run_path(str(READER))["read_model"]
    return openvino.compile_model(
        read_model(artifact.path),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32"},
    )


@pytest.mark.parametrize(
    ("batch", "length"), [(1, 1), (3, 2), (3, 17), (1, 65), (3, 512)]
)
def test_answers(model, compiled, batch, length):
    ids = np.random.default_rng(length).integers(
        1, 50, (batch, length), "int32"
    )
    ids[-1, (length + 1) // 2 :] = 0  # padding
    (scores,) = compiled({"ids": ids}).values()
    wanted = model(ids).numpy()  # predict would trace each shape
    assert scores.shape == wanted.shape
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5)
