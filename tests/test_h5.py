"""Whole models in Keras's `.h5` files, by its legacy loader."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5"),
]
SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
OF_VECTORS = [
    kp.PositionalEncoding(),
    kp.PositionalEncoding(merge_mode="concat", layout="halves"),
    kp.positions.IndexEncoding(normalize=True),
    kp.PositionEmbedding(9),
    kp.TimeEncoding(kind="learned"),
    kp.AxialPositionalEncoding(1),
    kp.RotaryEmbedding(),
    kp.FeedForward(6, activation="gelu_tanh", kernel_regularizer="l2"),
    kp.SelfAttention(2, attention="t5"),
    kp.TransformerEncoderBlock(2, intermediate_dim=8),
    kp.TransformerEncoder(2, num_heads=2, attention="rotary"),
    kp.TransformerDecoder(1, num_heads=2, cross_attention=None),
    kp.L2Normalization(),
    kp.Pooling1D("mean"),
    kp.Pooling1D("max"),
    kp.Pooling1D("first"),
]
MODELS = [
    kp.TransformerEncoderModel(9, **SMALL),
    kp.TransformerDecoderModel(
        9, input_position=kp.positions.IndexEncoding(), **SMALL
    ),
    kp.Transformer(9, **SMALL),
    kp.VisionTransformerModel(4, patch_size=2, **SMALL),
]


def loaded(model, path, **options):
    model.save(path)
    again = keras.models.load_model(path, **options)
    assert len(model.weights) == len(again.weights)
    for each, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (each, other)))
    return again


def test_layers(tmp_path):
    x = keras.Input((5, 8))
    memory = keras.Input((5, 8))
    outputs = [layer(x) for layer in OF_VECTORS]
    outputs += [
        kp.CrossAttention(2)(x, memory=memory),
        kp.TransformerDecoderBlock(2)(x, memory=memory),
    ]
    model = keras.Model([x, memory], outputs)
    again = loaded(model, tmp_path / "model.h5")
    given = list(np.random.default_rng(0).normal(size=(2, 2, 5, 8)))
    for each, want in zip(again(given), model(given), strict=True):
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (each, want)))


@pytest.mark.parametrize("model", MODELS, ids=lambda x: type(x).__name__)
def test_models(model, tmp_path):
    """As any class of model that Keras has not: its name has to be said."""
    kind = type(model)
    again = loaded(
        model, tmp_path / "model.h5", custom_objects={kind.__name__: kind}
    )
    assert type(again) is kind
