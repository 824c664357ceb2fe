"""Backbones of keras-hub against what they become, on random weights."""

import keras
import numpy as np
import pytest

import keras_posenc as kp

models = pytest.importorskip("keras_hub").models
# Relative to the largest answer. 2 blocks of products with sums of up to 32
# terms, in float32, on either side.
TOLERANCE = 5e-6
TEXTS = {
    "num_layers": 2,
    "num_heads": 4,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "dropout": 0.0,
}
MASK = np.array([[1] * 9, [1] * 5 + [0] * 4, [0] * 3 + [1] * 6], "int32")


def drawn(backbone):
    """Gives a backbone weights none of which is negligible."""
    rng = np.random.default_rng(20181011)
    for weight in backbone.weights:
        std = 0.3 if len(weight.shape) > 1 else 0.5
        values = rng.normal(0, std, weight.shape)
        weight.assign(values + (weight.path.endswith("gamma")))
    return backbone


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def text_backbone(name, **options):
    kind = getattr(models, f"{name}Backbone")
    return drawn(kind(48, max_sequence_length=12, **TEXTS, **options))


@pytest.mark.parametrize(
    ("name", "pad_id"),
    [("Bert", 0), ("DistilBert", 0), ("Roberta", 1), ("XLMRoberta", 1)],
)
def test_texts(name, pad_id):
    backbone = text_backbone(name)
    real = np.random.default_rng(1).integers(2, 48, MASK.shape)
    ids = np.where(MASK, real, pad_id).astype("int32")
    inputs = {"token_ids": ids, "padding_mask": MASK}
    if name == "Bert":
        inputs["segment_ids"] = np.zeros_like(ids)
    expected = backbone(inputs)
    if name == "Bert":
        expected = expected["sequence_output"]
    model = kp.from_keras_hub(backbone)
    assert model.pad_id == pad_id
    found, expected = map(keras.ops.convert_to_numpy, (model(ids), expected))
    real = MASK.astype(bool)
    assert relative(found[real], expected[real]) <= TOLERANCE


def with_lora():
    backbone = text_backbone("Bert")
    backbone.enable_lora(2)
    return backbone


def with_other_epsilon():
    backbone = text_backbone("Roberta")
    backbone.transformer_layers[1].layer_norm_epsilon = 1e-3
    return backbone


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (keras.Sequential, "of type Sequential"),
        (
            lambda: type("BertBackbone", (keras.Sequential,), {})(),
            "must be a keras_hub.models backbone",
        ),
        (with_lora, "lora_kernel"),
        (with_other_epsilon, "one `layer_norm_epsilon` for all blocks"),
    ],
)
def test_refused(make, words):
    with pytest.raises(ValueError, match=words):
        kp.from_keras_hub(make())
