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


def remedy(error):
    """What a message says to write instead."""
    return re.search(r": (\w+\(.*)$", str(error.value))[1]


def followed(error, layer, **values):
    names = {layer.name: layer, **values}
    return eval(remedy(error), names)


@pytest.mark.parametrize(
    ("layer", "inputs", "second", "values"),
    [
        (
            kp.TransformerEncoder(1, num_heads=2, intermediate_dim=8),
            X,
            MASK,
            {"x": X, "mask": MASK},
        ),
        (kp.PositionalEncoding(), X, True, {"x": X}),
        (kp.CrossAttention(2), X, X, {"x": X, "memory": X}),
        (
            kp.SelfAttention(2),
            X,
            np.ones((2, 5, 5), bool),
            {"x": X, "attention_mask": np.ones((2, 5, 5), bool)},
        ),
        (
            kp.TransformerEncoderModel(9, **SMALL),
            IDS,
            MASK,
            {"x": IDS, "mask": MASK},
        ),
        (
            kp.Transformer(9, **SMALL),
            IDS,
            IDS,
            {"source": IDS, "target": IDS},
        ),
        (kp.SelfAttention(2), X, None, {"x": X}),
        (kp.L2Normalization(), X, False, {"x": X}),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, keras.Layer) else "",
)
def test_arguments_without_names(layer, inputs, second, values):
    with pytest.raises(TypeError, match="without a name") as error:
        layer(inputs, second)
    start = f"{type(layer).__name__} '{layer.name}' takes one argument"
    assert str(error.value).startswith(start)
    assert followed(error, layer, **values).shape[:2] == (2, 5)


def test_an_argument_that_could_be_several():
    layer = kp.SelfAttention(2, name="attention")
    symbols = keras.Input((5, 8)), keras.Input((5,), dtype="int32")
    for inputs in ((X, IDS), (X, [1, 2]), symbols, (X, MASK, MASK)):
        with pytest.raises(TypeError, match="SelfAttention 'attention'") as e:
            layer(*inputs)
    assert remedy(e) == "attention(x, mask=mask)"
    with pytest.raises(TypeError, match="NAME one of positions, start_i") as e:
        layer(X, IDS)
    assert "context" not in str(e.value)


@pytest.mark.tensorflow
def test_ragged_inputs():
    import tensorflow as tf

    lengths = [3, 5]
    ragged = tf.RaggedTensor.from_tensor(X, lengths)
    ids = tf.RaggedTensor.from_tensor(IDS, lengths)
    for layer in (
        kp.TransformerEncoder(1, num_heads=2, intermediate_dim=8),
        kp.PositionalEncoding(),
        kp.Pooling1D("mean"),
    ):
        with pytest.raises(ValueError, match="takes no RaggedTensor") as error:
            layer(ragged)
        got = followed(error, layer, x=ragged, tf=tf)
        padded = np.where(MASK[..., np.newaxis], X, 0)
        want = layer(padded, mask=MASK)
        np.testing.assert_array_equal(*map(ops.convert_to_numpy, (got, want)))
    layer = kp.CrossAttention(2)
    with pytest.raises(ValueError, match="`memory` of shape") as error:
        layer(X, memory=ragged)
    got = followed(error, layer, x=X, memory=ragged, tf=tf)
    want = layer(X, memory=X, memory_mask=MASK)
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (got, want)))
    model = kp.TransformerEncoderModel(9, pad_id=2, **SMALL)
    with pytest.raises(ValueError, match="takes no RaggedTensor") as error:
        model.predict(ids, verbose=0)
    got = followed(error, model, x=ids)
    assert ops.convert_to_numpy(got._keras_mask).tolist() == MASK.tolist()
    both = kp.Transformer(9, **SMALL)
    with pytest.raises(ValueError, match="Give padded ids") as error:
        both({"source": ids, "target": ids})
    followed(error, both, source=ids, target=ids)
    layer = kp.PositionalEncoding()
    with pytest.raises(ValueError, match="Give a padded tensor") as error:
        layer(X, segment_ids=ids)
    got = followed(error, layer, x=X, segment_ids=ids)
    want = layer(X, segment_ids=IDS)
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (got, want)))
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
        attention_position=[name, None],
        cross_attention_position=name,
        **block,
    )
    layers = [
        kp.SelfAttention(2, attention_position=name),
        kp.CrossAttention(2, attention_position=name),
        kp.TransformerEncoder(2, attention_position=name, **block),
        kp.TransformerEncoderModel(9, attention_position=name, **SMALL),
    ]
    for layer in layers:
        again = type(layer).from_config(layer.get_config())
        for each in (layer, again):
            assert type(each.attention_position) is kind
            assert each.attention_position.dtype_policy == layer.dtype_policy
    assert type(decoder.attention_position[0]) is kind
    assert type(decoder.cross_attention_position) is kind
    model = keras.Sequential([keras.Input((None, 8)), layers[0]])
    path = tmp_path / "model.keras"
    model.save(path)
    got, want = (m(X) for m in (keras.models.load_model(path), model))
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (got, want)))


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("rotarry", ". Did you mean 'rotary'?"),
        ("RotaryEmbedding", ". Did you mean 'rotary'?"),
        ("T5", ". Did you mean 't5'?"),
        ("shaw", ".RelativePositionEmbedding(max_distance=16)"),
        ("sinusoidal", "keras_posenc.PositionalEncoding() before this one"),
        (kp.AlibiBias, ", a class. Give a layer: AlibiBias()"),
        (
            kp.positions.RelativePositionEmbedding,
            "PositionEmbedding(max_distance=...)",
        ),
        ("xyz", "cross_attention_position='xyz'"),
    ],
)
def test_a_kind_that_is_unknown(value, advice):
    names = ", ".join(map(repr, ATTENTION_KINDS))
    with pytest.raises(ValueError, match=re.escape(names)) as error:
        kp.TransformerDecoder(2, cross_attention_position=value)
    assert f"Received: cross_attention_position={value!r}" in str(error.value)
    assert str(error.value).endswith(advice)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("rotarry", ", which is inside attention: give X='rotary'"),
        ("Sinusoidal", ". Did you mean 'sinusoidal'?"),
        (kp.PositionalEncoding, ". Did you mean 'sinusoidal'?"),
        (kp.AlibiBias, ", a class for inside attention: give X=AlibiBias()"),
        (kp.TimeEncoding, ", a class. Give a layer: TimeEncoding()"),
        ("xyz", ""),
    ],
)
def test_an_input_position_that_is_unknown(value, advice):
    with pytest.raises(ValueError, match="must be a layer, 'sinus") as error:
        kp.TransformerEncoderModel(9, input_position=value, **SMALL)
    advice = advice.replace("X", "attention_position")
    assert str(error.value).endswith(f"input_position={value!r}{advice}")
