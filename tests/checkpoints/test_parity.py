"""Every family against `transformers`, on random weights."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints.bicubic import resized
from keras_posenc.checkpoints.blank import blank
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.families.vit import ViT
from keras_posenc.keras_internals import layers_within

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
IMAGES = {"deit", "dinov2", "dinov3", "vit"}
ENCODERS = sorted(
    folder.name for folder in FIXTURES.iterdir() if folder.name not in IMAGES
)
# Relative to the largest answer. 10 blocks at most of products with sums of up
# to 64 terms, in float32; a key that is ignored makes 1e-3 and more.
TOLERANCE = 5e-6
# EuroBERT pads with its end symbol, which no text here has.
PADDED = {
    name: {"pad_id": 45} for name in ENCODERS if name.startswith("eurobert")
}


def loaded(folder):
    options = PADDED.get(folder.name, {})
    return kp.load_hugging_face(folder, from_ids=True, verbose=False, **options)


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_sees_what_transformers_does(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        images, hidden = arrays["pixels"], arrays["hidden"]
    model = kp.load_hugging_face(FIXTURES / name, verbose=False)
    answers = model(images.transpose(0, 2, 3, 1))
    answers = keras.ops.convert_to_numpy(answers)
    assert relative(answers, hidden) <= TOLERANCE


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_sees_images_of_another_size_as_transformers_does(name):
    with np.load(FIXTURES / name / "resized.npz") as arrays:
        images, hidden = arrays["pixels"], arrays["hidden"]
    model = kp.load_hugging_face(
        FIXTURES / name, image_size=images.shape[2:], verbose=False
    )
    answers = model(images.transpose(0, 2, 3, 1))
    answers = keras.ops.convert_to_numpy(answers)
    assert relative(answers, hidden) <= TOLERANCE


def test_grids_of_another_size():
    with np.load(FIXTURES / "dinov2" / "bicubic.npz") as arrays:
        grid, expected = (
            arrays[name].transpose(1, 2, 0) for name in ("grid", "resized")
        )
    found = resized(grid, *expected.shape[:2])  # fewer rows, more columns
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ENCODERS)
def test_computes_what_transformers_does(name):
    folder = FIXTURES / name
    with np.load(folder / "expected.npz") as arrays:
        arrays = dict(arrays)
    model = loaded(folder)
    answers = keras.ops.convert_to_numpy(model(arrays["ids"]))
    check_answers(model, answers, arrays)


SIZES = {"d_model": 8, "num_layers": 2, "num_heads": 2, "intermediate_dim": 6}


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (Bert(), {"vocabulary_size": 9, "embedding_dim": 4}),
        (ViT(), {"image_size": 8, "patch_size": 4}),
    ],
    ids=["texts", "images"],
)
def test_no_numbers_are_drawn_that_a_checkpoint_replaces(family, options):
    """And yet the model is one like any other, and so is a copy."""
    options = {**SIZES, **options, "name": "encoder"}
    empty, plain = blank(family, **options), family.model(**options)

    def drawn(model):
        return [
            weight.path.split("/")[-1]
            for weight in model.weights
            if weight.path.endswith(("/kernel", "/embeddings"))
            and np.ptp(keras.ops.convert_to_numpy(weight))
        ]

    assert drawn(empty) == []
    assert {*drawn(plain)} == {"kernel", "embeddings"}
    assert drawn(type(empty).from_config(empty.get_config())) == drawn(plain)
    found, usual = (
        [layer.get_config() for layer in layers_within(model)]
        for model in (empty, plain)
    )
    assert found == usual


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        ("modernbert_classifier", "cls"),
        ("eurobert_classifier", "bos"),
        ("eurobert_classifier", "mean"),
    ],
)
def test_poolings_of_classifiers(name, pooling, tmp_path):
    folder = shutil.copytree(FIXTURES / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    config["classifier_pooling"] = pooling
    (folder / "config.json").write_text(json.dumps(config))
    with np.load(folder / "expected.npz") as arrays:
        arrays = dict(arrays)
    arrays["logits"] = arrays[f"logits_{pooling}"]
    model = loaded(folder)
    answers = keras.ops.convert_to_numpy(model(arrays["ids"]))
    check_answers(model, answers, arrays)


def check_answers(model, answers, arrays):
    """Checks what a model answers to `ids`, and its logits."""
    mask = arrays["mask"].astype(bool)
    if "logits" not in arrays:
        hidden = np.where(mask[:, :, None], answers, 0)
        assert relative(hidden, arrays["hidden"]) <= TOLERANCE
        return
    assert list(model.labels) == sorted(model.labels, key=model.labels.index)
    logits = keras.ops.convert_to_numpy(
        keras.Model(model.inputs[0], model.get_layer("logits").output)(
            arrays["ids"]
        )
    )
    # There the answer is read at the first token, where a row padded on the
    # left has padding.
    known = mask[:, 0] if logits.ndim == 2 else mask
    assert relative(logits[known], arrays["logits"][known]) <= TOLERANCE
    scores = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert relative(answers, scores) <= TOLERANCE
