"""From ids to embeddings, in one model.

Its configuration and files are with those of the other models, in
`test_transformer.py`.
"""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

IDS = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5], [0, 0, 7, 8, 9]])
REAL = IDS != 0
# A block of 26 roundings (see the layer contract), each of a sum of up to 16
# products: four standard deviations.
FLOAT32 = 4 * np.sqrt(26 * 16) * 2**-24
SIZES = {
    "vocabulary_size": 20,
    "d_model": 8,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 16,
}


@keras.saving.register_keras_serializable(package="tests")
class Twice(keras.Layer):
    """An input position of the user's own."""

    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor
        self.supports_masking = True

    def call(self, inputs):
        return inputs * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@keras.saving.register_keras_serializable(package="tests")
class Heir(kp.TransformerEncoderModel):
    """A model of a class of the user's own."""


@keras.saving.register_keras_serializable(package="tests")
class Near(kp.AttentionPosition):
    def bias(self, query, key, query_positions, key_positions):
        gap = ops.expand_dims(query_positions, -1) - ops.expand_dims(
            key_positions, -2
        )
        return -ops.cast(ops.expand_dims(ops.abs(gap), 1), query.dtype)


INPUT_POSITIONS = {
    "sinusoidal": lambda: "sinusoidal",
    "none": lambda: None,
    "scaled": lambda: kp.PositionalEncoding(scale_inputs=True),
    "concat": lambda: kp.PositionalEncoding(
        merge_mode="concat", encoding_dim=4
    ),
    "own": lambda: Twice(3.0),
}


def build(cls=kp.TransformerEncoderModel, **kwargs):
    return cls(**{**SIZES, **kwargs})


def randomised(model):
    rng = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) / np.sqrt(8))
    return model


def numpy(x):
    return np.asarray(ops.convert_to_numpy(ops.cast(x, "float32")))


def near(actual, expected, tolerance=FLOAT32):
    np.testing.assert_allclose(
        numpy(actual), numpy(expected), rtol=0, atol=tolerance
    )


def saved_and_loaded(model, tmp_path):
    path = tmp_path / "model.keras"
    model.save(path)
    return keras.saving.load_model(path)


@pytest.fixture(params=INPUT_POSITIONS.values(), ids=INPUT_POSITIONS)
def input_position(request):
    return request.param()


# ---- What it is


def test_symbolic_shapes(input_position):
    model = build(input_position=input_position)
    merge_mode = getattr(model.input_position, "merge_mode", None)
    width = 12 if merge_mode == "concat" else 8
    assert model.input_shape == (None, None)
    assert model.output_shape == (None, None, width)
    assert [tensor.name for tensor in model.inputs] == ["ids"]
    assert keras.backend.standardize_dtype(model.inputs[0].dtype) == "int32"
    assert model.compute_output_shape((3, 7)) == (3, 7, width)
    assert model(IDS).shape == (3, 5, width)


@pytest.mark.parametrize("name", ["positions", "segment_ids", "padding_mask"])
def test_no_argument_is_ignored(name):
    model = kp.TransformerEncoderModel(**SIZES)
    with pytest.raises(TypeError, match=f"argument '{name}'"):
        model(IDS, **{name: IDS})


def test_parts_by_hand():
    """Embedding, sinusoids and stack: equal to the layers put in a row."""
    model = randomised(build())
    table = numpy(model.embedding.embeddings)
    x = table[IDS] + numpy(kp.positional_encoding(5, 8))
    near(model(IDS), model.encoder(x.astype("float32"), mask=REAL))


# ---- Masks


def test_padding_is_masked(input_position):
    model = randomised(build(input_position=input_position))
    alone = model(IDS[:1, :3])
    near(model(IDS)[:1, :3], alone)
    table = numpy(model.embedding.embeddings)
    outputs = numpy(model(IDS))[REAL]
    table[0] = 1e6
    model.embedding.embeddings.assign(table)
    near(numpy(model(IDS))[REAL], outputs, 0)


# ---- Order


def test_blind_to_order_without_positions_only():
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 20, (2, 6))
    order = np.array([4, 2, 0, 5, 3, 1])
    changes = {}
    for key, options in {
        "none": {"input_position": None},
        "sinusoidal": {},
        "attention": {"input_position": None, "attention_position": Near()},
    }.items():
        model = randomised(build(**options))
        tokens = numpy(model(ids))[:, order]
        pooled = [
            numpy(kp.Pooling1D("mean")(model(x))) for x in (ids, ids[:, order])
        ]
        changes[key] = (
            np.abs(numpy(model(ids[:, order])) - tokens).max(),
            np.abs(pooled[0] - pooled[1]).max(),
        )
    assert max(changes.pop("none")) <= FLOAT32
    assert all(min(c) > 100 * FLOAT32 for c in changes.values())


# ---- Files


def test_subclass_stays_itself(tmp_path):
    model = randomised(build(Heir))
    assert type(Heir.from_config(model.get_config())) is Heir
    loaded = saved_and_loaded(model, tmp_path)
    assert type(loaded) is Heir
    near(loaded(IDS), model(IDS), 0)


def test_nested_in_another_model(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    encoder = build(Heir, input_position=Twice(3.0), attention_position=Near())
    x = kp.Pooling1D("mean")(encoder(ids))
    model = randomised(keras.Model(ids, keras.layers.Dense(3)(x)))
    loaded = saved_and_loaded(model, tmp_path)
    assert type(loaded.get_layer(encoder.name)) is Heir
    near(loaded(IDS), model(IDS), 0)
    near(loaded(IDS[:1, :3]), loaded(IDS[:1]))


def test_clone():
    model = randomised(build(input_position=Twice(3.0)))
    clone = keras.models.clone_model(model)
    assert not set(map(id, clone.weights)) & set(map(id, model.weights))
    clone.set_weights(model.get_weights())
    near(clone(IDS), model(IDS), 0)
    near(clone(IDS)[:1, :3], model(IDS[:1, :3]))


# ---- Training


def test_learns_and_is_saved_with_its_optimizer(tmp_path):
    """Which token came first? A question that only positions can answer."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 9, (256, 6))
    labels = ids[:, 0] % 2
    inputs = keras.Input((None,), dtype="int32")
    encoder = build(d_model=16, dropout=0.0, norm_at="before")
    x = kp.Pooling1D("mean")(encoder(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    history = model.fit(ids, labels, epochs=12, batch_size=32, verbose=0)
    losses = history.history["loss"]
    # Without positions it would stay near log 2 = 0.69.
    assert losses[0] > 0.5
    assert losses[-1] < 0.25
    loaded = saved_and_loaded(model, tmp_path)
    near(loaded(ids), model(ids), 0)
    loaded.fit(ids, labels, epochs=1, batch_size=32, verbose=0)


def test_dropout_in_training_alone():
    model = randomised(build(dropout=0.5))
    exact = build(dropout=0.0)
    exact.set_weights(model.get_weights())
    near(model(IDS), exact(IDS))
    near(model(IDS, training=False), exact(IDS))
    changed = numpy(model(IDS, training=True)) != numpy(exact(IDS))
    assert changed.mean() > 0.5
