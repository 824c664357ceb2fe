"""Word pieces against an oracle in plain Python; hard texts; learning.

What every tokenizer keeps to is in `test_tokenizer_contract.py`.
"""

import random
import sys
import time
import unicodedata

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
tensorflow_text = pytest.importorskip("tensorflow_text")

from keras_posenc.text import WordpieceTokenizer  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PAD, UNK, CLS, SEP = range(4)
WORDS = ["token", "##s", "##ize", "a", "b", "e", "f", "i", "!", "[", "]", "字"]
VOCABULARY = SPECIAL + WORDS
TEXTS = ["Tokens tokenize!", "a b", "", "[PAD] nothing", "字字 É"]


# The oracle: greedy longest match first (Wu et al. 2016, as BERT spells it),
# in plain Python.


def basic_words(text, lowercase):
    if lowercase:
        decomposed = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    words = [""]
    for c in text:
        category = unicodedata.category(c)
        # TF-Text: a control character counts as white space.
        if c.isspace() or category == "Cc":
            words.append("")
        elif category[0] == "P" or c in "$+<=>^`|~" or "一" <= c <= "鿿":
            words += [c, ""]
        else:
            words[-1] += c
    return [word for word in words if word]


def pieces_of(word, vocabulary):
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if prefix + word[start:end] in vocabulary:
                break
        else:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces if len(word.encode()) <= 100 else ["[UNK]"]


def oracle(text, vocabulary, lowercase=True):
    words = basic_words(text, lowercase)
    tokens = [piece for word in words for piece in pieces_of(word, vocabulary)]
    return ["[CLS]", *tokens, "[SEP]"]


def tokens_of(tokenizer, texts):
    rows = tokenizer(texts).numpy()
    return [[tokenizer.vocabulary[i] for i in row if i] for row in rows]


class TestAgainstTheOracle:
    @given(
        heads=st.sets(st.text("abc.", min_size=1, max_size=4), min_size=1),
        tails=st.sets(st.text("abc", min_size=1, max_size=4)),
        texts=st.lists(st.text("abcABC. ", max_size=20), max_size=5),
    )
    def test_any_vocabulary(self, heads, tails, texts):
        # A piece that no word can begin with leaves TF-Text nothing to match.
        pieces = sorted(heads | {"a"}) + [f"##{tail}" for tail in sorted(tails)]
        tokenizer = WordpieceTokenizer(SPECIAL + pieces)
        expected = [oracle(text, set(pieces)) for text in texts]
        assert tokens_of(tokenizer, texts) == expected

    @pytest.mark.parametrize("lowercase", [True, False])
    def test_any_script(self, lowercase):
        known = "abzéÉeüuñnçcøØλΩωЖжйи한漢字9!#$'()-[]_`~–“”¿、。🙂"
        letters = known + "кš語٣\u0301 \t\n\u00a0\u3000\0\x01\x7f" + "  "
        singles = sorted(set(known + unicodedata.normalize("NFD", known)))
        pieces = [*singles, *(f"##{c}" for c in singles), "ab", "##éz", "##ez"]
        tokenizer = WordpieceTokenizer(SPECIAL + pieces, lowercase=lowercase)

        @given(st.lists(st.text(letters, max_size=60), max_size=5))
        def check(texts):
            expected = [oracle(text, set(pieces), lowercase) for text in texts]
            assert tokens_of(tokenizer, texts) == expected

        check()


