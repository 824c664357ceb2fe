"""`keras.RematScope`: training in all of its modes is that without it."""

import keras
import numpy as np
import pytest

import keras_posenc as kp

MODES = [
    {"mode": "full"},
    *(
        pytest.param(scope, marks=pytest.mark.slow)
        for scope in (
            # A block, a whole stack.
            {"mode": "list_of_layers", "layer_names": ["block_0", "decoder"]},
            {"mode": "activations"},
            {"mode": "larger_than", "output_size_threshold": 30},
            # A layer of Keras within one of a block.
            {"mode": "list_of_layers", "layer_names": ["intermediate"]},
        )
    ),
]
X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
X[0, 3:] = 0  # padding


def trained(**scope):
    """Losses of two steps, all variables then, and calls of an activation."""
    keras.utils.set_random_seed(0)
    calls = []

    def activation(x):
        calls.append(1)
        return keras.ops.tanh(x)

    options = {
        "num_heads": 2,
        "intermediate_dim": 8,
        "dropout": 0.3,
        "activation": activation,
    }
    with keras.RematScope(**scope):
        encoding = kp.PositionalEncoding(dropout=0.3)
        encoder = kp.TransformerEncoder(1, attention="rotary", **options)
        decoder = kp.TransformerDecoder(
            1, cross_attention="t5", name="decoder", **options
        )
        model = kp.TransformerEncoderModel(
            5, d_model=8, num_layers=1, **options
        )
    x = keras.Input((5, 8))
    ids = keras.Input((5,), dtype="int32")
    encoded = encoding(keras.layers.Masking()(x))
    # Positions that learn, and a memory that carries its mask.
    positions = keras.layers.Reshape((5,))(keras.layers.Dense(1)(x))
    y = decoder(model(ids), memory=encoder(encoded, positions=positions))
    full = keras.Model([x, ids], y)
    # XLA takes long to compile it, and JAX knows nothing else.
    is_jax = keras.config.backend() == "jax"
    full.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile=is_jax)
    ids = np.array([[1, 2, 3, 0, 0], [1, 1, 4, 4, 2]])
    calls.clear()
    losses = [full.train_on_batch([X, ids], 10 * X) for _ in range(2)]
    variables = map(keras.ops.convert_to_numpy, full.variables)
    return [*map(np.asarray, losses), *variables], len(calls)


@pytest.fixture(scope="module")
def wanted():
    return trained(mode=None)


@pytest.mark.parametrize("scope", MODES, ids=str)
def test_training_is_that_without_a_scope(scope, wanted):
    got, calls = trained(**scope)
    # The same sums in another order: a hundred roundings of the largest part.
    for each, want in zip(got, wanted[0], strict=True):
        bound = 100 * 2**-24 * max(np.abs(want).max(), 1)
        if np.issubdtype(want.dtype, np.integer):
            bound = 0  # what random numbers are drawn next
        np.testing.assert_allclose(each, want, rtol=0, atol=bound)
    # Each of three blocks once more: as the one graph of both steps is traced,
    # or in each step. JAX does it without a call of Python.
    again = {"tensorflow": 3, "torch": 6}
    if keras.config.backend() in again:
        assert calls - wanted[1] == again[keras.config.backend()]


def test_a_model_decodes_as_without_a_scope():
    def decoded(mode):
        keras.utils.set_random_seed(0)
        with keras.RematScope(mode):
            model = kp.TransformerDecoderModel(
                9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
            )
        ids = np.array([[3, 4], [5, 0]])
        generator = kp.Generator(model, max_length=3, start_id=2)
        return generator.predict(ids, verbose=0)["score"]

    np.testing.assert_array_equal(decoded("full"), decoded(None))
