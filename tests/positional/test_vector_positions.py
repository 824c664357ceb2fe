"""Positions that are vectors: rotations, grids, and refusals."""

import json
import math

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref
from tests.layers import cases_of, draw, numpy

CASES = cases_of("vector_position_parity")

SECTIONS = {"mrope_section": [1, 1, 2]}
# A sine's bound below 4,096, two products and a sum, of features below 4.
TURNED = 2 * 4 * (2.1e-7 + 2 * 2.0**-24)


@pytest.mark.parametrize("case", [x for x in CASES if x != "dinov3"])
def test_parity_with_transformers(case):
    """Qwen2-VL's images and texts, EdgeTAM's images, Qwen3-VL's texts."""
    axes, x, positions, expected = (
        CASES[case][key] for key in ("axes", "inputs", "positions", "turned")
    )
    layer = kp.RotaryEmbedding(
        axes=json.loads(str(axes)),
        layout="interleaved" if case == "axial_interleaved" else "halves",
    )
    turned = numpy(layer.rotate(ops.convert_to_tensor(x), positions))
    np.testing.assert_allclose(turned, expected, rtol=0, atol=TURNED)


def test_parity_with_dinov3():
    """Tokens before the patches are not rotated."""
    x, expected = (CASES["dinov3"][key] for key in ("inputs", "turned"))
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


def test_sections_take_numbers():
    """A number is the same on all axes: text has the usual positions."""
    x = draw(2, 5, 8)
    layer = kp.RotaryEmbedding(axes=SECTIONS)
    found = numpy(layer(x, start_index=7))
    np.testing.assert_array_equal(
        found, numpy(kp.RotaryEmbedding()(x, start_index=7))
    )
    vectors = np.repeat(np.arange(7, 12)[None, :, None], 3, axis=-1)
    np.testing.assert_array_equal(found, numpy(layer(x, positions=vectors)))


# ---- Grids


@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 3)], ids=["2-D", "3-D"])
def test_cells_are_counted_row_by_row(shape):
    expected = list(np.ndindex(*shape))
    grid = kp.GridPositions()
    positions = grid(np.zeros((4, *shape, 5), "float32"))
    assert positions.shape == grid.compute_output_shape((4, *shape, 5))
    assert numpy(positions)[0].tolist() == [list(cell) for cell in expected]


def test_patches_of_an_extent_are_their_centers():
    grid = kp.GridPositions(2, num_class_tokens=1, extent=3.0)
    plain = numpy(grid(np.zeros((1, 4, 8, 1), "float32")))[0]
    np.testing.assert_allclose(plain[1], [-1.5, -2.25], rtol=1e-6)
    np.testing.assert_allclose(plain[-1], [1.5, 2.25], rtol=1e-6)
    assert not plain[0].any()


def test_a_vision_transformer_takes_images_of_any_size(tmp_path):
    model = kp.VisionTransformerModel(
        None,
        input_position=None,
        attention=kp.RotaryEmbedding(axes=2, max_wavelength=100),
        grid_positions=kp.GridPositions(2, num_class_tokens=1, extent=6.0),
        patch_size=2,
        d_model=8,
        num_layers=1,
        num_heads=2,
        intermediate_dim=6,
    )
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for size in ((4, 6), (8, 2)):
        x = draw(3, *size, 3)
        y = numpy(model(x))
        np.testing.assert_array_equal(numpy(again(x)), y)
        assert y.shape == (3, 1 + size[0] * size[1] // 4, 8)
    # With its patches in another order, an image is another one.
    flipped = numpy(model(x[:, ::-1]))
    assert np.abs(flipped - y)[:, 0].max() > 1e-4


@pytest.mark.tensorflow
def test_a_graph_serves_every_size():
    import tensorflow as tf

    grid = kp.GridPositions(2, num_class_tokens=1, extent=3.0)
    signature = [tf.TensorSpec((None, None, None, 1))]
    graph = tf.function(grid.__call__, input_signature=signature)
    for size in ((4, 6), (2, 9), (2, 2)):
        images = np.zeros((1, *size, 1), "float32")
        np.testing.assert_array_equal(graph(images), grid(images))
