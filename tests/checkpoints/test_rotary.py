"""Rotary positions that transformers has no name for."""

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.rotary import rotary_of

# Twice the bound of a sine, and rounding of sums below 2.
TOLERANCE = 2 * 5.8e-7 + 2 * 2**-23


def test_ntk_as_far_as_gte_says():
    """The numbers of Alibaba-NLP/gte-multilingual-base."""
    said = {
        "max_position_embeddings": 8192,
        "rope_scaling": {"type": "ntk", "factor": 8.0},
        "rope_theta": 20000,
    }
    rotary = rotary_of(
        Config(said, "config.json"), None, kinds=("ntk",), head_dim=64
    )
    positions = np.array([0, 1, 2, 63, 4095, 8191])
    # Of digits, as in the source: 32 of them, each in a base that is larger by
    # one factor, so that the last pair is 8 times slower in all.
    slower = 8.0 ** (np.arange(1, 33) / 32)
    rates = 20000.0 ** -(np.arange(32) / 32) / slower
    angles = positions[:, None] * rates
    turned = rotary(np.ones((1, 6, 64), "float32"), positions=positions)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(turned)[0],
        np.concatenate(
            [
                np.cos(angles) - np.sin(angles),
                np.cos(angles) + np.sin(angles),
            ],
            axis=-1,
        ),
        rtol=0,
        atol=TOLERANCE,
    )
