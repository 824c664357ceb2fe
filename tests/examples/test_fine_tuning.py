"""The example of fine-tuning: a small encoder learns to tell packages apart."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import keras_posenc as kp
from tests.examples import encoder_folder

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
pytest.importorskip("mediapipe")

ROOT = Path(__file__).resolve().parents[2]


def test_learns_and_delivers(tmp_path):
    encoder_folder.write(tmp_path / "encoder")
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    finished = subprocess.run(
        [
            *(sys.executable, ROOT / "examples" / "fine_tuning.py"),
            *("--model", "encoder", "--out", "out", "--classes", "3"),
            *("--texts", "150", "--epochs", "8", "--rate", "0.01"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    report = " ".join(finished.stdout.split())
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
    (row,) = kp.predict_texts(model, [text], labels=model.labels)
    assert found["label"].numpy()[0].decode() == row["label"]
