"""Ids of Hugging Face's library "tokenizers", from fixtures; files; refusals.

What every tokenizer keeps to is in `test_tokenizer_contract.py`.
"""

import copy
import itertools
import json
import random
import time
import zlib

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402
from keras_posenc.text import BytePairTokenizer  # noqa: E402
from keras_posenc.text.byte_pairs import BYTES, BytePairs  # noqa: E402
from tests.text.files import content  # noqa: E402

CONTENT = content("byte_pair")
TEXTS = content("tokenizer")["texts"] | CONTENT["texts"]
TOKENIZERS = CONTENT["tokenizers"]
TEXT = ["Hello, it's 12345  words\n\n of <mask> é", "한국어 x", ""]


@pytest.fixture
def make(tmp_path):
    def made(kind, changes=(), **arguments):
        said = copy.deepcopy(TOKENIZERS[kind]["json"])
        for path, value in dict(changes).items():
            *outer, last = path.split(".")
            part = said
            for key in outer:
                part = part[int(key) if key.isdigit() else key]
            part[last] = value
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(said), encoding="utf-8")
        if kind == "eurobert":  # which has none but its end symbol
            arguments.setdefault("pad_token", "<|mask|>")
        return BytePairTokenizer.from_tokenizer_json(path, **arguments)

    return made


@pytest.mark.parametrize("name", TOKENIZERS)
def test_parity(make, name):
    tokenizer = make(name)
    checksums = TOKENIZERS[name]["checksums"]
    expected = {
        text: checksum
        for category, each in checksums.items()
        for text, checksum in zip(TEXTS[category], each, strict=True)
    }
    texts = tf.constant(list(expected))
    rows = tf.function(tokenizer.split, autograph=False)(texts).to_list()
    found = {
        text: zlib.crc32(
            np.array(
                [tokenizer.start_id, *row, tokenizer.end_id], "<i4"
            ).tobytes()
        )
        for text, row in zip(expected, rows, strict=True)
    }
    assert len(found) > 3000
    assert [text for text in found if found[text] != expected[text]] == []
    # A few words are merged before there is a table of words.
    table = vars(tokenizer._pairs).pop("_whole")
    for some in (slice(at, None, 900) for at in range(9)):
        assert tokenizer.split(texts[some]).to_list() == rows[some]
    merges = not tokenizer._pairs._ignores_merges
    assert merges == ("_whole" not in vars(tokenizer._pairs))
    tokenizer._pairs._whole = table


