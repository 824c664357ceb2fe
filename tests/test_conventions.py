"""What docs/reference/index.md says of public names and calls."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
import keras_posenc.analysis
import keras_posenc.ops

LAYERS = {
    name: value
    for name, value in {**vars(kp), **vars(kp.positions)}.items()
    if inspect.isclass(value) and issubclass(value, keras.layers.Layer)
}


def by_place(function):
    """The parameters that may be given without their name."""
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]


def named(function):
    return set(inspect.signature(function).parameters)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_arguments_have_names(layer):
    assert len(by_place(layer)) <= 1
    for method in (layer.call, layer.compute_output_spec):
        if method.__module__.startswith("keras_posenc"):
            assert by_place(method) == ["self", "inputs"]


# ---- Arguments

SMALL = {"d_model": 8, "num_layers": 1, "num_heads": 2}
SIZES = {
    "AxialPositionalEncoding": {"num_axes": 1, "grid_shape": (5,)},
    "CombinedPosition": {
        "attention_positions": ["rotary", kp.positions.ScalableSoftmax()]
    },
    "CrossAttention": {"num_heads": 2},
    "FeedForward": {"intermediate_dim": 6},
    "FourierEmbedding": {"training_length": 9},
    "PatchEmbedding": {"patch_size": 2, "d_model": 8},
    "PositionEmbedding": {"sequence_length": 5},
    "Pooling1D": {"kind": "mean"},
    "Prompt": {"prompt": "query: "},
    "RandomizedPositions": {"max_position": 9},
    "RelativePositionEmbedding": {"max_distance": 3},
    "SelfAttention": {"num_heads": 2},
    "Transformer": {"vocabulary_size": 9, **SMALL},
    "TransformerDecoder": {"num_layers": 2, "num_heads": 2},
    "TransformerDecoderBlock": {"num_heads": 2},
    "TransformerDecoderModel": {"vocabulary_size": 9, **SMALL},
    "TransformerEncoder": {"num_layers": 2, "num_heads": 2},
    "TransformerEncoderBlock": {"num_heads": 2},
    "TransformerEncoderModel": {
        "vocabulary_size": 9,
        "d_model": 8,
        "num_layers": 1,
        "num_heads": 2,
        "input_position": "sinusoidal",
    },
    "Truncation": {"dim": 4},
    "VisionTransformerModel": {"image_size": 4, "patch_size": 2, **SMALL},
}
# What is made from files, tokens or models has tests of its own.
CHECKED = {
    name: layer
    for name, layer in LAYERS.items()
    if not name.endswith("Tokenizer")
    and layer not in (kp.Generator, kp.PretrainedGenerator, kp.PretrainedModel)
}


@pytest.mark.parametrize("layer", CHECKED.values(), ids=CHECKED)
def test_a_wrong_value_is_refused_by_name(layer):
    """Each argument is checked; `test_checks.py` has what a check refuses."""
    for name in named(layer) - {"kwargs", "name", "trainable"}:
        # Keras, which makes what is initialized, names the kind alone.
        kind = name.rpartition("_")[2]
        with pytest.raises(
            (TypeError, ValueError), match=rf"`{name}`|interpret {kind}"
        ):
            layer(**{**SIZES.get(layer.__name__, {}), name: -1.5})


def test_files_hold_every_argument():
    for name, layer in CHECKED.items():
        made = layer(**SIZES.get(name, {}))
        wanted = named(layer) - {"args", "kwargs", "unknown"}
        assert wanted - made.get_config().keys() == set(), name
        assert {each for each in wanted if not hasattr(made, each)} == set()


def test_files_name_the_layers_of_the_package():
    for name in LAYERS.keys() - {"AttentionPosition"}:  # for subclasses
        registered = keras.saving.get_registered_name(LAYERS[name])
        assert registered == f"keras_posenc>{name}"


# ---- What is initialized and regularized


def kinds_of(layer):
    """What of its weights is initialized, each with a number of its own."""
    names = [name.partition("_initializer") for name in named(layer)]
    return dict(enumerate(sorted(n for n, end, _ in names if end), 2))


def shapes_for(layer):
    tokens = (None, None, 8)
    if isinstance(layer, kp.AttentionPosition):
        queries = (None, 2, None, 4)
        return [queries] if layer.steps is None else [queries, tokens]
    if isinstance(layer, kp.PatchEmbedding):
        return [(None, 4, 4, 3)]
    return [tokens]


@pytest.mark.parametrize("layer", [*filter(kinds_of, LAYERS.values())])
def test_initializers_and_regularizers_reach_all_weights(layer):
    """... of their kind and no others, out of the config."""
    given, kinds, total = {**SIZES.get(layer.__name__, {})}, kinds_of(layer), 0
    for n, kind in kinds.items():
        given[f"{kind}_initializer"] = keras.initializers.Constant(n)
        given[f"{kind}_regularizer"] = keras.regularizers.L2(n)
    each = layer.from_config(layer(**given).get_config())
    if not each.built:
        each.build(*shapes_for(each))
    for weight in each.weights:
        hits = [n for n, kind in kinds.items() if kind in weight.name]
        assert (weight.regularizer is not None) == bool(hits), weight.path
        found = np.unique(ops.convert_to_numpy(weight)).tolist()
        assert found == hits if hits else max(found) < 2, weight.path
        total += sum(int(np.prod(weight.shape)) * n**3 for n in hits)
    for kind in kinds.values():
        assert any(kind in weight.name for weight in each.weights)
    losses = sum(float(ops.convert_to_numpy(loss)) for loss in each.losses)
    assert losses == pytest.approx(total, rel=1e-5)


# ---- Calls


def encoder():
    return kp.TransformerEncoder(1, num_heads=2, intermediate_dim=8)


@pytest.mark.parametrize(
    "make", [encoder, kp.PositionalEncoding, lambda: kp.Pooling1D("mean")]
)
def test_stands_in_a_wrapper_that_hands_on_masks(make):
    """Keras's wrappers give `mask` and `training` by name."""
    layer = make()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 5, 4)).astype("float32")
    mask = rng.random((2, 3, 5)) < 0.7
    outputs = keras.layers.TimeDistributed(layer)(x, mask=mask, training=False)
    for step in range(x.shape[1]):
        alone = layer(x[:, step], mask=mask[:, step], training=False)
        np.testing.assert_array_equal(
            *(ops.convert_to_numpy(y) for y in (outputs[:, step], alone))
        )
