"""Byte-level BPE tokenizers of checkpoints."""

import json
import re
import types

import pytest

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")

from keras_posenc.checkpoints.folder import Folder  # noqa: E402
from keras_posenc.checkpoints.tokenizers import tokenizer_of  # noqa: E402
from tests.text.files import content  # noqa: E402

TOKENIZERS = content("byte_pair")["tokenizers"]
ROBERTA, MODERNBERT, EUROBERT = (
    TOKENIZERS[name]["json"] for name in ("roberta", "modernbert", "eurobert")
)
SETTINGS, MAP = "tokenizer_config", "special_tokens_map"
MASK = {"content": "<mask>", "lstrip": True}
DECODER, EXTRA = "added_tokens_decoder", "additional_special_tokens"
NEW = {"content": "NEW", "lstrip": False}
SINGLE = {"content": "</s>", "single_word": True}


@pytest.fixture
def made(tmp_path):
    """The tokenizer of a folder with these files."""

    def made(pad_id=1, size=1600, **files):
        for name, said in files.items():
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(said), encoding="utf-8")
        encoder = types.SimpleNamespace(
            vocabulary_size=size, pad_id=pad_id, input_position=None
        )
        return tokenizer_of(Folder(tmp_path), encoder)

    return made


@pytest.mark.parametrize(
    ("whole", "padding"),
    [(MODERNBERT, "[PAD]"), (EUROBERT, "<|mask|>")],
    ids=["modernbert", "eurobert"],
)
def test_whole(made, whole, padding):
    ids = {each["content"]: each["id"] for each in whole["added_tokens"]}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 64,
    }
    tokenizer = made(ids[padding], tokenizer=whole, tokenizer_config=settings)
    assert (tokenizer.pad_token, tokenizer.max_length) == (padding, 64)


def test_tokens_that_other_files_repeat(made):
    names = {"cls_token": "<s>", "mask_token": MASK}
    added = {"<mask>": 1500}
    made(tokenizer=ROBERTA, added_tokens=added, special_tokens_map=names)


@pytest.mark.parametrize(
    ("file", "said", "word"),
    [
        (SETTINGS, {"add_prefix_space": True}, "'add_prefix_space'"),
        (SETTINGS, {"add_bos_token": False}, "'add_bos_token'"),
        (SETTINGS, {"split_special_tokens": True}, "'split_special_tokens'"),
        (SETTINGS, {"tokenizer_class": "CLIPTokenizer"}, "CLIPTokenizer may"),
        ("pad_id", 1599, "pad_token_id=1599"),
        ("size", 300, "vocab_size=300"),
        ("added_tokens", {"<mask>": 3}, "added_tokens.json', key '<mask>'"),
        (SETTINGS, {DECODER: {"1500": NEW}}, DECODER),
        (SETTINGS, {DECODER: {"2": SINGLE}}, "</s>"),
        (MAP, {"eos_token": {"content": "x"}}, "eos_token"),
        (SETTINGS, {EXTRA: ["x"]}, EXTRA),
        (SETTINGS, {"extra_special_tokens": {"a": "x"}}, "extra_s"),
    ],
)
def test_what_is_not_the_same(made, tmp_path, file, said, word):
    with pytest.raises(ValueError, match=re.escape(word)) as raised:
        made(**{"tokenizer": ROBERTA, file: said})
    assert str(tmp_path) in str(raised.value)


def test_padding_with_the_end_and_nothing_else(made):
    with pytest.raises(ValueError, match="no reserved token to pad"):
        made(1501, tokenizer=EUROBERT)
