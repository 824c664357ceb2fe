"""What is in front of models of images, and behind them."""

import json

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.checkpoints.folders import copied
from tests.text.files import FIXTURES as ALL

FIXTURES = ALL / "hugging_face"
# Of float32: 4 operations on numbers below 8, and sums of up to 32 terms.
TOLERANCE = 64 * 2**-20


def changed(name, folder, tensors=None, **keys):
    """A fixture's folder with another config and other tensors."""
    return copied(FIXTURES / name, folder, tensors, **keys)


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
    head = {"classifier.weight": kernel, "classifier.bias": np.ones(3, "f4")}
    folder = changed(
        name,
        tmp_path,
        lambda found: {f"{name}.{key}": x for key, x in found.items()} | head,
        architectures=["XForImageClassification"],
        id2label={"0": "a", "1": "b", "2": "c"},
    )
    model = kp.load_hugging_face(folder, verbose=False)
    assert model.labels == ("a", "b", "c")
    logits = keras.Model(model.inputs[0], model.get_layer("logits").output)(x)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(logits),
        pooled @ kernel.T + 1,
        atol=TOLERANCE,
    )


def test_tokens_of_images_without_registers(tmp_path):
    """In transformers' files they are a tensor without rows."""
    name = "embeddings.register_tokens"
    folder = changed(
        "dinov3",
        tmp_path,
        lambda found: found | {name: found[name][:, :0]},
        num_register_tokens=0,
    )
    model = kp.load_hugging_face(folder, verbose=False)
    answers = model(np.zeros((1, 28, 28, 3), "float32"))
    assert answers.shape == (1, 1 + 7 * 7, 16)


def test_pixels_are_normalized_as_the_checkpoint_says(tmp_path):
    folder = changed("vit", tmp_path)
    mean, deviation = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.25, 2])
    said = {"do_resize": True, "size": {"height": 8, "width": 8}}
    said |= {"rescale_factor": 1 / 128, "image_mean": mean.tolist()}
    said |= {"image_std": deviation.tolist()}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    model = kp.load_hugging_face(folder, verbose=False)
    raw = (pixels().astype("float64") * deviation + mean) * 128
    answers = keras.ops.convert_to_numpy(model(raw.astype("float32")))
    np.testing.assert_allclose(answers, hidden("vit"), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("vit", {"from_ids": True}, "`from_ids` must be False"),
        ("vit", {"pairs": True}, "`pairs` must be False"),
        ("vit", {"pad_id": 1}, "`pad_id` must be None"),
        ("vit", {"max_length": 8}, "`max_length` must be None"),
        ("bert", {"from_ids": True, "max_length": 8}, "`max_length` must be N"),
        ("vit", {"image_size": 10}, "`patch_size` must divide"),
        ("bert", {"image_size": 8}, "`image_size` must be None"),
    ],
)
def test_refuses_options(name, options, words):
    with pytest.raises(ValueError, match=words):
        kp.load_hugging_face(FIXTURES / name, verbose=False, **options)
