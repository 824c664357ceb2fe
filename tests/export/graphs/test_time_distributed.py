"""`TimeDistributed` over a length that the graph does not know."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


class MaskedSum(layers.Layer):
    """Takes the mask of its step, of shape (batch,)."""

    def compute_output_shape(self, input_shape):
        return input_shape[:-1]

    def call(self, inputs, mask=None):
        total = ops.sum(inputs, axis=-1)
        if mask is not None:
            total = total * ops.cast(mask, total.dtype)
        return total


class Own(layers.TimeDistributed):
    """A subclass that leaves the steps to Keras."""


def model_of(layer, shape, masked=False):
    inputs = keras.Input((None, *shape), name="x")
    x = layers.Masking()(inputs) if masked else inputs
    return keras.Model(inputs, layer(x))


MODELS = {
    "dense": lambda: model_of(layers.TimeDistributed(layers.Dense(3)), (4,)),
    "subclass": lambda: model_of(Own(layers.Dense(3)), (4,)),
    "mask": lambda: model_of(
        layers.TimeDistributed(MaskedSum()), (4,), masked=True
    ),
    "images": lambda: model_of(
        layers.TimeDistributed(layers.Conv2D(2, 3)), (5, 5, 1)
    ),
    "nested": lambda: model_of(
        layers.TimeDistributed(
            keras.Sequential([layers.TimeDistributed(layers.Dense(2))])
        ),
        (3, 4),
    ),
}
EXPORTS = {
    "a": kp.export_saved_model,
    "a.tflite": kp.export_litert,
    "a.onnx": kp.export_onnx,
}


# LiteRT is the strictest of the formats: it has loops for a fixed batch alone.
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("dense", name) for name in EXPORTS),
        ("mask", "a"),
        *(
            pytest.param(kind, "a.tflite", marks=pytest.mark.slow)
            for kind in MODELS
            if kind != "dense"
        ),
    ],
)
def test_every_step_is_in_the_file(kind, name, tmp_path, run_saved_model):
    if name.endswith(".onnx"):
        pytest.importorskip("onnx")
    keras.utils.set_random_seed(0)
    model = MODELS[kind]()
    artifact = EXPORTS[name](
        model, tmp_path / name, max_length=4, verbose=False
    )
    # Compared with the model in eager steps, of which Keras knows the length.
    assert artifact.report.passed
    if name != "a":
        return
    assert kp.verify_export(
        tmp_path / name, model, max_length=4, verbose=False
    ).passed
    x = np.random.default_rng(0).normal(size=(2, 7, *model.input_shape[2:]))
    x = x.astype("float32")
    x[0, 2] = 0.0  # which `Masking` takes for padding
    (found,) = run_saved_model(artifact.path)({"x": x}).values()
    np.testing.assert_allclose(found, model(x), rtol=1e-5, atol=1e-6)


class OverBatch(layers.Layer):
    """Scores of each example relative to the others of its batch."""

    def call(self, inputs):
        powers = ops.exp(inputs)
        return powers / ops.sum(powers, axis=0)

    def compute_output_shape(self, input_shape):
        return input_shape


@pytest.mark.parametrize(
    ("dtype", "name", "mode"),
    [("mixed_bfloat16", "a", None), ("float32", "a.tflite", "float16")],
)
def test_layer_over_a_batch_is_refused(dtype, name, mode, tmp_path):
    """Its own difference is no rounding, of outputs or of weights."""
    keras.utils.set_random_seed(0)
    x = keras.Input((None, 32), name="x")
    y = layers.TimeDistributed(OverBatch(dtype=dtype))(layers.Dense(64)(x))
    options = {"quantization": mode} if mode else {}
    with pytest.raises(kp.ExportVerificationError):
        EXPORTS[name](
            keras.Model(x, y),
            tmp_path / name,
            max_length=4,
            verbose=False,
            **options,
        )
    assert list(tmp_path.iterdir()) == []
