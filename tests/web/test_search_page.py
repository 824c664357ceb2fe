"""The page of a search, in a browser, finds what the model in Keras finds."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import keras_posenc as kp
from tests.examples import encoder_folder
from tests.web.browsing import PAGE, browser, copy_of_page, drive, node

# In a browser: `make test-web`.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

INDEX = [
    " ".join(words)
    for words in itertools.product(
        ("open", "close", "read", "sort"),
        ("a file", "the list", "this object", "every class"),
        ("twice", "by name", "and return it"),
    )
]
TEXTS = [
    "read files",
    # What MediaPipe by itself takes for other words.
    "\u00c9very CL\u00c1SS \u2026 re\u00e3d",
    "\uff52\u00df\u03a3\u03c2 \u0130t\u00a0is\u3000\ud55c",
    "an\u200b obj\u00adect\u2028or\x07 two",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    encoder_folder.write(folder)
    return kp.load_hugging_face(folder, verbose=False)


@pytest.fixture(scope="module")
def vectors(model):
    return model.predict(tf.constant(INDEX), verbose=0)


@pytest.fixture(scope="module")
def shown(model, vectors, tmp_path_factory):
    """What the page shows to someone at its keyboard."""
    pytest.importorskip("mediapipe")
    browser()
    folder = tmp_path_factory.mktemp("web")
    site = copy_of_page(folder)
    kp.export_litert(
        model,
        site / "embedder.tflite",
        task="text_embedder",
        max_length=32,
        verbose=False,
    )
    described = {
        "normalization": "bert",
        "texts": [[f"name of {text}", text] for text in INDEX],
    }
    for name, rows in (("index", vectors), ("other", vectors[1:])):
        (site / f"{name}.json").write_text(json.dumps(described))
        rows.astype("<f4").tofile(site / f"{name}.bin")
    return drive("drive_search.mjs", folder, site, texts=TEXTS)


def test_finds_what_keras_finds(shown, model, vectors):
    scores = model.predict(tf.constant(TEXTS), verbose=0) @ vectors.T
    assert np.min(np.ptp(scores, axis=1)) > 0.05  # else all is alike
    for row, answer in zip(scores, shown["answers"], strict=True):
        assert f"{len(INDEX)} texts, answered in" in answer["status"]
        assert len(answer["found"]) == 10
        by_name = dict(zip(INDEX, row, strict=True))
        for found, score in zip(
            answer["found"], sorted(row, reverse=True), strict=False
        ):
            name = found["name"].removeprefix("name of ")
            assert found["score"] == pytest.approx(score, abs=1e-5)
            assert by_name[name] == pytest.approx(score, abs=1e-5)
            assert f"{score:.3f}" in found["text"]


SOURCE = """
const [file, options, texts] = process.argv.slice(1);
require("vm").runInThisContext(require("fs").readFileSync(file, "utf8"));
const found = JSON.parse(texts).map(normalizerOf(JSON.parse(options)));
console.log(JSON.stringify(found));
"""


@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_accents_are_kept_where_the_tokenizer_keeps_them(strip_accents):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = kp.WordpieceTokenizer(
        [*special, "caf\u00e9", "cafe", "caf", "##e", "##\u0301", "i\u0307t"],
        normalization="bert",
        strip_accents=strip_accents,
    )
    texts = ["CAF\u00c9", "cafe\u0301", "c\u00ada\u200bf\u00e9\x07", "\u0130t"]
    options = {"normalization": "bert", "strip_accents": strip_accents}
    given = map(json.dumps, (options, texts))
    folded = node(SOURCE, PAGE / "normalize.js", *given)
    assert folded == [text.lower() for text in folded]
    np.testing.assert_array_equal(tokenizer(folded), tokenizer(texts))


def test_nothing_leaves_the_browser_and_nothing_scrolls_sideways(shown):
    assert shown["outside"] == []
    assert shown["widths"] == {"desktop": 1280, "phone": 390}


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("absent", ["no absent.tflite", "404", "README.md"]),
        ("index", ["other.bin must hold 48 rows of 32", "of one model"]),
        ("page", ["cannot run search.html", 'task="text_embedder"']),
        ("mediapipe", ["MediaPipe is not here", "npm ci"]),
    ],
)
def test_trouble_is_named(shown, trouble, words):
    found = shown["troubles"][trouble]
    assert found["disabled"]
    for word in words:
        assert word in found["message"]
