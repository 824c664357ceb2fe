"""An export answers in OpenVINO."""

import os
import runpy
from pathlib import Path

import keras
import numpy as np
import openvino

import keras_posenc as kp

model = keras.Sequential(
    [
        keras.Input((None,), dtype="int32", name="ids"),
        keras.layers.Embedding(20, 8),
        kp.PositionalEncoding(),
        kp.TransformerEncoder(1, num_heads=2, intermediate_dim=16),
        kp.Pooling1D("mean"),
    ]
)
ids = np.array([[3, 4, 5]], dtype="int32")
answer = np.asarray(model(ids))
kp.export_saved_model(model, "judge")

recipes = Path(os.environ["CHECKOUT"], "export")
reader = runpy.run_path(str(recipes / "openvino" / "reader.py"))
compiled = openvino.compile_model(
    reader["read_model"]("judge/1"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
)
np.testing.assert_allclose(compiled(ids)[0], answer, atol=1e-5)
