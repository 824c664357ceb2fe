"""The page's ways to split words are the layer's."""

import json
import re
from pathlib import Path

import pytest

from tests.web.browsing import node

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exporting_text.md"
TEXTS = [
    "ÉCOLE école e\u0301cole E\u0301COLE",
    "c\u3000d one\u00a0two\u200bthree\u2028four",
    "a\tb\nc\x0bd\x0ce\rf\r\ng\x1ch\x85i",
    "don't stop-it, now! x_y [z] a\\b `q` ~ \U0001f600",
    "!\u0301 \u0130 \u212a K",
    "  ",
]


def code(language):
    """The page's code of one language with a function `ids`."""
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)
    (text,) = (each for each in found if " ids(" in each)
    return text


@pytest.fixture(scope="module")
def page():
    """What the page's Python defines, and TEXTS with half of their words."""
    names = {"keras": keras, "sentences": TEXTS[::2]}
    exec(code("python").rpartition("print(")[0], names)
    return names


@pytest.fixture(scope="module", params=[None, 3])
def wanted(page, request):
    """A length, and the layer's ids of each text alone."""
    layer = keras.layers.TextVectorization(
        vocabulary=page["vocabulary"][2:], output_sequence_length=request.param
    )
    found = [keras.ops.convert_to_numpy(layer([text]))[0] for text in TEXTS]
    if request.param is None:  # the layer makes no row shorter than 1
        found = [each[each > 0] for each in found]
    return request.param, [each.tolist() for each in found]


def test_python_has_the_words_of_text_vectorization(page, wanted):
    length, ids = wanted
    assert [page["ids"](text, length) for text in TEXTS] == ids


def test_javascript_has_the_words_of_text_vectorization(page, wanted):
    length, ids = wanted
    vocabulary, texts = json.dumps(page["vocabulary"]), json.dumps(TEXTS)
    script = f"""const vocabulary = {vocabulary}, texts = {texts};
        {code("js")}
        const length = {json.dumps(length)} ?? undefined;
        console.log(JSON.stringify(texts.map((text) => ids(text, length))));"""
    assert node(script) == ids
