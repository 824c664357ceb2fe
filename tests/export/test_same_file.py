"""The same model gives the same LiteRT file, byte for byte."""

import hashlib
import os
import subprocess
import sys

import keras
import pytest
from keras import layers

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


def model():
    """An encoder with a table of positions inside attention."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = kp.TransformerEncoderModel(
        20,
        d_model=8,
        num_layers=2,
        num_heads=2,
        intermediate_dim=16,
        attention="t5",
        name="encoder",
    )(ids)
    x = kp.Pooling1D("mean", name="mean")(x)
    return keras.Model(ids, layers.Dense(2, name="scores")(x), name="model")


def digest(folder):
    path = folder / "model.tflite"
    kp.export_litert(model(), path, verify=False, verbose=False)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_again_in_one_process(tmp_path):
    first = digest(tmp_path)
    layers.Dense(3)(keras.Input((2,)))  # counters of names go on
    assert digest(tmp_path) == first


@pytest.mark.slow
def test_in_processes_that_hash_otherwise(tmp_path):
    code = f"""
import runpy
from pathlib import Path
print(runpy.run_path({__file__!r})["digest"](Path({str(tmp_path)!r})))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.split("\n")[-2]
        for seed in ("1", "2")
    }
    assert found == {digest(tmp_path)}
