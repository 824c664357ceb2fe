"""What tests of several subpackages do with layers."""

import keras
import numpy as np
from keras import ops


def randomised(layer, seed=5):
    """The layer with weights none of which is 0 or 1.

    Args:
        layer: A layer or a model that is built.
        seed: Of the weights, or a generator of NumPy's.
    """
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        noise = rng.normal(size=weight.shape)
        if len(weight.shape) == 2:
            weight.assign(noise / np.sqrt(weight.shape[0]))
        elif weight.name in ("gamma", "scale"):
            weight.assign(1 + 0.1 * noise)
        else:
            weight.assign(0.1 * noise)
    return layer


@keras.saving.register_keras_serializable(package="tests")
class MaskSeen(keras.layers.Layer):
    """Answers with the mask that Keras handed to it, as integers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        assert mask is not None, "Keras looks for masks somewhere else"
        return ops.cast(mask, "int32")
