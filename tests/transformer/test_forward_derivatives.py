"""Second derivatives by forward differentiation of a gradient."""

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")


def test_graphs_of_any_length_have_them():
    """... as eager code does, where TensorFlow calls no function."""
    keras.utils.set_random_seed(0)
    model = kp.TransformerEncoderModel(
        20,
        d_model=8,
        num_layers=1,
        num_heads=2,
        intermediate_dim=8,
        input_position=None,
        attention_position="rotary",
    )
    rng = np.random.default_rng(0)
    ids = tf.constant(rng.integers(1, 20, (2, 5)))
    model(ids)
    kernels = (x for x in model.trainable_variables if "kernel" in x.path)
    kernel = next(kernels).value
    direction = tf.constant(rng.normal(size=kernel.shape), "float32")
    weights = tf.constant(rng.normal(size=(2, 5, 8)), "float32")

    def curvature(ids):
        with tf.autodiff.ForwardAccumulator(kernel, direction) as forward:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights * model(ids) ** 2)
            gradient = tape.gradient(loss, kernel)
        return forward.jvp(gradient)

    spec = [tf.TensorSpec((None, None), "int64")]
    graph = tf.function(curvature, input_signature=spec, autograph=False)
    wanted = curvature(ids).numpy()
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(graph(ids), wanted, atol=1e-4)
