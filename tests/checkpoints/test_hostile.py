"""Folders made to hang, to fill memory, or to speak to a terminal."""

import json
import os
import time
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402
from keras_posenc.checkpoints import tensors  # noqa: E402
from keras_posenc.checkpoints.folder import Folder  # noqa: E402
from keras_posenc.text._tokenizer import Tokenizer  # noqa: E402
from keras_posenc.text.byte_pairs import BYTES  # noqa: E402
from tests.checkpoints.folders import (  # noqa: E402
    INDEX,
    SPECIAL,
    WEIGHTS,
    WORDPIECE,
    add_modules,
    at,
    changed,
    copied,
)

MANY = 10**5
# Of the processor: below 2 of an idle one, where it took from 17 to 90.
MOST_SECONDS = 8
JSON = (
    *("config.json", INDEX, "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("modules.json", "sentence_bert_config.json", "1/config.json"),
    "config_sentence_transformers.json",
)


@pytest.fixture
def folder(tmp_path):
    """A sentence encoder, with all the files that may be read of one."""
    folder = copied(at("bert"), tmp_path)
    add_modules(folder)
    (folder / "tokenizer.json").write_text(json.dumps(WORDPIECE))
    return folder


def place(folder, name):
    """Where a file is to be, and without those that are read in its stead."""
    stead = {
        INDEX: [WEIGHTS],
        "vocab.txt": ["tokenizer.json"],
        "vocab.json": ["tokenizer.json"],
    }
    for other in stead.get(name, ()):
        (folder / other).unlink()
    (folder / name).unlink(missing_ok=True)
    return folder / name


def load(folder, **options):
    return kp.load_hugging_face(folder, verbose=False, **options)


def refused(folder, *words, error=ValueError, **options):
    """Checks an error that is of one line, printable, short and soon there."""
    start = time.process_time()
    with pytest.raises(error) as raised:
        load(folder, **options)
    assert time.process_time() - start < MOST_SECONDS
    message = str(raised.value)
    assert type(raised.value) is error, message
    assert message.isprintable()
    assert len(message) < 3000
    for word in words:
        assert word in message
    return message


def pipe(path):
    os.mkfifo(path)  # which nobody writes to


def endless(path):
    path.symlink_to("/dev/zero")


def lost(path):
    path.symlink_to("nowhere")


def huge(path):
    path.touch()
    os.truncate(path, 20 * 2**30)  # with nothing in it


READ = [WEIGHTS, "vocab.txt", *JSON]
MAKES = [pipe, endless, lost, huge]
WORDS = {
    pipe: "must be a regular file, and is not",
    endless: "must be a regular file, and is not",
    lost: "and is a broken link",
    huge: "has 20480 MB",
}


@pytest.mark.parametrize(
    ("name", "make"),
    [(name, MAKES[i % 4]) for i, name in enumerate(READ)]
    + [(WEIGHTS, huge), ("config.json", endless), ("vocab.txt", pipe)],
)
def test_no_file_that_is_read(folder, make, name):
    path = place(folder, name)
    make(path)
    word = WORDS[make]
    if name == WEIGHTS and make is huge:
        word = "not a complete safetensors file"
    refused(folder, f"{path.name}' ", word)


@pytest.mark.parametrize("name", JSON)
def test_deep(folder, name):
    path = place(folder, name)
    path.write_text("[" * 200_000, encoding="utf-8")
    refused(folder, f"{path.name}' ", "nested too deeply")


@pytest.mark.parametrize("depth", [300, 970])
def test_as_deep_as_can_be_read(folder, depth):
    """And yet what is shown of it, and of what it is part of, is a line."""
    path = folder / "tokenizer.json"
    whole = json.dumps(WORDPIECE | {"normalizer": 0})
    nested = "[" * depth + "]" * depth
    path.write_text(whole.replace('"normalizer": 0', f'"normalizer": {nested}'))
    refused(folder, "tokenizer.json")


def many_words(tokenizer):
    tokenizer["model"]["vocab"] |= {f"w{n}": n for n in range(48, MANY)}


def many_added(tokenizer):
    tokenizer["added_tokens"] = [
        {"content": f"w{n}", "id": n, "normalized": False}
        for n in range(48, MANY + 48)
    ]


def one_piece(tokenizer):
    tokenizer["added_tokens"] = []
    tokenizer["model"] = {"type": "Unigram", "vocab": [["a", 0.0]] * MANY}


@pytest.fixture
def unmade(monkeypatch):
    """Tokenizers, of which none may be made: it takes long."""

    def fail(self, **options):
        raise AssertionError("a tokenizer is made before its size is known")

    monkeypatch.setattr(Tokenizer, "__init__", fail)


@pytest.mark.parametrize("make", [many_words, many_added, one_piece])
def test_more_tokens_than_the_model_has(folder, unmade, make):
    whole = json.loads(json.dumps(WORDPIECE))
    make(whole)
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    word = f"the tokenizer has {MANY} tokens, and config.json says vocab_size="
    refused(folder, word + "48")


def test_more_lines_than_the_model_has_tokens(folder, unmade):
    lines = "\n".join(map(str, range(MANY)))
    place(folder, "vocab.txt").write_text(lines)
    refused(folder, f"the tokenizer has {MANY} tokens")


def test_more_merges_than_tokens_have_places():
    tokens = [*BYTES, "<s>", "</s>", "<pad>", "ab"]
    with pytest.raises(ValueError, match="fewer than 270"):
        kp.BytePairTokenizer(tokens, merges=["a b"] * MANY)


def unigram(pieces, **parts):
    """A tokenizer of pieces, in place of the model's WordPiece."""
    special = [[each, 0.0] for each in SPECIAL]
    return WORDPIECE | {
        "added_tokens": [],
        "post_processor": {
            "type": "BertProcessing",
            "cls": ["[CLS]", 2],
            "sep": ["[SEP]", 3],
        },
        "normalizer": {
            "type": "Precompiled",
            "precompiled_charsmap": parts.get("rules", ""),
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"},
        "model": {
            "type": "Unigram",
            "unk_id": 1,
            "vocab": special + pieces,
        },
    }


def wordpiece(tokens, *added):
    ids = {token: i for i, token in enumerate([*SPECIAL, *tokens])}
    model = WORDPIECE["model"] | {"vocab": ids}
    return WORDPIECE | {"model": model, "added_tokens": [*added]}


@pytest.mark.parametrize(
    ("tokenizer", "word"),
    [
        (unigram([["a" * 10**7, 0.0]]), "index 5: 10,000,000 characters"),
        (unigram([["\0", 0.0]]), r"index 5: 1 characters, '\x00'"),
        (unigram([["a", float("nan")]]), "index 5: nan"),
        (unigram([["a", 10**400]]), "tokenizer.json' is not a complete"),
        (unigram([["a", 0.0]], rules="AA=="), "whole. Received: 1 bytes"),
        (unigram([["a", 0.0]], rules="AAEAAAAA"), "should have 256"),
        (
            wordpiece(["a" * 10**7]),
            "index 5: 10,000,000 characters",
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:40],
)
def test_what_ends_native_code_never_reaches_it(
    folder, monkeypatch, tokenizer, word
):
    def fail(self):
        raise AssertionError("the kernel is made")

    monkeypatch.setattr(kp.SentencepieceTokenizer, "_made", fail)
    monkeypatch.setattr(kp.WordpieceTokenizer, "_make_tokenizer", fail)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(folder, str(folder), word)


def test_long_pieces_of_pairs():
    tokens = [*BYTES, "<s>", "</s>", "<pad>", "a" * 10**7]
    with pytest.raises(ValueError, match="index 259: 10,000,000 characters"):
        kp.BytePairTokenizer(tokens, merges=[])


@pytest.fixture
def few(monkeypatch):
    """The bounds of tensors and files, so low that tests are fast."""
    monkeypatch.setattr(tensors, "_MOST_TENSORS", 100)
    monkeypatch.setattr(tensors, "_MOST_FILES", 10)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("count", "words"), [(101, "101 tensors"), (11, "11 files")]
)
def test_an_index_of_more_than_models_have(folder, count, words):
    if count == 101:
        empty = np.zeros(0, "f4")
        save_file({f"t{n}": empty for n in range(count)}, folder / WEIGHTS)
        refused(folder, f"{WEIGHTS}' has {words}")
    files = {f"t{n}": f"{n}.safetensors" for n in range(count)}
    place(folder, INDEX).write_text(json.dumps({"weight_map": files}))
    refused(folder, f"{INDEX}' has {words}")


def test_tokens_that_texts_can_spell_are_found_at_once():
    """... and not each by a search through all of them."""
    words = [f"[w{number}]" for number in range(30_000)]
    start = time.process_time()
    kp.WordpieceTokenizer(
        [*SPECIAL, *words], normalization="bert", special_tokens=words
    )
    assert time.process_time() - start < MOST_SECONDS


class TestText:
    """What files hold is shown, and says nothing to a terminal."""

    EVIL = "\x1b]0;title\x07\x1b[2J\n\u202e"

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("config.json", {"hidden_act": EVIL}),
            ("modules.json", [{"type": EVIL}]),
            ("1/config.json", {EVIL: 1}),
            ("tokenizer_config.json", {"added_tokens_decoder": {"3": EVIL}}),
            (INDEX, {"weight_map": {"a": EVIL}}),
        ],
    )
    def test_json(self, folder, name, content):
        path = folder / name
        if name == "config.json":
            content = json.loads(path.read_text()) | content
        path.write_text(json.dumps(content))
        error = ValueError
        if name == INDEX:
            (folder / WEIGHTS).unlink()
            error = FileNotFoundError
        assert r"\x1b]0;title\x07" in refused(folder, error=error)

    def test_names_of_tensors(self, folder):
        path = folder / WEIGHTS
        save_file({**load_file(path), self.EVIL: np.ones(1, "f4")}, path)
        assert r"\x1b]0;title\x07" in refused(folder)
        changed(folder / "config.json", ["x" * 10**6], 1)
        assert refused(folder).endswith("…")

    @pytest.mark.parametrize(
        "name", ["config.json", "tokenizer.json", "tokenizer_config.json"]
    )
    def test_half_a_character(self, folder, name):
        (folder / name).write_text(r'{"smile": "\ud83d\ude00", "a": "\ud83d"}')
        refused(folder, name, r"'\ud83d', which is not text")
        (folder / name).write_text(r'{"smile": "\ud83d\ude00"}')
        assert Folder(folder).json(name) == {"smile": "\U0001f600"}

    def test_half_a_character_of_a_vocabulary(self):
        with pytest.raises(ValueError, match=r"index 5: '\\ud83d'"):
            kp.WordpieceTokenizer([*SPECIAL, "\ud83d"])


class TestNumbers:
    BROKEN = ("embeddings.LayerNorm.bias", "encoder.layer.1.output.dense.bias")

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("float16", np.nan),
            ("float32", np.inf),
            ("float64", -np.inf),
            ("float64", 1e39),  # which float32 makes infinite
        ],
    )
    def test_weights_that_are_not_finite(self, folder, dtype, value):
        path = folder / WEIGHTS
        tensors = {k: v.astype(dtype) for k, v in load_file(path).items()}
        for name in self.BROKEN:
            tensors[name][3] = value
        save_file(tensors, path)
        with pytest.warns(UserWarning, match="2 tensors hold NaN or ") as told:
            load(folder)
        (warning,) = told
        assert ", ".join(self.BROKEN) in str(warning.message)

    def test_the_largest_numbers(self, folder):
        path = folder / WEIGHTS
        tensors = dict(load_file(path))
        tensors[self.BROKEN[0]][:2] = [3.4e38, -3.4e38]
        save_file(tensors, path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load(folder)