class TestHardTexts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ﬁ", ["[UNK]"]),  # two letters, "f" and "i", but no "##i"
            (b"a\xff b", ["[UNK]", "b"]),
            (b"\xed\xa0\x80 a", ["[UNK]", "a"]),  # half of a surrogate pair
            (b"a \xe5\xad", ["a", "[UNK]"]),  # a character cut short
            # a known head does not save the word
            # known as a tail only
            # Text cannot forge padding.
            ("[PAD]", ["[", "[UNK]", "]"]),
        ],
    )
    def test_tokens(self, text, expected):
        tokenizer = WordpieceTokenizer(VOCABULARY)
        assert tokens_of(tokenizer, [text]) == [["[CLS]", *expected, "[SEP]"]]

    def test_long_words_are_unknown_and_quick(self):
        tokenizer = WordpieceTokenizer([*VOCABULARY, "##a"])
        tokenizer(["a"])
        began = time.process_time()
        ids = tokenizer(["a" * 10_000 + " b", "a" * 101, "a" * 100]).numpy()
        assert time.process_time() - began < 1
        b, a, tail = (tokenizer.vocabulary.index(t) for t in ("b", "a", "##a"))
        assert ids[0, :5].tolist() == [CLS, UNK, b, SEP, PAD]
        assert ids[1, :4].tolist() == [CLS, UNK, SEP, PAD]
        assert ids[2].tolist() == [CLS, a, *[tail] * 99, SEP]


class TestOtherTokens:
    NAMES = {  # noqa: RUF012
        "start_token": "<s>",
        "pad_token": "<pad>",
        "end_token": "</s>",
        "unknown_token": "<unk>",
    }
    VOCABULARY = (*NAMES.values(), *WORDS)
    START, PAD, END, UNKNOWN = range(4)

    @pytest.mark.parametrize(
        ("special_tokens", "expected"),
        [(None, [[2, 3, 2, 1, 0]]), ((), None), (["<pad>"], None)],
    )
    def test_texts_spell_special_tokens(self, special_tokens, expected):
        tokenizer = WordpieceTokenizer(
            self.VOCABULARY,
            normalization="bert",
            special_tokens=special_tokens,
            **self.NAMES,
        )
        ids = tokenizer.split(["</s>c</s><pad><s>"]).to_list()
        if expected is None:
            pads = ids[0].count(self.PAD)
            assert pads == (special_tokens == ["<pad>"])
            assert {self.START, self.END}.isdisjoint(ids[0])
        else:
            assert ids == expected
        # Deleting makes no token of what was none.
        ids = tokenizer.split(["<\u200bpad>", "<p\x01ad>", "\x011\x01"])
        assert self.PAD not in ids.flat_values.numpy()


class TestLearn:
    def corpus(self):
        rng = random.Random(0)
        syllables = ["ka", "to", "ri", "mé", "ing", "ed", "字", "ль"]
        words = ["".join(rng.choices(syllables, k=3)) for _ in range(60)]
        return [" ".join(rng.choices(words, k=6)) for _ in range(200)]

    @pytest.mark.slow
    def test_same_words_same_vocabulary(self):
        corpus = self.corpus()
        vocabulary = WordpieceTokenizer.learn(corpus, 60).get_vocabulary()
        random.Random(1).shuffle(corpus)
        tensors = tf.data.Dataset.from_tensor_slices(corpus)
        for same in (iter(corpus), tensors, tensors.batch(7)):
            learned = WordpieceTokenizer.learn(same, 60).get_vocabulary()
            assert learned == vocabulary

    @pytest.mark.parametrize("size", [20, 32, 100])
    def test_size_is_a_bound_and_characters_survive(self, size):
        corpus = self.corpus()
        tokenizer = WordpieceTokenizer.learn(corpus, size)
        vocabulary = tokenizer.get_vocabulary()
        assert len(vocabulary) <= size
        assert vocabulary[:4] == SPECIAL
        characters = set("".join(basic_words(" ".join(corpus), True)))
        assert len(characters) == 14
        if size >= 4 + 2 * len(characters):
            assert characters | {f"##{c}" for c in characters} <= set(
                vocabulary
            )
            assert UNK not in tokenizer(corpus).numpy()
        if size == 100:
            assert len(vocabulary) > 80
            assert any(len(token) > 3 for token in vocabulary[4:])

    def test_merges_follow_the_counts(self):
        # By hand: "a##b" 3 times, "ab##c" 2, "##y##z" 1, as often as "x##y".
        tokenizer = WordpieceTokenizer.learn(["abc ab abc xyz"], 99)
        assert tokenizer.vocabulary[4 + 2 * 6 :] == ("ab", "abc", "##yz", "xyz")


