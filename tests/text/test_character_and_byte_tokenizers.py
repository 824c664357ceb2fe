"""Characters and bytes as tokens, and the way back of every tokenizer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_posenc.text import (  # noqa: E402
    ByteTokenizer,
    CharacterTokenizer,
    WordpieceTokenizer,
)

PAD, UNKNOWN, START, END, FIRST = range(5)
WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "##", "c", "."]
CHARACTERS = "월일0123 aé🙂\ufffd\0\u2028\ufeff"
TOKENIZERS = {
    "character": lambda: CharacterTokenizer(CHARACTERS),
    "byte": ByteTokenizer,
    "wordpiece": lambda: WordpieceTokenizer(WORDPIECES),
}
# Lone surrogates have no UTF-8.
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5)
BYTES = st.lists(st.binary(max_size=12), max_size=5)


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def strings(texts):
    return [text.decode() for text in texts.numpy()]


def framed(rows, length, add_start=True, add_end=True):
    """Ids by their definition: start, what there is room for, end, padding."""
    room = None if length is None else length - add_start - add_end
    rows = [[START] * add_start + row[:room] + [END] * add_end for row in rows]
    width = max(map(len, rows), default=add_start + add_end)
    width = width if length is None else length
    return [row + [PAD] * (width - len(row)) for row in rows]


def code_points(text):
    """Ids of `CHARACTERS` by their definition, of a text or of any bytes."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return [
        FIRST + CHARACTERS.index(c) if c in CHARACTERS else UNKNOWN
        for c in text
    ]


@pytest.mark.parametrize(
    ("length", "frame"),
    [
        (None, {"add_start": True, "add_end": False}),
        (2, {"add_start": True, "add_end": True}),
        (7, {"add_start": False, "add_end": True}),
        (7, {"add_start": False, "add_end": False}),
    ],
)
def test_ids_are_those_of_the_definition(frame, length):
    characters = CharacterTokenizer(CHARACTERS, sequence_length=length, **frame)
    octets = ByteTokenizer(sequence_length=length, **frame)

    @given(st.lists(st.text(CHARACTERS + "xß字", max_size=9), max_size=4))
    def check(texts):
        ids = characters(texts)
        assert ids.dtype == "int32"
        rows = [code_points(text) for text in texts]
        assert ids.numpy().tolist() == framed(rows, length, **frame)
        rows = [[FIRST + b for b in text.encode()] for text in texts]
        ids = octets(texts).numpy().tolist()
        assert ids == framed(rows, length, **frame)

    check()


@given(TEXTS)
def test_any_text_returns(texts):
    assert strings(ByteTokenizer().detokenize(ByteTokenizer()(texts))) == texts
    if any(texts):
        learned = CharacterTokenizer.learn(texts)
        assert strings(learned.detokenize(learned(texts))) == texts
    known = CharacterTokenizer(CHARACTERS)
    assert strings(known.detokenize(known(texts))) == [
        "".join(c if c in CHARACTERS else "\ufffd" for c in text)
        for text in texts
    ]


@given(BYTES)
def test_any_bytes_have_ids_and_come_back_as_utf8(texts):
    ids = ByteTokenizer()(texts)
    rows = [[FIRST + b for b in text] for text in texts]
    assert ids.numpy().tolist() == framed(rows, None)
    valid = [text.decode(errors="replace") for text in texts]
    assert strings(ByteTokenizer().detokenize(ids)) == valid
    ids = CharacterTokenizer(CHARACTERS)(texts).numpy().tolist()
    assert ids == framed([code_points(text) for text in texts], None)


# ---- The way back, of all three


def test_nothing_counts_from_the_end_on(tokenizer):
    rng = np.random.default_rng(0)
    size = tokenizer.vocabulary_size()
    ids = rng.integers(0, size, (20, 6))
    ids[ids == tokenizer.end_id] = tokenizer.unknown_id
    bare = tokenizer.detokenize(ids).numpy()
    end = np.full((20, 1), tokenizer.end_id)
    # Out of range too, as what a buffer held before.
    behind = rng.integers(-5, size + 5, (20, 4))
    ended = np.concatenate([ids, end, behind], 1)
    assert tokenizer.detokenize(ended).numpy().tolist() == bare.tolist()
    kept = [
        [i for i in row if i not in (PAD, tokenizer.start_id)] for row in ids
    ]
    ragged = tf.ragged.constant(kept, dtype="int64")
    assert tokenizer.detokenize(ragged).numpy().tolist() == bare.tolist()


