"""Models of ids: configs and files; masks and training of those that decode."""

import functools
import inspect
import json

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests.layers import numpy, randomised

BACKEND = keras.config.backend()
SIZES = {"d_model": 8, "num_layers": 2, "num_heads": 2, "intermediate_dim": 16}
SOURCE = np.array([[3, 4, 5, 0], [1, 2, 3, 4]], "int32")
TARGET = np.array([[1, 6, 7, 0, 0], [1, 8, 9, 2, 4]], "int32")
BOTH = {"source": SOURCE, "target": TARGET}
# Five blocks of 40 roundings, each of sums of up to 16 products: four standard
# deviations.
FLOAT32 = 4 * np.sqrt(200 * 16) * 2**-24
# Of more blocks than others.
THE_PAPER = pytest.param("the-paper", marks=pytest.mark.slow)
MODELS = {
    "the-paper": (kp.Transformer, {}),
    "everything": (
        kp.Transformer,
        {
            "target_vocabulary_size": 25,
            "num_decoder_layers": 3,
            "dropout": 0.25,
            "input_position": lambda: kp.PositionEmbedding(16),
            "attention": lambda: [
                kp.Attention(kp.AlibiBias(), num_key_value_heads=1),
                kp.Attention(window=2),
            ],
            "target_attention": lambda: kp.Attention(
                kp.RotaryEmbedding(), num_key_value_heads=1
            ),
            "cross_attention": kp.RelativePositionBias,
            "activation": "gelu",
            "norm": kp.Norm("rms", at="before", epsilon=1e-3),
            "use_bias": False,
            "use_gate": True,
            "embeddings": "separate",
            "scale_inputs": False,
            "skip_padding": False,
            "name": "a_name",
            "trainable": False,
        },
    ),
    "decoder-only": (kp.TransformerDecoderModel, {}),
    "decoder-only-everything": (
        kp.TransformerDecoderModel,
        {
            "input_position": None,
            "attention": lambda: kp.Attention(
                kp.RotaryEmbedding(), num_key_value_heads=1
            ),
            "norm": kp.Norm("rms", at="before"),
            "use_gate": True,
            "activation": "silu",
            "embeddings": "separate",
            "scale_inputs": False,
            "skip_padding": False,
        },
    ),
}
ENCODERS = {
    "encoder": (kp.TransformerEncoderModel, {}),
    "encoder-everything": (
        kp.TransformerEncoderModel,
        {
            "dropout": 0.25,
            "input_position": None,
            "attention": lambda: kp.Attention(
                kp.AlibiBias(), num_key_value_heads=1
            ),
            "activation": "gelu",
            "norm": kp.Norm("rms", at="before", epsilon=1e-3),
            "use_bias": False,
            "skip_padding": False,
            "name": "a_name",
            "trainable": False,
        },
    ),
    "encoder-mixed": (
        kp.TransformerEncoderModel,
        {
            "input_position": lambda: kp.PositionalEncoding(
                merge_mode="concat", encoding_dim=4
            ),
            "dtype": "mixed_bfloat16",
        },
    ),
}


# Of classes that have another entry, with more options.
FEWER_OPTIONS = ("the-paper", "decoder-only")


@pytest.fixture(params=MODELS)
def model(request):
    return shared(request.param)


def made(cls, options):
    options = {
        name: value() if callable(value) else value
        for name, value in options.items()
    }
    return randomised(cls(20, **{**SIZES, **options}))


@functools.cache
def shared(name):
    """The model of this name, for tests that change nothing of it."""
    return made(*(MODELS | ENCODERS)[name])


def inputs_of(model):
    return BOTH if isinstance(model, kp.Transformer) else TARGET


def near(actual, expected, tolerance=FLOAT32):
    scale = max(1.0, np.abs(numpy(expected)).max())
    np.testing.assert_allclose(
        numpy(actual), numpy(expected), rtol=0, atol=tolerance * scale
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.slow if name in FEWER_OPTIONS else ()
        )
        for name in MODELS | ENCODERS
    ],
)
def test_round_trip(name, tmp_path):
    kind, options = (MODELS | ENCODERS)[name]
    model = shared(name)
    config = model.get_config()
    for name, value in options.items():
        is_kept = name not in ("dtype", "norm") and not callable(value)
        assert not is_kept or config[name] == value
    arguments = set(inspect.signature(type(model)).parameters)
    assert arguments == set(config)
    assert {name for name in arguments if not hasattr(model, name)} == set()
    config = json.loads(json.dumps(config))  # in which tuples are lists
    twin = type(model).from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert type(loaded) is kind
    assert loaded.name == model.name
    assert [w.dtype for w in loaded.weights] == [w.dtype for w in model.weights]
    assert len(loaded.trainable_weights) == len(model.trainable_weights)
    expected = numpy(model(inputs_of(model)))
    np.testing.assert_array_equal(numpy(loaded(inputs_of(model))), expected)
    assert expected.shape == (2, 5, model.output_shape[-1])


