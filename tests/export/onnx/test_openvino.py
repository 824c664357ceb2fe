"""OpenVINO, an independent reader, gives the outputs of a SavedModel's model.

That of an ONNX file is in verification/test_replay.py.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
openvino = pytest.importorskip("openvino")

READER = Path(__file__).parents[3] / "export" / "openvino" / "reader.py"


def test_outputs_are_those_of_the_model(model, saved_model):
    """Of its default signature: OpenVINO reads no other."""
    read_model = runpy.run_path(str(READER))["read_model"]
    compiled = openvino.compile_model(
        read_model(saved_model.path),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32"},
    )
    for batch, length in ((1, 1), (3, 2), (3, 17), (1, 65), (3, 512)):
        rng = np.random.default_rng(length)
        ids = rng.integers(1, 50, (batch, length), "int32")
        ids[-1, (length + 1) // 2 :] = 0  # padding
        (scores,) = compiled({"ids": ids}).values()
        wanted = model(ids).numpy()  # predict would trace each shape
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5)
