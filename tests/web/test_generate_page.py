"""The page of a generator, in a browser, answers as the model in Keras."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

import keras_posenc as kp
from tests.generation import toy
from tests.web.browsing import PAGE, browser, copy_of_page, drive, node

# In a browser: `make test-web`.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

LENGTH = 16
TEXTS = ["abc", "hello", "없다", "\U0001f642a", "abcdefghabcdef", "gag"]


def sides(generator):
    """What the page reads, as export/web/README.md writes it."""
    return {
        "source": generator.source_tokenizer.get_config(),
        "target": generator.target_tokenizer.get_config(),
    }


@pytest.fixture(scope="module")
def generators():
    return {"generator": toy.varied(), "beams": toy.varied(beams=3, n_best=2)}


@pytest.fixture(scope="module")
def shown(generators, tmp_path_factory):
    """What the page shows to someone at its keyboard."""
    browser()
    folder = tmp_path_factory.mktemp("web")
    site = copy_of_page(folder)
    for name, generator in generators.items():
        path = kp.export_litert(
            generator,
            site / f"{name}.tflite",
            signatures={
                "serving_default": (generator.from_ids, {"ids": (1, LENGTH)})
            },
            verbose=False,
        ).path
    (site / "generator.json").write_text(json.dumps(sides(generator)))
    kp.export_litert(
        generator, site / "dynamic.tflite", verify=False, verbose=False
    )
    content = path.read_bytes()
    (site / "corrupt.tflite").write_bytes(content[:8] + bytes(4000))
    return drive(
        "drive_generate.mjs", folder, site, texts=TEXTS, long="a" * LENGTH
    )


@pytest.mark.parametrize(
    ("page", "name"), [("answers", "generator"), ("beams", "beams")]
)
def test_answers_are_keras(shown, generators, page, name):
    wanted = generators[name](tf.constant(TEXTS))
    best = wanted["text"].numpy().reshape(len(TEXTS), -1)[:, 0]
    scores = wanted["score"].numpy().reshape(len(TEXTS), -1)[:, 0]
    assert len({*scores}) == len(TEXTS)  # else all is alike
    if name == "generator":
        assert len({*best}) > 1
    for text, score, found in zip(best, scores, shown[page], strict=True):
        assert found["answer"] == text.decode()
        assert re.fullmatch(r"Answered in \d+\.\d ms\.", found["status"])
        assert found["score"] == pytest.approx(score, abs=1e-5)
        assert f"{100 * np.exp(score):.1f} %" in found["sure"]
    assert shown[page][2]["unknown"] == "Not in the vocabulary: 없 다"
    assert shown[page][0]["unknown"] == ""


def test_a_text_that_is_too_long_is_said_and_the_next_answered(shown):
    found = shown["tooLong"]
    message = "The text has 16 characters, and the model takes 14."
    assert found["message"] == message
    for name in ("answer", "score", "unknown"):
        assert found["after"][name] == shown["answers"][0][name]


def test_nothing_leaves_the_browser_and_nothing_scrolls_sideways(shown):
    assert shown["outside"] == []
    assert shown["widths"] == {"desktop": 1280, "phone": 390}


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("absent", ["no absent.tflite", "404", "README.md"]),
        ("json", ["index.html is not JSON"]),
        ("dynamic", ["fixed length", '"ids": (1, 64)']),
        ("corrupt", ["cannot run corrupt.tflite"]),
        ("wasm", ["LiteRT is not here", "npm ci"]),
    ],
)
def test_trouble_is_named(shown, trouble, words):
    found = shown["troubles"][trouble]
    assert found["disabled"]
    for word in words:
        assert word in found["message"]


SCRIPT = """
const [file, given] = process.argv.slice(1);
require("vm").runInThisContext(require("fs").readFileSync(file, "utf8"));
const { tokenizer, texts, rows, length } = JSON.parse(given);
console.log(JSON.stringify({
  ids: texts.map((text) => [...toIds(text, tokenizer, length).row]),
  texts: rows.map((row) => toText(row, tokenizer)),
}));
"""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_start": False},
        {"add_start": False, "add_end": False},
        {"sequence_length": 5},
    ],
    ids=str,
)
def test_characters_are_the_tokenizer_s(options):
    """Without a browser: what the page does to texts, under node."""
    tokenizer = kp.CharacterTokenizer("abc월\U0001f642é", **options)
    texts = ["", "abc", "cab월\U0001f642", "xyz", "a\u0301é", "abcabcabc"]
    ids = np.asarray(tokenizer(texts))
    rng = np.random.default_rng(0)
    rows = rng.integers(0, tokenizer.vocabulary_size(), (50, 8))
    given = {
        "tokenizer": tokenizer.get_config(),
        "texts": texts,
        "rows": rows.tolist(),
        "length": ids.shape[1],
    }
    found = node(SCRIPT, PAGE / "characters.js", json.dumps(given))
    assert found["ids"] == ids.tolist()
    wanted = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
    assert found["texts"] == wanted
