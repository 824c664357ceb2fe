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
MASK = {"content": "<mask>", "lstrip": True}
NAMES = {"cls_token": "<s>", "mask_token": MASK}
DECODER, EXTRA = "added_tokens_decoder", "additional_special_tokens"
PLAIN = {"tokenizer_class": "RobertaTokenizer", "mask_token": "<mask>"}


def older(**files):
    """The files of slow tokenizers."""
    ids = dict(ROBERTA["model"]["vocab"])
    ids |= {each["content"]: each["id"] for each in ROBERTA["added_tokens"]}
    merges = map(" ".join, ROBERTA["model"]["merges"])
    text = "\n".join(["#version: 0.2", *merges, ""])
    return {"vocab": ids, "merges": text, **files}


@pytest.fixture
def made(tmp_path):
    """The tokenizer of a folder with these files."""

    def made(pad_id=1, size=1600, merges=None, **files):
        for name, said in files.items():
            path = tmp_path / f"{name}.json"
            path.write_text(json.dumps(said), encoding="utf-8")
        if merges is not None:
            (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
        encoder = types.SimpleNamespace(
            vocabulary_size=size, pad_id=pad_id, input_position=None
        )
        return tokenizer_of(Folder(tmp_path), encoder)

    return made


def test_padding_with_the_end_and_nothing_else(made):
    with pytest.raises(ValueError, match="no reserved token to pad"):
        made(1501, tokenizer=EUROBERT)


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


@pytest.mark.parametrize(
    "names",
    [
        {"special_tokens_map": NAMES},
        # As slow tokenizers of transformers since 4.34 write them.
        {"tokenizer_config": PLAIN | {"added_tokens_decoder": {"1500": MASK}}},
    ],
)
def test_older_files_say_the_same(made, tmp_path, names):
    settings = {"tokenizer_class": "RobertaTokenizer"}
    said = made(tokenizer=ROBERTA, tokenizer_config=settings).get_config()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    found = made(**older(**names))
    order = ("special_tokens",)
    found, said = (
        each | {key: sorted(each[key]) for key in order}
        for each in (found.get_config(), said)
    )
    assert found == said


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"add_prefix_space": True}, "'add_prefix_space'"),
        ({"add_bos_token": False}, "'add_bos_token'"),
        ({"split_special_tokens": True}, "'split_special_tokens'"),
        (
            {"tokenizer_class": "RobertaTokenizer", "normalizer": "NFC"},
            "RobertaTokenizer has normalization=None",
        ),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "not byte-level BPE"),
        ({"tokenizer_class": "CLIPTokenizer"}, "CLIPTokenizer may"),
        ({"pad_id": 1599}, "pad_token_id=1599"),
        ({"size": 300}, "vocab_size=300"),
    ],
)
def test_what_is_not_the_same(made, tmp_path, files, word):
    settings = dict(files)
    options = {
        key: settings.pop(key)
        for key in ("pad_id", "size", "config")
        if key in settings
    }
    whole = dict(ROBERTA)
    if "normalizer" in settings:
        whole["normalizer"] = {"type": settings.pop("normalizer")}
    with pytest.raises(ValueError, match=re.escape(word)) as raised:
        made(tokenizer=whole, tokenizer_config=settings, **options)
    assert str(tmp_path) in str(raised.value)


NEW = {"content": "NEW", "lstrip": False}


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("name", "said", "word"),
    [
        ("added_tokens", {"<mask>": 3}, "added_tokens.json', key '<mask>'"),
        ("tokenizer_config", {DECODER: {"1500": NEW}}, DECODER),
        (
            "tokenizer_config",
            {DECODER: {"2": {"content": "</s>", "single_word": True}}},
            "</s>",
        ),
        ("special_tokens_map", {"eos_token": {"content": "x"}}, "eos_token"),
        ("tokenizer_config", {EXTRA: ["x"]}, EXTRA),
        ("tokenizer_config", {"extra_special_tokens": {"a": "x"}}, "extra_s"),
    ],
)
def test_tokens_that_other_files_add(made, is_whole, name, said, word):
    files = {"tokenizer": ROBERTA} if is_whole else older(**{name: said})
    with pytest.raises(ValueError, match=re.escape(word)):
        made(**files | {name: said})


@pytest.mark.parametrize("is_whole", [True, False])
def test_tokens_that_other_files_repeat(made, is_whole):
    same = {"added_tokens": {"<mask>": 1500}, "special_tokens_map": NAMES}
    made(**({"tokenizer": ROBERTA} if is_whole else older()) | same)
