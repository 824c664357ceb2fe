"""The same model gives the same LiteRT file, byte for byte.

In another process it also gives the same SavedModel.
"""

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


def saved_model_digests(folder):
    """Of all files except `fingerprint.pb`, which has a random number."""
    path = folder / "saved_model"
    kp.export_saved_model(model(), path, verify=False, verbose=False)
    return {
        each.relative_to(path).as_posix(): hashlib.sha256(
            each.read_bytes()
        ).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != "fingerprint.pb"
    }


def litert_digest(folder):
    path = folder / "model.tflite"
    kp.export_litert(model(), path, verify=False, verbose=False)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_again_in_one_process(tmp_path):
    first = litert_digest(tmp_path)
    layers.Dense(3)(keras.Input((2,)))  # counters of names go on
    assert litert_digest(tmp_path) == first


@pytest.mark.slow
def test_in_processes_that_hash_otherwise(tmp_path):
    code = f"""
import sys
from pathlib import Path
from importlib import util
spec = util.spec_from_file_location("same", {__file__!r})
same = util.module_from_spec(spec)
spec.loader.exec_module(same)
folder = Path(sys.argv[1])
folder.mkdir()
print(same.saved_model_digests(folder), same.litert_digest(folder))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.split("\n")[-2]
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert "'1/saved_model.pb'" in found.pop()
    for seed in ("1", "2"):
        path = tmp_path / seed / "saved_model"
        assert kp.verify_export(
            path, model(), max_length=2, verbose=False
        ).passed
