"""keras-hub's sinusoidal encoding equals ours."""

import keras
import keras_hub
import numpy as np

import keras_posenc as kp

zeros = keras.ops.zeros((1, 12, 8))
np.testing.assert_allclose(
    kp.PositionalEncoding()(zeros),
    keras_hub.layers.SinePositionEncoding()(zeros),
    atol=1e-4,
)
