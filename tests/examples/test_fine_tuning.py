"""The example of fine-tuning: a small encoder learns to tell packages apart."""

import re

import keras
import pytest
import tensorflow as tf

import keras_posenc  # noqa: F401  (registers its layers)
from tests.examples import encoder_folder, scripts

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
pytest.importorskip("mediapipe")


def test_learns_and_delivers(tmp_path):
    encoder_folder.write(tmp_path / "encoder")
    report = scripts.run(
        "fine_tuning",
        *("--model", "encoder", "--out", "out", "--classes", 3),
        *("--texts", 150, "--epochs", 8, "--rate", 0.01),
        folder=tmp_path,
    )
    report = " ".join(report.split())
    before, after = map(
        float, re.findall(r"([\d.]+)% (?:are right|after)", report)
    )
    assert after > before + 5
    assert report.count("verified: ") == 2

    model = keras.saving.load_model(tmp_path / "out" / "packages.keras")
    assert len(model.labels) == 3
    assert not any("lora" in weight.name for weight in model.weights)
    served = tf.saved_model.load(tmp_path / "out" / "packages" / "1")
    text = "Return the path of a file."
    found = served.signatures["serving_default"](text=tf.constant([text]))
    (scores,) = model.predict([text], verbose=0)
    label = model.labels[scores.argmax()]
    assert found["label"].numpy()[0].decode() == label