def test_no_token_sees_what_is_behind_it(model):
    expected = numpy(model(inputs_of(model)))
    target = TARGET.copy()
    target[:, 3:] = 11
    changed = {**BOTH, "target": target}
    outputs = numpy(model(changed if inputs_of(model) is BOTH else target))
    tolerance = FLOAT32 if model.dtype_policy.name == "float32" else 0.05
    near(outputs[:, :3], expected[:, :3], tolerance)
    assert np.abs(outputs[1, 3:] - expected[1, 3:]).max() > 0.01


@pytest.mark.parametrize("value", [1e4, -1e15, np.nan, np.inf, -np.inf])
def test_a_later_token_is_seen_only_if_it_is_no_number(value):
    """Then its row is NaN, as by NaN anywhere in it; no other row is."""
    decoder = kp.TransformerDecoder(
        2, num_heads=2, intermediate_dim=16, cross_attention=None
    )
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    expected = numpy(decoder(x))
    x[0, 3:] = value
    outputs = numpy(decoder(x))
    near(outputs[1], expected[1], FLOAT32)
    if np.isfinite(value):
        near(outputs[0, :3], expected[0, :3], FLOAT32)
    else:
        assert np.isnan(outputs[0]).all()


@pytest.mark.parametrize("name", [THE_PAPER, "decoder-only", "encoder"])
def test_padding_holds_anything(name):
    """... and the loss of padding does not count."""
    model = made(*(MODELS | ENCODERS)[name])
    real = TARGET != 0
    expected = numpy(model(inputs_of(model)))
    table = numpy(model.embedding.embeddings)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    labels = np.where(real, 3, 1)
    loss = model.evaluate(inputs_of(model), labels, verbose=0)
    labels[~real] = 7
    assert model.evaluate(inputs_of(model), labels, verbose=0) == loss
    table[0] = np.nan
    model.embedding.embeddings.assign(table)
    outputs = numpy(model(inputs_of(model)))
    # Its own logit is a product with that vector.
    near(outputs[real][:, 1:], expected[real][:, 1:], 0)


@pytest.mark.parametrize("name", [THE_PAPER, "decoder-only-everything"])
def test_learns(name):
    kind, options = MODELS[name]
    model = made(kind, {**options, "num_layers": 1})
    model.compile(
        keras.optimizers.Adam(0.03),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # XLA takes long to compile it, and JAX knows nothing else.
        jit_compile=BACKEND == "jax",
    )
    losses = [
        float(model.train_on_batch(inputs_of(model), np.roll(TARGET, -1, 1)))
        for _ in range(20)
    ]
    assert losses[-1] < 0.8 * losses[0]


def test_packed_pairs_are_each_alone():
    """Segments of the target read the segments of the memory of their id."""
    rng = np.random.default_rng(0)
    decoder = kp.TransformerDecoder(
        2,
        num_heads=2,
        intermediate_dim=16,
        attention=kp.RotaryEmbedding(),
    )
    target, memory = (
        rng.normal(size=(1, length, 8)).astype("float32") for length in (6, 9)
    )
    outputs = decoder(
        target,
        memory=memory,
        segment_ids=np.array([[1, 1, 1, 1, 2, 2]]),
        memory_segment_ids=np.array([[1, 1, 2, 2, 2, 2, 2, 3, 3]]),
    )
    near(outputs[:, :4], decoder(target[:, :4], memory=memory[:, :2]))
    near(outputs[:, 4:], decoder(target[:, 4:], memory=memory[:, 2:7]))


def test_attention_weights_are_those_of_the_logits():
    model = made(*MODELS["everything"])
    names = ("source_dropout", "encoder", "target_dropout")
    cut = [model.get_layer(name).output for name in names]
    x, memory, y = keras.Model(model.input, cut)(BOTH)
    mask, scores = SOURCE != 0, {"return_attention_scores": True}
    _, *source = model.encoder(x, mask=mask, **scores)
    call = {"memory": memory, "memory_mask": mask, "mask": TARGET != 0}
    _, *others = model.decoder(y, **call, **scores)
    found = model.attention_weights(SOURCE, TARGET)
    assert [*found] == ["source", "target", "cross"]
    for blocks, wanted in zip(found.values(), source + others, strict=True):
        for one, other in zip(blocks, wanted, strict=True):
            near(one, other)


def test_attention_scores_have_shapes_before_a_run():
    decoder = kp.TransformerDecoder(2, num_heads=2, intermediate_dim=16)
    outputs, own, across = decoder(
        keras.KerasTensor((1, 3, 8)),
        memory=keras.KerasTensor((1, 5, 8)),
        return_attention_scores=True,
    )
    assert outputs.shape == (1, 3, 8)
    assert [each.shape for each in own] == [(1, 2, 3, 3)] * 2
    assert [each.shape for each in across] == [(1, 2, 3, 5)] * 2


def test_a_memory_of_another_width():
    attention = kp.CrossAttention(2, memory_dim=6)
    outputs = attention(ops.ones((1, 3, 8)), memory=ops.ones((1, 5, 6)))
    assert tuple(outputs.shape) == (1, 3, 8)
