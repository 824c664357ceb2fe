"""Vectors of length 1."""

import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import keras_posenc as kp
from keras_posenc.checkpoints.unit_length import UnitLength


@pytest.mark.tensorflow
def test_a_vector_of_zeros_stays_so_in_litert(tmp_path):
    layer = UnitLength(name="unit")
    x = np.array([[0, 0, 0], [1, 2, 2], [1e-20, 0, 0]], "float32")
    expected = np.array([[0, 0, 0], [1 / 3, 2 / 3, 2 / 3], [1e-8, 0, 0]])
    np.testing.assert_allclose(layer(x), expected, rtol=1e-6)
    model = keras.Sequential([keras.Input((3,), name="x"), layer])
    path = tmp_path / "unit.tflite"
    kp.export_litert(model, path, samples={"x": x[:2]}, verbose=False)
    judge = Interpreter(str(path)).get_signature_runner("serving_default")
    np.testing.assert_allclose(judge(x=x[:2])["unit"], expected[:2], rtol=1e-6)
