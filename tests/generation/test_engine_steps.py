"""Chunks of a prompt as LiteRT-LM's engine gives them."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.generation.engine_steps import PLACES, TOKENS, engine_models

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")

LENGTH = 12  # of the caches


def test_padding_may_be_beyond_the_caches():
    """A chunk is read as by one of its own length, in any place."""
    keras.utils.set_random_seed(0)
    model = kp.TransformerDecoderModel(
        30,
        d_model=8,
        num_layers=2,
        num_heads=2,
        intermediate_dim=8,
        input_position=None,
        attention_position="rotary",
    )
    for each in model.weights:
        each.assign(keras.random.normal(each.shape, seed=len(each.path)))
    search = kp.Generator(model, max_length=4).search
    models = engine_models(search, (3, 5, 8), LENGTH)
    run = {name: tf.function(each) for name, each in models.items()}
    ids = np.random.default_rng(0).integers(1, 30, LENGTH, "int32")

    def read(name, count, first, real, state):
        tokens, places = np.zeros((1, count), "int32"), np.zeros(count, "int32")
        tokens[0, :real] = ids[first : first + real]
        places[:real] = first + np.arange(real)
        found = run[name]({TOKENS: tokens, PLACES: places, **state})
        return {name: each.numpy() for name, each in found.items()}

    empty = {
        name: np.zeros(each.shape, "float32")
        for name, each in models["decode"].input.items()
        if name not in (TOKENS, PLACES)
    }
    state = read("prefill_8", 8, 0, 5, empty)
    for first in (5, 6):  # 8 tokens from there are more than the caches hold
        wanted = read("prefill_5", 5, first, 5, state)
        found = read("prefill_8", 8, first, 5, state)
        for name, each in wanted.items():
            np.testing.assert_allclose(
                found[name][:, :, : first + 5],
                each[:, :, : first + 5],
                atol=2e-5,
            )
        state = read("prefill_3", 3, 5, 1, state)  # of the second place
