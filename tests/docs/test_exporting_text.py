"""The page's way to split words is the layer's."""

import re
from pathlib import Path

import pytest

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.tensorflow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exporting_text.md"
TEXTS = [
    "ÉCOLE école",
    "c\u3000d one\u00a0two",
    "a\tb\nc\x0bd\x0ce\rf",
    "don't stop-it, now! x_y [z] a\\b `q` ~ \U0001f600",
    "  ",
]


def test_words_of_text_vectorization():
    (code,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        if "def ids(" in each
    )
    names = {"keras": keras, "sentences": TEXTS}
    exec(code.rpartition("print(")[0], names)
    for text in TEXTS:
        found = keras.ops.convert_to_numpy(names["words"]([text]))[0]
        assert names["ids"](text) == [x for x in found.tolist() if x], text
