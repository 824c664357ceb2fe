"""Patches of images, and the model of them."""

import keras
import numpy as np
import pytest

import keras_posenc as kp

SMALL = {
    "patch_size": 2,
    "d_model": 8,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 6,
}


def images(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def patches_of(x, size):
    """Those of one image after another, row by row, in plain loops."""
    _, height, width, _ = x.shape
    return np.stack(
        [
            x[:, i : i + size, j : j + size].reshape(len(x), -1)
            for i in range(0, height, size)
            for j in range(0, width, size)
        ],
        axis=1,
    )


@pytest.mark.parametrize("num_class_tokens", [0, 1, 2])
def test_patches_are_projected_behind_class_tokens(num_class_tokens):
    layer = kp.PatchEmbedding(
        2,
        d_model=5,
        num_class_tokens=num_class_tokens,
        bias_initializer="ones",
        embeddings_initializer="normal",
    )
    x = images(2, 4, 6, 3)
    found = keras.ops.convert_to_numpy(layer(x))
    kernel, table = (
        keras.ops.convert_to_numpy(weight).astype("float64")
        for weight in (layer.projection.kernel, layer.embeddings)
    )
    patches = patches_of(x.astype("float64"), 2) @ kernel.reshape(12, 5) + 1
    expected = np.pad(patches, ((0, 0), (num_class_tokens, 0), (0, 0))) + table
    assert found.shape == layer.compute_output_shape(x.shape)
    # Sums of 14 terms that are below 4 each.
    np.testing.assert_allclose(found, expected, atol=14 * 4 * 2**-24)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_a_model_comes_back_from_its_file(dtype, tmp_path):
    model = kp.VisionTransformerModel(
        (4, 6), **SMALL, num_class_tokens=2, dtype=dtype
    )
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = images(3, 4, 6, 3)
    answers, expected = (
        keras.ops.convert_to_numpy(each(x)) for each in (again, model)
    )
    np.testing.assert_array_equal(answers, expected)
    assert expected.shape == (3, 2 + 6, 8)
    assert again.get_config() == model.get_config()
