"""What families compute leaves in every format, verified."""

from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
# Each with something that no other has: a shared block and a projection, scores
# by buckets of distances, RMS and grouped heads, windows and gates, biases.
FAMILIES = ("albert", "deberta_v2", "eurobert", "modernbert", "mpnet")


def made():
    """All of them, of the same ids."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    outputs = {}
    for name in FAMILIES:
        family = kp.load_hugging_face(
            FIXTURES / name,
            from_ids=True,
            pad_id=45 if name == "eurobert" else None,  # its end symbol's
            name=name,
            verbose=False,
        )
        outputs[name] = family(ids)
    pairs = kp.TransformerEncoderModel(
        48,
        d_model=16,
        num_layers=1,
        num_heads=4,
        intermediate_dim=32,
        keep_inner_padding=True,
        separator_id=47,  # the highest one is among those that are asked
        name="pairs",
    )
    pairs.second_text_embedding.embedding.assign(np.linspace(-1, 1, 16))
    outputs["pairs"] = pairs(ids)
    return keras.Model(ids, outputs, name="families")


NIGHTLY = pytest.mark.slow


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("export", "name"),
    [
        (kp.export_litert, "families.tflite"),
        pytest.param(kp.export_saved_model, "families", marks=NIGHTLY),
        pytest.param(kp.export_onnx, "families.onnx", marks=NIGHTLY),
    ],
)
def test_exports_are_verified(tmp_path, export, name):
    model = made()
    # The shortest table of positions has 12 rows.
    artifact = export(
        model,
        tmp_path / name,
        signatures={"serving_default": model},
        max_length=12,
        verbose=False,
    )
    assert artifact.report.passed
    found = kp.inspect_export(artifact.path).signatures["serving_default"]
    assert set(found["outputs"]) == {*FAMILIES, "pairs"}
