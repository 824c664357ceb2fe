"""Jina v2 against its formulas, and the relatives that are refused."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_posenc as kp

FIXTURES = Path(__file__).parent.parent / "fixtures" / "jina_bert"


def loaded(folder, **options):
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


@pytest.mark.parametrize("name", ["geglu", "original"])
def test_computes_the_formulas(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        ids, mask, expected = (arrays[k] for k in ("ids", "mask", "hidden"))
    model = loaded(FIXTURES / name)
    found = keras.ops.convert_to_numpy(model(ids)) * mask[..., None]
    assert np.abs(found - expected).max() <= 5e-6 * np.abs(expected).max()
    assert model.encoder.use_gate == (name == "geglu")


def test_refuses_norms_of_queries_and_keys(tmp_path):
    """Of jina-embeddings-v2-base-code, under the same config."""
    folder = shutil.copytree(FIXTURES / "geglu", tmp_path / "code")
    tensors = load_file(folder / "model.safetensors")
    for part in ("q", "k"):
        name = f"encoder.layer.0.attention.self.layer_norm_{part}"
        tensors |= {
            f"{name}.{of}": np.ones(12, "f4") for of in ("weight", "bias")
        }
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match="normalizes queries and keys"):
        loaded(folder)


def test_refuses_other_gates(tmp_path):
    folder = shutil.copytree(FIXTURES / "geglu", tmp_path / "swiglu")
    config = json.loads((folder / "config.json").read_text())
    config["feed_forward_type"] = "swiglu"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="'swiglu' is not supported, only"):
        loaded(folder)
