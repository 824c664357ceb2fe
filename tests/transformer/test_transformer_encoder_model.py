"""From ids to embeddings, in one model.

Its configuration and files are with those of the other models, in
`test_transformer.py`.
"""

import inspect

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.layers import numpy, randomised

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
class Mine(kp.TransformerEncoderModel):
    """A model of a user's, with a constructor and a config of its own."""

    def __init__(self, vocabulary_size, *, depth=1, **kwargs):
        super().__init__(vocabulary_size, **{"num_layers": depth, **kwargs})
        self.depth = depth

    def get_config(self):
        return {**super().get_config(), "depth": self.depth}


def build(cls=kp.TransformerEncoderModel, **kwargs):
    return cls(**{**SIZES, **kwargs})


def near(actual, expected, tolerance=FLOAT32):
    np.testing.assert_allclose(
        numpy(actual), numpy(expected), rtol=0, atol=tolerance
    )


def saved_and_loaded(model, tmp_path):
    path = tmp_path / "model.keras"
    model.save(path)
    return keras.saving.load_model(path)


def test_what_is_no_argument_and_what_is_missing():
    with pytest.raises(TypeError, match="argument 'padding_mask'"):
        build()(IDS, padding_mask=IDS)
    with pytest.raises(TypeError, match=r"missing 1 .*: 'vocabulary_size'"):
        kp.TransformerEncoderModel()
    message = r"Mine has no argument `n_heads`\. Did you mean `num_heads`\?"
    with pytest.raises(ValueError, match=message):
        Mine(9, n_heads=2)


def test_parts_by_hand():
    """Embedding, sinusoids and stack: equal to the layers put in a row."""
    model = randomised(build())
    table = numpy(model.embedding.embeddings)
    x = table[IDS] + numpy(kp.positional_encoding(5, 8))
    near(model(IDS), model.encoder(x.astype("float32"), mask=REAL))


def test_a_subclass_with_a_constructor_of_its_own():
    sizes = {"depth": 2, "num_layers": 2}
    model = build(Mine, **sizes, name="mine", trainable=False)
    parameters = {*inspect.signature(Mine).parameters}
    assert parameters == {"vocabulary_size", "depth", "kwargs"}
    twin = Mine.from_config(model.get_config())
    assert type(twin) is Mine
    assert twin.get_config() == model.get_config()
    assert (twin.name, twin.depth, twin.num_layers) == ("mine", 2, 2)
    assert not twin.trainable


def test_nested_in_another_model(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    encoder = build(Mine, input_position=Twice(3.0), attention="alibi")
    x = kp.Pooling1D("mean")(encoder(ids))
    model = randomised(keras.Model(ids, keras.layers.Dense(3)(x)))
    loaded = saved_and_loaded(model, tmp_path)
    assert type(loaded.get_layer(encoder.name)) is Mine
    near(loaded(IDS), model(IDS), 0)
    near(loaded(IDS[:1, :3]), loaded(IDS[:1]))
