"""Ids of Hugging Face's library "tokenizers", from fixtures."""

import pytest

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")

from keras_posenc.text import WordpieceTokenizer  # noqa: E402
from tests.text.files import content  # noqa: E402

CONTENT = content("tokenizer")
BERT = CONTENT["bert"]


def different(tokenizer, expected):
    """Texts by category whose ids are others."""
    found = {}
    for category, ids in expected.items():
        texts = CONTENT["texts"][category]
        rows = tokenizer.split(texts).to_list()
        pairs = zip(texts, rows, ids, strict=True)
        found[category] = [text for text, row, ids in pairs if row != ids]
    return {category: texts for category, texts in found.items() if texts}


@pytest.mark.parametrize("name", BERT["options"])
def test_bert(name):
    options = dict(BERT["options"][name])
    options["split_on_cjk"] = options.pop("handle_chinese_chars", True)
    tokenizer = WordpieceTokenizer(
        BERT["vocabulary"], normalization="bert", **options
    )
    assert different(tokenizer, BERT["ids"][name]) == {}


def test_special_tokens_may_be_numbers():
    """However their places are spelled within: eleven are enough for a 10."""
    special = [f"[{letter}]" for letter in "abcdefg"] + ["10", "1"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *special, "x"]
    tokenizer = WordpieceTokenizer(
        vocabulary,
        normalization="bert",
        special_tokens=[*vocabulary[:4], *special],
    )
    ids = tokenizer(["x10x[a]1[g]", "[SEP]1"]).numpy().tolist()
    assert ids == [[2, 13, 11, 13, 4, 12, 10, 3], [2, 3, 12, 3, 0, 0, 0, 0]]
