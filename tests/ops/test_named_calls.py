"""Errors for wrong inputs, and kinds of positions by name."""

import re

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc import analysis
from keras_posenc.positional.attention_kinds import ATTENTION_KINDS

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
IDS = np.array([[3, 4, 5, 0, 0], [3, 4, 5, 6, 7]])
SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}


def test_ids_where_vectors_belong():
    for layer in (kp.PositionalEncoding(), kp.SelfAttention(2)):
        with pytest.raises(ValueError, match="If these are ids, they need"):
            layer(IDS)
        with pytest.raises(ValueError, match=r"\(2, 5, 8, 1\)$"):
            layer(X[..., np.newaxis])
        layer(X)  # from here on the inputs' dtype is known
        with pytest.raises(ValueError, match="Ids need a keras"):
            layer(IDS)
        with pytest.raises(ValueError, match=r"of shape \(5, 8\)") as error:
            layer(X[0])
        assert "Embedding" not in str(error.value)


def test_no_layer_is_computed_again():
    with keras.RematScope("full"):
        encoder = kp.TransformerEncoder(1, num_heads=2, intermediate_dim=8)
    with pytest.raises(ValueError, match=r"does not work in a keras\.RematSc"):
        encoder(X)


# ---- Positions inside attention, by name


@pytest.mark.parametrize("name", ATTENTION_KINDS)
def test_kinds_of_positions_by_name(name):
    kind = ATTENTION_KINDS[name]
    if name in analysis.SCHEMES:
        assert type(analysis.make_scheme(name, 9)) is kind
    block = {"num_heads": 2, "intermediate_dim": 8, "dtype": "float64"}
    decoder = kp.TransformerDecoder(
        2,
        attention=[name, None],
        cross_attention=name,
        **block,
    )
    layers = [
        kp.SelfAttention(2, attention=name),
        kp.CrossAttention(2, attention=name),
        kp.TransformerEncoder(2, attention=name, **block),
        kp.TransformerEncoderModel(9, attention=name, **SMALL),
    ]
    for layer in layers:
        again = type(layer).from_config(layer.get_config())
        for each in (layer, again):
            assert type(each.attention.position) is kind
            assert each.attention.position.dtype_policy == layer.dtype_policy
    assert type(decoder.attention[0].position) is kind
    assert type(decoder.cross_attention.position) is kind


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("rotarry", "Did you mean cross_attention='rotary'?"),
        ("T5", "Did you mean cross_attention='t5'?"),
        (kp.AlibiBias, ", a class. Give a layer: AlibiBias(...)"),
        ("xyz", "cross_attention='xyz'"),
    ],
)
def test_a_kind_that_is_unknown(value, advice):
    names = ", ".join(map(repr, ATTENTION_KINDS))
    with pytest.raises(ValueError, match=re.escape(names)) as error:
        kp.TransformerDecoder(2, cross_attention=value)
    assert f"Received: cross_attention={value!r}" in str(error.value)
    assert str(error.value).endswith(advice)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("rotarry", ". Did you mean attention='rotary'?"),
        (kp.AlibiBias, ", a class. Give a layer: AlibiBias(...)"),
        (kp.AlibiBias(), ": give it as `attention`"),
        ("xyz", ""),
    ],
)
def test_an_input_position_that_is_unknown(value, advice):
    with pytest.raises(ValueError, match="must be a layer, 'sinus") as error:
        kp.TransformerEncoderModel(9, input_position=value, **SMALL)
    assert f"input_position={value!r}" in str(error.value)
    assert str(error.value).endswith(advice)