def test_refuses_what_are_no_ids(tokenizer):
    size = tokenizer.vocabulary_size()
    for wrong in (-1, size):
        with pytest.raises(ValueError, match=f"{size}.*Received: {wrong}"):
            tokenizer.detokenize([[UNKNOWN, wrong]])
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.function(tokenizer.detokenize)(tf.constant([[wrong]]))
    with pytest.raises(ValueError, match=r"integers.*float32, shape=\(1, 1\)"):
        tokenizer.detokenize(np.ones((1, 1), "float32"))
    wide = np.array([[2**32 + UNKNOWN]])  # UNKNOWN again, if cut to 32 bits
    with pytest.raises(ValueError, match=f"{size}.*Received: {wide[0, 0]}"):
        tokenizer.detokenize(wide)
    with pytest.raises(ValueError, match=r"or a ragged tensor.*\[\[4\], \[\]"):
        tokenizer.detokenize([[4], []])
    with pytest.raises(ValueError, match=r"integers.*shape=\(\)"):
        tokenizer.detokenize(np.int32(1))


@given(
    st.lists(
        st.lists(st.integers(0, len(WORDPIECES) - 1), min_size=3, max_size=3)
    )
)
def test_wordpieces_are_joined_as_their_tokens_say(rows):
    texts = []
    for row in rows:
        words = []
        for token in (WORDPIECES[i] for i in row):
            if token == "[SEP]":
                break
            if token in ("[PAD]", "[CLS]"):
                continue
            if words and token.startswith("##"):
                words[-1] += token[2:]
            else:
                words.append(token)
        texts.append(" ".join(words))
    ids = np.array(rows, int).reshape(-1, 3)
    found = TOKENIZERS["wordpiece"]().detokenize(ids)
    assert strings(found) == texts


# ---- Vocabularies


def test_learned_characters_are_the_most_frequent_in_any_order():
    texts = ["bbb", b"aa\xff", "ccd"]
    learned = CharacterTokenizer.learn(texts)
    assert learned.get_vocabulary() == ["a", "b", "c", "d", "\ufffd"]
    for size, kept in ((5, "b"), (6, "ab"), (7, "abc"), (8, "abcd")):
        for corpus in (
            texts,
            texts[::-1],
            tf.data.Dataset.from_tensor_slices(texts),
            tf.data.Dataset.from_tensor_slices(texts).batch(2),
        ):
            learned = CharacterTokenizer.learn(corpus, size, add_start=False)
            assert "".join(learned.vocabulary) == kept
            assert learned.vocabulary_size() == size
            assert not learned.add_start


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: CharacterTokenizer(""), ValueError, "empty vocabulary"),
        (lambda: CharacterTokenizer(["ab"]), ValueError, "index 0: 'ab'"),
        (lambda: CharacterTokenizer(["a", 1]), ValueError, "index 1: 1"),
        (lambda: CharacterTokenizer("a\ud800"), ValueError, "UTF-8 can spell"),
        (lambda: CharacterTokenizer("aba"), ValueError, "than once: 'a'"),
        (lambda: CharacterTokenizer.learn("ab"), TypeError, "one string: 'ab'"),
        (
            lambda: CharacterTokenizer.learn(["a"], 4),
            ValueError,
            "at least 5.*=4",
        ),
        (
            lambda: ByteTokenizer(sequence_length=0, add_end=False),
            ValueError,
            "at least 1.*sequence_length=0",
        ),
        (lambda: ByteTokenizer(add_end=1), ValueError, "`add_end` must be"),
    ],
)
def test_refuses(make, error, match):
    with pytest.raises(error, match=match):
        make()
