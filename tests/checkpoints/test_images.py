"""What is in front of models of images, and behind them."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_posenc as kp

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
# Of float32: 4 operations on numbers below 8, and sums of up to 32 terms.
TOLERANCE = 64 * 2**-20


def changed(name, folder, *, values=None, prefix="", tensors=None):
    """A fixture's folder with another config and other tensors."""
    config = json.loads((FIXTURES / name / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **values}))
    found = load_file(FIXTURES / name / "model.safetensors")
    found = {f"{prefix}{key}": value for key, value in found.items()}
    save_file({**found, **tensors}, folder / "model.safetensors")
    return folder


def pixels():
    with np.load(FIXTURES / "vit" / "expected.npz") as arrays:
        return arrays["pixels"].transpose(0, 2, 3, 1)


def hidden(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        return arrays["hidden"]


@pytest.mark.parametrize("name", ["vit", "deit", "dinov2"])
def test_classifier_of_images(name, tmp_path):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        tokens = arrays["hidden"].astype("float64")
        x = arrays["pixels"].transpose(0, 2, 3, 1)
    pooled = tokens[:, 0]
    if name == "dinov2":
        pooled = np.concatenate([pooled, tokens[:, 1:].mean(1)], axis=-1)
    rng = np.random.default_rng(1)
    kernel = rng.normal(size=(3, pooled.shape[1])).astype("float32")
    folder = changed(
        name,
        tmp_path,
        values={
            "architectures": ["XForImageClassification"],
            "id2label": {"0": "a", "1": "b", "2": "c"},
        },
        prefix=f"{name}.",
        tensors={
            "classifier.weight": kernel,
            "classifier.bias": np.ones(3, "float32"),
        },
    )
    model = kp.load_hugging_face(folder, verbose=False)
    assert model.labels == ("a", "b", "c")
    logits = keras.Model(model.inputs[0], model.get_layer("logits").output)(x)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(logits),
        pooled @ kernel.T + 1,
        atol=TOLERANCE,
    )


def test_pixels_are_normalised_as_the_checkpoint_says(tmp_path):
    folder = changed("vit", tmp_path, values={}, tensors={})
    mean, deviation = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.25, 2])
    said = {"do_resize": True, "size": {"height": 8, "width": 8}}
    said |= {"rescale_factor": 1 / 128, "image_mean": mean.tolist()}
    said |= {"image_std": deviation.tolist()}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    model = kp.load_hugging_face(folder, verbose=False)
    raw = (pixels().astype("float64") * deviation + mean) * 128
    answers = keras.ops.convert_to_numpy(model(raw.astype("float32")))
    np.testing.assert_allclose(answers, hidden("vit"), atol=TOLERANCE)


def test_queries_keys_and_values_without_biases(tmp_path):
    """Biases of zeros are none."""
    found = load_file(FIXTURES / "vit" / "model.safetensors")
    biases = {
        name: np.zeros_like(value)
        for name, value in found.items()
        if ".attention.attention." in name and name.endswith("bias")
    }
    assert len(biases) == 6
    answers = []
    for has in (True, False):
        folder = tmp_path / str(has)
        folder.mkdir()
        changed("vit", folder, values={"qkv_bias": has}, tensors=biases)
        if not has:
            kept = load_file(folder / "model.safetensors")
            kept = {k: v for k, v in kept.items() if k not in biases}
            save_file(kept, folder / "model.safetensors")
        model = kp.load_hugging_face(folder, verbose=False)
        answers.append(keras.ops.convert_to_numpy(model(pixels())))
    assert np.array_equal(*answers)
    assert np.abs(answers[0] - hidden("vit")).max() > 1e-3


def test_refuses_gated_giants_and_ids(tmp_path):
    folder = changed(
        "dinov2", tmp_path, values={"use_swiglu_ffn": True}, tensors={}
    )
    with pytest.raises(ValueError, match="'use_swiglu_ffn': True is not"):
        kp.load_hugging_face(folder, verbose=False)
    with pytest.raises(ValueError, match="`from_ids` must be False"):
        kp.load_hugging_face(FIXTURES / "vit", from_ids=True, verbose=False)


def test_refuses_sizes_of_images_that_there_are_none_of():
    with pytest.raises(ValueError, match="`image_size` must be None"):
        kp.load_hugging_face(FIXTURES / "bert", image_size=8, verbose=False)
    with pytest.raises(ValueError, match="`patch_size` must divide"):
        kp.load_hugging_face(FIXTURES / "vit", image_size=10, verbose=False)
