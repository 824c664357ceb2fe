"""Files of the fewest bits that keep a share of quality."""

import sys

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats import litert
from keras_posenc.export.formats.litert_file import read, write
from keras_posenc.export.formats.litert_quantize import rounded

pytestmark = pytest.mark.tensorflow

DIM, KEEP = 64, 0.95
SAMPLES = np.random.default_rng(0).normal(size=(60, DIM)).astype("float32")
SAMPLES[:, 0] = 0


@pytest.fixture(scope="module")
def model():
    """One kernel has outliers for a number that is always 0.

    They change no output, and leave no bits for its other weights.
    """
    keras.utils.set_random_seed(0)
    inputs = keras.Input((DIM,), name="numbers")
    fragile = layers.Dense(DIM, "tanh", name="fragile")
    scores = layers.Dense(32, "softmax", name="scores")(fragile(inputs))
    kernel = fragile.kernel.numpy()
    kernel[0] = 500
    fragile.kernel.assign(kernel)
    return keras.Model(inputs, scores)


def test_sensitive_weight_has_more_bits(model, tmp_path, monkeypatch):
    whole = tmp_path / "whole.tflite"
    kp.export_litert(model, whole, verify=False, verbose=False)

    def convert(_, mode, path, *more):
        """Rounds what was converted once."""
        write(rounded(read(whole.read_bytes()), mode), path)

    monkeypatch.setattr(litert, "convert", convert)
    found = kp.quantize(
        model, tmp_path / "m.tflite", samples=SAMPLES, keep=KEEP, verbose=False
    )
    weights = {each.name.split("/")[0]: each for each in found.weights}
    assert weights["fragile"].mode == "float16"
    assert weights["scores"].mode in ("int4", "int8", "int8-weights")
    assert (
        weights["fragile"].losses["int8"]
        > 10 * weights["scores"].losses["int8"]
    )
    assert "1 weight in float16" in str(found)
    # Held to the other half of the samples.
    (quality,) = found.report.quality.values()
    assert quality.rows == len(SAMPLES) // 2
    assert found.report.limits["agreement"] == KEEP
    assert quality.agreement is None or quality.agreement >= KEEP
    assert quality.sqnr >= found.report.limits["sqnr"] == 13
    again = kp.export_litert(
        model,
        tmp_path / "again.tflite",
        quantization=found.quantization,
        samples=SAMPLES[1::2],
        verbose=False,
    )
    assert again.path.read_bytes() == found.path.read_bytes()


def test_without_enough_quality_the_file_is_in_float32(model, tmp_path):
    """ONNX has no mode for each weight."""
    path = tmp_path / "m.onnx"
    found = kp.quantize(
        model, path, samples=[{"numbers": SAMPLES}], keep=KEEP, verbose=False
    )
    assert found.quantization is None
    assert kp.inspect_export(path).quantization is None
    assert str(found).endswith("quantize found: float32")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": 1.5}, "above 0 and at most 1.*keep=1.5"),
        ({"path": "saved_model"}, "must end in '.tflite' or '.onnx'"),
        ({"samples": SAMPLES[:1]}, "two real inputs at least"),
        ({"samples": SAMPLES[:, :5]}, "has shape"),
        ({"verify": False}, "with `verify=False`"),
        ({"limits": {"bits": 3}}, "must be numbers by name, "),
    ],
)
def test_refuses(model, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    arguments = {"path": "m.tflite", "samples": SAMPLES, **arguments}
    with pytest.raises(ValueError, match=message):
        kp.quantize(model, verbose=False, **arguments)
    assert not [*tmp_path.iterdir()]


def test_needs_the_extra(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer", None)
    with pytest.raises(ImportError, match=r"keras-posenc\[quantize\]"):
        kp.quantize(model, tmp_path / "m.tflite", samples=SAMPLES)
