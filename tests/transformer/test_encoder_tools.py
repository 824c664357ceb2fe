"""What Keras offers for every model works on the encoder's parts."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.layers import numpy

IDS = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5], [7, 8, 0, 0, 0]])
DIM, LAYERS = 16, 1
PROJECTIONS = 4 * LAYERS


def encoder_model(**kwargs):
    return kp.TransformerEncoderModel(
        50,
        d_model=DIM,
        **{
            "num_layers": LAYERS,
            "num_heads": 4,
            "intermediate_dim": 32,
            "dropout": 0.0,
            **kwargs,
        },
    )


# ---- LoRA


def test_lora_trains_small_matrices_beside_the_kernels(tmp_path):
    model = encoder_model()
    expected = numpy(model(IDS))
    kp.training.enable_lora(model, rank=2)
    np.testing.assert_array_equal(numpy(model(IDS)), expected)
    names = [weight.name for weight in model.trainable_weights]
    assert sorted(names) == sorted(
        ["lora_kernel_a", "lora_kernel_b"] * PROJECTIONS
    )
    frozen = [numpy(weight) for weight in model.non_trainable_weights]
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=False)
    model.train_on_batch(IDS, np.zeros((*IDS.shape, DIM), "float32"))
    assert np.abs(numpy(model(IDS)) - expected).max() > 1e-4
    for before, weight in zip(frozen, model.non_trainable_weights, strict=True):
        np.testing.assert_array_equal(numpy(weight), before)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.saving.load_model(path, compile=False)
    assert not any("lora" in weight.name for weight in loaded.weights)
    np.testing.assert_allclose(
        numpy(loaded(IDS)), numpy(model(IDS)), rtol=0, atol=1e-5
    )


def test_lora_is_for_projections_and_once():
    model = encoder_model()
    kp.training.enable_lora(model, rank=2)
    with pytest.raises(ValueError, match=f"{PROJECTIONS} with LoRA"):
        kp.training.enable_lora(model, rank=2)
    with pytest.raises(ValueError, match="with 0 of them"):
        kp.training.enable_lora(keras.layers.Embedding(5, 2), rank=2)
    with pytest.raises(ValueError, match="`alpha` must be"):
        kp.training.enable_lora(encoder_model(), rank=2, alpha=0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: keras.layers.Dense(3), "built=False"),
        (
            lambda: keras.layers.Dense(3, kernel_constraint="non_neg"),
            "kernel_constraint=<.*NonNeg",
        ),
    ],
)
def test_lora_that_is_refused_leaves_a_model_as_it_was(make, words):
    last = make()
    model = keras.Sequential([keras.layers.Dense(4), last])
    model.layers[0].build((None, 3))
    if last.kernel_constraint:
        last.build((None, 4))
    with pytest.raises(ValueError, match=words):
        kp.training.enable_lora(model, rank=2)
    assert not model.layers[0].lora_enabled
    assert all(weight.trainable for weight in model.layers[0].weights)


# ---- Training


def test_one_step_in_mixed_precision():
    # JAX compiles no float16 attention for the CPU.
    is_jax = keras.config.backend() == "jax"
    dtype = "mixed_bfloat16" if is_jax else "mixed_float16"
    rng = np.random.default_rng(0)
    target = rng.normal(size=(*IDS.shape, DIM)).astype("float32")
    exact, model = encoder_model(), encoder_model(dtype=dtype)
    model.set_weights(exact.get_weights())
    start = [numpy(weight) for weight in exact.trainable_weights]
    for each in (exact, model):
        each.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    losses = [each.train_on_batch(IDS, target) for each in (exact, model)]
    # 27 roundings lie behind each of the outputs, that are of size 1, and the
    # loss is the mean square of a difference of size sqrt 2.
    unit = {"mixed_float16": 2**-11, "mixed_bfloat16": 2**-8}[dtype]
    tolerance = 4 * np.sqrt(27) * unit * 2 * np.sqrt(2)
    assert abs(losses[0] - losses[1]) < tolerance
    for before, a, b in zip(
        start, exact.trainable_weights, model.trainable_weights, strict=True
    ):
        assert b.dtype == "float32"
        step, expected = numpy(b) - before, numpy(a) - before
        assert np.isfinite(step).all()
        size = np.linalg.norm(expected)
        if size > 1e-5:  # but for a key's bias, whose gradient is 0
            assert np.linalg.norm(step - expected) < size / 2
