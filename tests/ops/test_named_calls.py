"""What is said of call arguments that came without names, or as ragged."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc import analysis
from keras_posenc.positional.attention_kinds import ATTENTION_KINDS

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
IDS = np.array([[3, 4, 5, 0, 0], [3, 4, 5, 6, 7]])
SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (kp.TransformerEncoder(1, num_heads=2, intermediate_dim=8), X),
        (kp.PositionalEncoding(), X),
        (kp.CrossAttention(2), X),
        (kp.TransformerEncoderModel(9, **SMALL), IDS),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, keras.Layer) else "",
)
def test_arguments_without_names(layer, inputs):
    for given in ([inputs], [None], [MASK, MASK]):
        with pytest.raises(TypeError, match="without a name") as error:
            layer(inputs, *given)
        start, _, names = str(error.value).partition(", NAME one of ")
        assert start == (
            f"{type(layer).__name__} '{layer.name}' takes one argument without "
            f"a name, its inputs. Received: {1 + len(given)}. Give the others "
            f"by name: {layer.name}(x, NAME=...)"
        )
        assert {"mask", "training"} <= {*names.split(", ")}
        assert "context" not in names


def test_two_inputs_without_names():
    model = kp.Transformer(9, **SMALL, name="model")
    with pytest.raises(TypeError, match="all inputs in one dict: ") as error:
        model(IDS, IDS)
    remedy = str(error.value).partition("one dict: ")[2]
    names = {"model": model, "source": IDS, "target": IDS}
    assert eval(remedy, names).shape[:2] == (2, 5)


@pytest.mark.tensorflow
def test_ragged_inputs():
    import tensorflow as tf

    lengths = [3, 5]
    ragged = tf.RaggedTensor.from_tensor(X, lengths)
    ids = tf.RaggedTensor.from_tensor(IDS, lengths)
    model = kp.TransformerEncoderModel(9, pad_id=2, **SMALL)
    both = {"source": ids, "target": ids}
    for layer, inputs, given, name, padded in (
        (kp.PositionalEncoding(), ragged, {}, "inputs", "x.to_tensor()"),
        (kp.CrossAttention(2), X, {"memory": ragged}, "memory", "mask"),
        (model, ids, {}, "inputs", "x.to_tensor(2)"),
        (kp.Transformer(9, **SMALL), both, {}, "inputs", "x.to_tensor()"),
    ):
        with pytest.raises(ValueError, match="takes no RaggedTensor") as error:
            layer(inputs, **given)
        assert f"Received: `{name}` of shape (2, None" in str(error.value)
        assert padded in str(error.value)
    # Each vector alone, and so without a mask.
    assert kp.L2Normalization()(ragged).shape == (2, None, 8)


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


# ---- Positions inside attention, by name


@pytest.mark.parametrize("name", ATTENTION_KINDS)
def test_kinds_of_positions_by_name(name, tmp_path):
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
    model = keras.Sequential([keras.Input((None, 8)), layers[0]])
    path = tmp_path / "model.keras"
    model.save(path)
    got, want = (m(X) for m in (keras.models.load_model(path), model))
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (got, want)))


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("rotarry", "Did you mean cross_attention='rotary'?"),
        (
            "RotaryEmbedding",
            ". Did you mean cross_attention='rotary'?",
        ),
        ("T5", "Did you mean cross_attention='t5'?"),
        ("shaw", ".RelativePositionEmbedding(max_distance=16)"),
        ("sinusoidal", "keras_posenc.PositionalEncoding() before this one"),
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
        ("Sinusoidal", "keras_posenc.PositionalEncoding() before this one"),
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
