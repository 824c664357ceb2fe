"""Every family against `transformers`, on random weights."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints.families.vit import resized
from keras_posenc.transformer._from_embeddings import (
    encoded_from_embeddings,
    looked_up,
)
from tests.checkpoints.folders import GONE, at, copied
from tests.text.files import FIXTURES as ALL

FIXTURES = ALL / "hugging_face"
IMAGES = {"deit", "dinov2", "dinov3", "vit"}
ENCODERS = sorted(
    folder.name for folder in FIXTURES.iterdir() if folder.name not in IMAGES
)
# Against its formulas: transformers has no Jina v2.
JINA = ("geglu", "original")
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


@pytest.mark.parametrize("file", ["expected", "resized"])
@pytest.mark.parametrize("name", sorted(IMAGES))
def test_sees_what_transformers_does(name, file, tmp_path):
    """... in images of the size that it is made for, and of another one."""
    with np.load(FIXTURES / name / f"{file}.npz") as arrays:
        images, hidden = arrays["pixels"], arrays["hidden"]
    size = images.shape[2:] if file == "resized" else None
    folder = FIXTURES / name
    if name == "dinov3" and size:  # the base of its angles has a default
        folder = copied(folder, tmp_path, rope_theta=GONE)
    model = kp.load_hugging_face(folder, image_size=size, verbose=False)
    answers = model(images.transpose(0, 2, 3, 1))
    answers = keras.ops.convert_to_numpy(answers)
    assert relative(answers, hidden) <= TOLERANCE
    for each in model._flatten_layers():  # of so small a head, all turn alike
        assert getattr(each, "max_wavelength", 100) == 100


def test_grids_of_another_size():
    with np.load(FIXTURES / "dinov2" / "bicubic.npz") as arrays:
        grid, expected = (
            arrays[name].transpose(1, 2, 0) for name in ("grid", "resized")
        )
    found = resized(grid, *expected.shape[:2])  # fewer rows, more columns
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", [*ENCODERS, *JINA])
def test_computes_what_transformers_does(name):
    folder = at(name)
    with np.load(folder / "expected.npz") as arrays:
        arrays = dict(arrays)
    check_answers(loaded(folder), arrays)


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        ("modernbert_classifier", "cls"),
        ("eurobert_classifier", "bos"),
        ("eurobert_classifier", "mean"),
    ],
)
def test_poolings_of_classifiers(name, pooling, tmp_path):
    folder = copied(FIXTURES / name, tmp_path, classifier_pooling=pooling)
    with np.load(folder / "expected.npz") as arrays:
        arrays = dict(arrays)
    arrays["logits"] = arrays[f"logits_{pooling}"]
    check_answers(loaded(folder), arrays)


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_a_copy_by_its_config_draws_its_weights(name):
    """Loading draws none that a checkpoint replaces; a copy does."""
    options = {"from_ids": True} if name == "bert" else {}
    model = kp.load_hugging_face(FIXTURES / name, verbose=False, **options)
    for weight in type(model).from_config(model.get_config()).weights:
        if weight.path.endswith(("/kernel", "/embeddings")):
            assert np.ptp(keras.ops.convert_to_numpy(weight)) > 0


# Ways from a table of tokens to the first block: norms, a narrow table and its
# projection, positions that count tokens, and positions inside attention.
@pytest.mark.parametrize(
    "name",
    ["deberta_v2", "electra_narrow", "modernbert", "mpnet", "roberta"],
)
def test_two_halves(name):
    """... as LiteRT-LM runs them. What is in padded places is never read."""
    encoder = kp.load_hugging_face(
        FIXTURES / name, from_ids=True, encoder_only=True, verbose=False
    ).encoder
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        ids, mask = arrays["ids"], arrays["mask"].astype("float32")
        hidden = arrays["hidden"]
    token = keras.Input((None,), dtype="int32")
    embedder = keras.Model(token, looked_up(encoder, token))
    vectors = keras.Input(embedder.output_shape[1:])
    tokens = keras.Input((None,))
    rest = keras.Model(
        [vectors, tokens], encoded_from_embeddings(encoder, vectors, tokens)
    )
    given = np.where(mask[..., None] > 0, np.array(embedder(ids)), np.nan)
    found = keras.ops.convert_to_numpy(rest([given, mask]))
    found = np.where(mask[..., None] > 0, found, 0)
    assert relative(found, hidden) <= TOLERANCE


def check_answers(model, arrays):
    """Checks what a model answers to `ids`, and its logits."""
    mask = arrays["mask"].astype(bool)
    if "logits" not in arrays:
        answers = keras.ops.convert_to_numpy(model(arrays["ids"]))
        hidden = np.where(mask[:, :, None], answers, 0)
        assert relative(hidden, arrays["hidden"]) <= TOLERANCE
        return
    outputs = [model.get_layer("logits").output, *model.outputs]
    logits, answers = map(
        keras.ops.convert_to_numpy,
        keras.Model(model.inputs[0], outputs)(arrays["ids"]),
    )
    # There the answer is read at the first token, where a row padded on the
    # left has padding.
    known = mask[:, 0] if logits.ndim == 2 else mask
    assert relative(logits[known], arrays["logits"][known]) <= TOLERANCE
    scores = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert relative(answers, scores) <= TOLERANCE
