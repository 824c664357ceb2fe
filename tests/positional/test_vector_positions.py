"""Positions that are vectors: rotations, grids, and refusals."""

import json
import math
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref

FIXTURES = np.load(
    Path(__file__).parents[1] / "fixtures/vector_position_parity.npz"
)
CASES = sorted(key[:-5] for key in FIXTURES.files if key.endswith("/axes"))
SECTIONS = {"mrope_section": [1, 1, 2]}
# A sine's bound below 4,096, two products and a sum, of features below 4.
TURNED = 2 * 4 * (2.1e-7 + 2 * 2.0**-24)


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x), "float64")


@pytest.mark.parametrize("case", CASES)
def test_parity_with_transformers(case):
    """Qwen2-VL's images and texts, EdgeTAM's images, Qwen3-VL's texts."""
    axes, x, positions, expected = (
        FIXTURES[f"{case}/{key}"]
        for key in ("axes", "inputs", "positions", "turned")
    )
    layer = kp.RotaryEmbedding(
        axes=json.loads(str(axes)),
        layout="interleaved" if case == "axial_interleaved" else "halves",
    )
    turned = numpy(layer.rotate(ops.convert_to_tensor(x), positions))
    np.testing.assert_allclose(turned, expected, rtol=0, atol=TURNED)


def test_parity_with_dinov3():
    """Tokens before the patches are not rotated."""
    x, expected = (FIXTURES[f"dinov3/{key}"] for key in ("inputs", "turned"))
    grid = kp.GridPositions(4, num_class_tokens=3, extent=2 * math.pi)
    positions = grid(np.zeros((5, 8, 13, 3), "float32"))
    layer = kp.RotaryEmbedding(axes=2, max_wavelength=100)
    turned = numpy(layer.rotate(ops.convert_to_tensor(x), positions))
    # A coordinate up to 2 pi is rounded three times.
    tolerance = TURNED + 2 * 4 * 3 * 2 * math.pi * 2.0**-24
    np.testing.assert_allclose(turned, expected, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(turned[:, :, :3], x[:, :, :3])


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_three_axes_as_in_the_paper(layout):
    """Each third of the pairs is a rotary embedding of its own axis."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 18)).astype("float32")
    positions = rng.uniform(-300, 300, (1, 5, 3)).astype("float32")
    layer = kp.RotaryEmbedding(axes=3, layout=layout, partial_rotary_factor=0.7)
    found = numpy(layer(x, positions=positions))
    expected = ref.rotate_by_axes(x, positions, pairs=2, layout=layout)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * TURNED)