class TestAsALayer:
    def test_export(self, make, tmp_path):
        tokenizer = make("modernbert")
        assert tokenizer.special_tokens[-1] == " [MASK]"
        text = keras.Input((), dtype="string", name="text")
        model = keras.Model(text, tokenizer(text))
        artifact = kp.export_saved_model(
            model, tmp_path / "served", verbose=False
        )
        assert artifact.report.passed
        found = kp.inspect_export(artifact.path)
        # Of the normalization, which others than ModernBERT do without.
        assert found.foreign_operators == ["NormalizeUTF8"]
        assert found.unsafe_operators == []

    @pytest.mark.parametrize("kind", ["roberta", "shuffled"])
    def test_detokenize(self, make, kind):
        tokenizer = make(kind)
        ids = tokenizer(TEXT)
        found = [text.decode() for text in tokenizer.detokenize(ids).numpy()]
        # The token takes the space before it.
        assert found == [TEXT[0].replace(" <mask>", "<mask>"), *TEXT[1:]]
        half = tokenizer.split(["x\U0010abcd"])[:, :-1]
        text = tokenizer.detokenize(half).numpy()[0].decode()
        assert text == "x\ufffd"

    def test_no_bytes_are_a_token_of_other_characters(self, make):
        """... even where a word that is a token stays one."""
        vocabulary = TOKENIZERS["eurobert"]["json"]["model"]["vocab"]
        usual = make("eurobert").split(["\u6771"])
        added = {**vocabulary, "\u6771": 1503}
        found = make("eurobert", {"model.vocab": added}).split(["\u6771"])
        assert found.to_list() == usual.to_list()

    def test_long_tokens_and_words(self):
        """... take neither a step of Python each, nor a loop at load."""
        ids = {character: i for i, character in enumerate(BYTES)}
        ids |= {"aa": 256, "a" * 50_000: 257}
        start = time.process_time()
        pairs = BytePairs(ids, ["a a"], False)
        words = ["a" * 12_000, "ab" * 6_000]
        for cut in pairs.cut, tf.function(pairs.cut):
            found = cut(tf.constant(words)).to_list()
            assert found == [[256] * 6_000, [ids["a"], ids["b"]] * 6_000]
        # 10 s and more at one of the two, by 20 ms for each step. (Of the
        # processor: others may use the machine.)
        assert time.process_time() - start < 6

    def test_long_words_merge_as_in_the_paper(self):
        """... whatever the order of merges, one pair after the other."""
        rng = random.Random(7)
        known, merges = ["a", "b", "c"], []
        while len(known) < 40:
            pair = rng.choice(known), rng.choice(known)
            if len("".join(pair)) < 20 and "".join(pair) not in known:
                known.append("".join(pair))
                merges.append(" ".join(pair))
        rng.shuffle(merges)
        ids = {
            token: i
            for i, token in enumerate({**BYTES, **dict.fromkeys(known)})
        }
        words = ["".join(rng.choices("abc", k=size)) for size in (64, 65, 500)]
        words += [token * 40 for token in known[-3:]]
        found = BytePairs(ids, merges, False).cut(tf.constant(words))
        ranks = {tuple(pair.split()): i for i, pair in enumerate(merges)}
        for word, tokens in zip(words, found.to_list(), strict=True):
            parts = list(word)
            while pairs := [
                (ranks[pair], i)
                for i, pair in enumerate(itertools.pairwise(parts))
                if pair in ranks
            ]:
                _, i = min(pairs)
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            assert tokens == [ids[part] for part in parts]

    def test_texts_forge_no_token_where_none_is_wanted(self, make):
        texts = ["<|mask|>", "<|end_of_text|>"]
        ids = make("eurobert").split(texts)
        assert ids.row_lengths().numpy().tolist() == [1, 1]
        ids = make("eurobert", special_tokens=()).split(texts)
        assert min(ids.row_lengths().numpy()) > 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"post_processor.cls": ["<s>", 7]}, "post_processor={'type'"),
            (
                {"padding": {"pad_token": "<pad>", "direction": "Left"}},
                "padding={",
            ),
            ({"model.dropout": 0.1}, "model.dropout=0.1"),
            ({"model.byte_fallback": True}, "model.vocab='no byte <0x00>'"),
            ({"model.end_of_word_suffix": "</w>"}, "end_of_word_suffix='</w>'"),
            ({"normalizer": {"type": "NFKC"}}, "normalizer={'type': 'NFKC'"),
            ({"pre_tokenizer": {"type": "Digits"}}, "pre_tokenizer={'type'"),
            ({"pre_tokenizer.use_regex": False}, "pre_tokenizer={'type'"),
            (
                {"added_tokens.0": {"content": "a"}},
                "not a complete tokenizer.json.*'id'",
            ),
        ],
    )
    def test_what_a_file_says_and_is_not_known(self, make, changes, match):
        if "added_tokens.0" in changes:
            changes = {"added_tokens": [changes["added_tokens.0"]]}
        with pytest.raises(ValueError, match=match):
            make("roberta", changes)

    def test_unknown_tokens_in_place_of_bytes(self, make):
        vocabulary = {**TOKENIZERS["roberta"]["json"]["model"]["vocab"]}
        vocabulary["no byte"] = vocabulary.pop(chr(256))  # of the byte 0
        without = {"model.vocab": vocabulary, "model.unk_token": None}
        assert make("roberta", without).split(["a\0"]).shape[0] == 1
        with pytest.raises(ValueError, match=r"model.unk_token='<unk>'"):
            make("roberta", {**without, "model.unk_token": "<unk>"})

    @pytest.mark.parametrize("text", ["{", "[" * 100_000])
    def test_no_json(self, tmp_path, text):
        path = tmp_path / "damaged.json"
        path.write_text(text)
        with pytest.raises(
            ValueError, match=r"damaged.json' is not a JSON file"
        ):
            BytePairTokenizer.from_tokenizer_json(path)

    @pytest.mark.parametrize(
        ("kind", "added"),
        [
            ("roberta", {"content": "\t", "lstrip": True}),
            # beside " <mask>"
            ("modernbert", {"content": "e\u0301q", "normalized": True}),
        ],
    )
    def test_tokens_around_white_space_and_marks(self, make, kind, added):
        told = TOKENIZERS[kind]["json"]["added_tokens"]
        flags = dict.fromkeys(
            ("single_word", "lstrip", "rstrip", "normalized"), False
        )
        token = {**flags, "id": 1 + max(e["id"] for e in told), **added}
        with pytest.raises(ValueError, match="added_tokens="):
            make(kind, {"added_tokens": [*told, token]})

    def test_another_expression(self, make):
        split = TOKENIZERS["eurobert"]["json"]["pre_tokenizer"]
        split = copy.deepcopy(split)
        split["pretokenizers"][0]["pattern"]["Regex"] = r"\s+"
        with pytest.raises(ValueError, match=r"pre_tokenizer=\{'type'"):
            make("eurobert", {"pre_tokenizer": split})

    def test_arguments(self, make):
        config = make("eurobert").get_config()
        for name, value, match in (
            ("pattern", "gpt9", "`pattern` must be 'gpt2', 'llama3', "),
            ("normalization", "nfd", "`normalization` must be None or 'nfc'"),
            ("pad_token", "[x]", r"Missing: \[x\]"),
            ("special_tokens", ["[y]"], r"Missing: \[y\]"),
            ("pad_token", "!", "neither bytes nor parts of `merges`"),
            ("merges", ["a bcd"], "`merges` must be of .*'a bcd'"),
            ("vocabulary", config["vocabulary"][9:], "the bytes of letters"),
        ):
            with pytest.raises(ValueError, match=match):
                BytePairTokenizer(**config | {name: value})
        with pytest.raises(FileNotFoundError, match="`path` must be a file"):
            BytePairTokenizer.from_tokenizer_json("none.json")
