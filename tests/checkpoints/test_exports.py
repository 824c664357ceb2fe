"""What families compute leaves in every format, verified."""

from pathlib import Path

import keras
import pytest

import keras_posenc as kp

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
# Each with something that no other has: a shared block and a projection, scores
# by buckets of distances, RMS and grouped heads, windows and gates, biases.
FAMILIES = ("albert", "deberta_v2", "eurobert", "modernbert", "mpnet")


@pytest.fixture(scope="module")
def model():
    """All of them, of the same ids."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    outputs = {}
    for name in FAMILIES:
        family = kp.load_hugging_face(
            FIXTURES / name, from_ids=True, name=name, verbose=False
        )
        outputs[name] = family(ids)
    return keras.Model(ids, outputs, name="families")


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("export", "name"),
    [
        (kp.export_saved_model, "families"),
        (kp.export_litert, "families.tflite"),
        (kp.export_onnx, "families.onnx"),
    ],
    ids=["saved-model", "litert", "onnx"],
)
def test_exports_are_verified(model, tmp_path, export, name):
    # The shortest table of positions has 12 rows.
    artifact = export(
        model,
        tmp_path / name,
        signatures={"serving_default": model},
        max_length=12,
        verbose=False,
    )
    assert artifact.report.passed
    found = kp.inspect(artifact.path).signatures["serving_default"]
    assert set(found["outputs"]) == set(FAMILIES)
