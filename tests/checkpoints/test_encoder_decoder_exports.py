"""Exports of encoder-decoders that are read from checkpoints."""

import json
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.translator import translator_of
from keras_posenc.export.signatures.lengths import padding_of
from keras_posenc.export.signatures.resolve import resolve_serving_signatures

pytestmark = pytest.mark.tensorflow

FOLDER = Path(__file__).parent.parent / "fixtures" / "encoder_decoders"


def made(name):
    folder = FOLDER / name
    said = json.loads((folder / "config.json").read_text())
    with np.load(folder / "expected.npz") as arrays:
        samples = arrays["source"]
    generator = kp.Generator(
        translator_of(Folder(folder))[0],
        max_length=3,
        start_id=said["decoder_start_token_id"],
        end_ids=said["eos_token_id"],
    )
    return generator, {"samples": samples, "max_length": 9, "verbose": False}


def test_padding_of_sources():
    """It is 47, which also starts targets; that of targets is -1."""
    generator, _ = made("marian_two")
    signature = resolve_serving_signatures(generator)[0]
    assert padding_of(signature) == 47


def test_litert(tmp_path):
    generator, options = made("t5")
    path = tmp_path / "t5.tflite"
    assert kp.export_litert(generator, path, **options).report.passed


@pytest.mark.slow
def test_saved_model_and_onnx(tmp_path):
    generator, options = made("t5")
    saved = kp.export_saved_model(generator, tmp_path / "t5", **options)
    assert saved.report.passed
    generator, options = made("marian")
    path = tmp_path / "marian.onnx"
    assert kp.export_onnx(generator, path, **options).report.passed