@pytest.mark.parametrize(
    ("vocabulary", "arguments", "match"),
    [
        ([], {}, r"special tokens .* Received an empty vocabulary"),
        (WORDS, {}, r"Missing: \[PAD\], \[UNK\], \[CLS\], \[SEP\]\."),
        ([*VOCABULARY, "b", "token"], {}, r"more than once: 'token', 'b'\."),
        ([*VOCABULARY, *WORDS], {}, "'b' and 7 more"),
        ([*SPECIAL, "a", ""], {}, "non-empty strings.* index 5: ''"),
        (SPECIAL, {}, "TF-Text can use: No valid vocab tokens"),
        ("none.txt", {}, r"none\.txt'.* not a file"),
        (VOCABULARY, {"lowercase": 1}, "`lowercase` must be True or Fal"),
        (VOCABULARY, {"sequence_length": 1}, "at least 2, .*_length=1"),
        (VOCABULARY, {"sequence_length": 4.0}, "at least 2, .*_length=4.0"),
        (VOCABULARY, {"strip_accents": True}, "`strip_accents` needs norma"),
        (VOCABULARY, {"split_on_cjk": False}, "`split_on_cjk` needs normal"),
        (VOCABULARY, {"special_tokens": ()}, "`special_tokens` needs norma"),
        (VOCABULARY, {"normalization": "nfc"}, "must be 'tf_text', 'bert' or"),
        (VOCABULARY, {"normalization": "none"}, "`lowercase` must be False"),
        (
            VOCABULARY,
            {"normalization": "bert", "special_tokens": ["[X]"]},
            r"`special_tokens` must be in .* Received: '\[X\]'",
        ),
        (VOCABULARY, {"pad_token": "<pad>"}, "special tokens <pad>, .*Missin"),
    ],
)
def test_refuses(vocabulary, arguments, match):
    error = FileNotFoundError if vocabulary == "none.txt" else ValueError
    with pytest.raises(error, match=match):
        WordpieceTokenizer(vocabulary, **arguments)


@pytest.mark.parametrize(
    ("corpus", "size", "match"),
    [
        ("a text", 7, "Received one string: 'a text'"),
        ([1, 2], 7, "an element of type int"),
        (
            tf.data.Dataset.from_tensors({"a": "b"}),
            7,
            "element of type dict",
        ),
        (["", " \n"], 7, r"at least one word\. Received none"),
        (["ab ba"], 7, "none for vocabulary_size=7"),
        (["a"], 5, r"at least 6, .*vocabulary_size=5"),
    ],
)
def test_learning_refuses(corpus, size, match):
    with pytest.raises((TypeError, ValueError), match=match):
        WordpieceTokenizer.learn(corpus, size)


def test_learning_reads_words_as_the_normalization_does():
    # Decomposed, as this tokenizer reads it.
    tokenizer = WordpieceTokenizer.learn(
        ["한국어를 배운다"], 60, normalization="bert"
    )
    assert UNK not in tokenizer(["배운 한국다"]).numpy()


def test_a_file_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "vocabulary.txt"
    # A token may hold a character that `str.splitlines` breaks at.
    tokens = [*VOCABULARY, "x\u2028y"]
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8-sig")
    assert WordpieceTokenizer(str(path)).get_vocabulary() == tokens


def test_missing_tf_text(monkeypatch):
    for name in list(sys.modules):
        if name.startswith("tensorflow_text."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.raises(ImportError, match=r"pip install .* for Windows"):
        WordpieceTokenizer(VOCABULARY)


def test_other_backends_are_given_their_own_tensors(monkeypatch):
    # As on JAX, which takes no strings; `Layer.__call__` would refuse.
    tokenizer = WordpieceTokenizer(VOCABULARY)
    expected = tokenizer(TEXTS)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(
        keras.layers.Layer, "__call__", lambda *_: pytest.fail("called")
    )
    np.testing.assert_array_equal(tokenizer(TEXTS), expected)
    dataset = tf.data.Dataset.from_tensors(TEXTS).map(tokenizer)
    np.testing.assert_array_equal(next(iter(dataset)), expected)
