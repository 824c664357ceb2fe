"""Where in its text each token is.

The layers give ids alone. Here the ids of one text are traced back to its
characters, with what the kind of tokenizer keeps of them: the normalized
characters of each piece, the bytes, or SentencePiece's own offsets. What was
traced is compared with the ids and the text, so an index is exact or an error.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.bert_words import marked
from keras_posenc.text.byte_pair_tokenizer import BytePairTokenizer
from keras_posenc.text.files import shown
from keras_posenc.text.sentencepiece_tokenizer import SentencepieceTokenizer
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer
from keras_posenc.text.wordpiece_vocabulary import SUFFIX

Span = tuple[int, int]
# From a text and its ids to the span of each id; None where they do not fit.
Trace = Callable[[str, Sequence[int]], list[Span] | None]

# As in `byte_pair_words.WHITE`: Python's `\s` also has these four characters.
_WHITE = r"[^\S\x1c-\x1f]*"


def token_spans(
    tokenizer: Tokenizer, texts: Sequence[str]
) -> list[tuple[list[int], list[Span]]]:
    """Returns the ids of texts, and the characters of each id.

    A letter and its marks, or the parts of a Korean syllable, are never
    divided, even if tokens divide them: each such token has all of them.

    Args:
        tokenizer: A `WordpieceTokenizer` with `normalization="bert"`, a
            `BytePairTokenizer` or a `SentencepieceTokenizer`.
        texts: The texts.

    Returns:
        For each text its ids, without the start and the end, and for each id
        `(start, end)`: `text[start:end]` is what the token was made from, with
        white space around it perhaps.

    Raises:
        ValueError: The tokenizer is of another kind, or the tokens of a text
            cannot be traced back.
    """
    if isinstance(tokenizer, BytePairTokenizer):
        trace = _by_bytes(tokenizer)
    elif isinstance(tokenizer, SentencepieceTokenizer):
        trace = _by_offsets(tokenizer)
    elif (
        isinstance(tokenizer, WordpieceTokenizer)
        and tokenizer.normalization == "bert"
    ):
        trace = _by_words(tokenizer, texts)
    else:
        raise ValueError(
            "`tokenizer` must be a WordpieceTokenizer with "
            "normalization='bert', a BytePairTokenizer or a "
            "SentencepieceTokenizer, for its tokens to be found in the text. "
            f"Received: {type(tokenizer).__name__}"
        )
    found = []
    for text, ids in zip(
        texts, tokenizer.split([*texts]).to_list(), strict=True
    ):
        spans = trace(text, ids)
        if spans is None or len(spans) != len(ids):
            raise ValueError(
                "Tokens cannot be traced back to the text "
                f"{shown(text)}. Remove its unusual characters"
            )
        found.append((ids, spans))
    return found


def _clusters(text: str) -> Iterator[Span]:
    """Yields where characters are that normalization may join or reorder."""
    start = 0
    for index, character in enumerate(text):
        joins = (
            unicodedata.category(character)[0] == "M"
            or "\u1160" <= character <= "\u11ff"  # vowels and ends of Korean
        )
        if index and not joins:
            yield start, index
            start = index
    if text:
        yield start, len(text)


def _by_words(tokenizer: WordpieceTokenizer, texts: Sequence[str]) -> Trace:
    """Traces pieces: those of a word are its normalized characters."""
    special = {
        token: marked(index) for index, token in enumerate(tokenizer._spelled)
    }
    names = {*special.values()}
    clusters = {
        text[start:end]
        for text in texts
        for start, end in _clusters_between(text, special)
    }
    kinds = sorted({"", *clusters} - {*special})
    normal = {
        each: b"".join(words).decode()
        for each, words in zip(
            kinds, tokenizer.words(kinds).to_list(), strict=True
        )
    } | special

    words_of = dict(
        zip(texts, tokenizer.words([*texts]).to_list(), strict=True)
    )

    def trace(text: str, ids: Sequence[int]) -> list[Span] | None:
        characters = [
            (character, span)
            for span in _clusters_between(text, special)
            for character in normal[text[slice(*span)]]
        ]
        words = [x.decode() for x in words_of[text]]
        if "".join(words) != "".join(each for each, _ in characters):
            return None
        spans: list[Span] = []
        place = 0  # in `characters`
        for word in words:
            rest = len(word)
            while rest:
                if len(spans) == len(ids):
                    return None
                index = ids[len(spans)]
                size = len(tokenizer.vocabulary[index])
                if rest < len(word):
                    size -= len(SUFFIX)
                if word in names or index == tokenizer.unknown_id:
                    size = rest
                if not 0 < size <= rest:
                    return None
                of_token = [x for _, x in characters[place : place + size]]
                spans.append((of_token[0][0], of_token[-1][1]))
                place, rest = place + size, rest - size
        return spans

    return trace


def _clusters_between(text: str, tokens: Any) -> Iterator[Span]:
    """Yields the clusters of a text, in which some tokens are one each."""
    for start, end, is_token in _parts(text, map(re.escape, _longest(tokens))):
        if is_token:
            yield start, end
        else:
            for first, last in _clusters(text[start:end]):
                yield start + first, start + last


def _longest(tokens: Any) -> list[str]:
    return sorted(tokens, key=lambda token: -len(token))


def _parts(text: str, expressions: Any) -> Iterator[tuple[int, int, bool]]:
    """Yields the parts of a text: start, end, and whether it is a token."""
    expression, at = "|".join(expressions), 0
    for match in re.finditer(expression, text) if expression else ():
        yield at, match.start(), False
        yield match.start(), match.end(), True
        at = match.end()
    yield at, len(text), False


def _by_bytes(tokenizer: BytePairTokenizer) -> Trace:
    """Traces tokens: they are the bytes of the text."""
    named = {
        tokenizer.vocabulary.index(token.strip() or token): token
        for token in (*tokenizer.special_tokens, *tokenizer.added_tokens)
    }
    composes = tokenizer.normalization is not None

    def trace(text: str, ids: Sequence[int]) -> list[Span] | None:
        units: Any = ((i, i + 1) for i in range(len(text)))
        if composes and not unicodedata.is_normalized("NFC", text):
            units = _clusters(text)
        data, places = bytearray(), []
        for start, end in units:
            unit = text[start:end]
            if composes:
                unit = unicodedata.normalize("NFC", unit)
            data += unit.encode()
            places += [(start, end)] * len(unit.encode())
        spans: list[Span] = []
        at, is_first = 0, True
        for index in ids:
            spelled = tokenizer._spelled[index]
            start = at
            if index in named:
                if named[index].startswith(" ") and named[index].strip():
                    white = re.match(_WHITE, data[at:].decode())
                    at += len(white[0].encode()) if white else 0
            elif (
                is_first
                and tokenizer.add_prefix_space
                and data[at : at + 1] != b" "
            ):
                spelled = spelled[1:]  # the space that was added
            if data[at : at + len(spelled)] != spelled:
                return None
            at, is_first = at + len(spelled), index in named
            here = places[start:at] or [(_end(spans),) * 2]
            spans.append((here[0][0], here[-1][1]))
        return spans if at == len(data) else None

    return trace


def _end(spans: Sequence[Span]) -> int:
    return spans[-1][1] if spans else 0


def _by_offsets(tokenizer: SentencepieceTokenizer) -> Trace:
    """Traces pieces: the slower of TF-Text's tokenizers knows offsets."""
    slow = _with_offsets(tokenizer.model)
    names = {token.removeprefix(" "): token for token in tokenizer._special}

    def trace(text: str, ids: Sequence[int]) -> list[Span] | None:
        white = {c for c in text if c in "\t\n\f\r\x85" or _is_separator(c)}
        some = "".join(map(re.escape, sorted(white | {" "})))
        expressions = [
            f"[{some}]*" * names[name].startswith(" ") + re.escape(name)
            for name in _longest(names)
        ]
        found: list[int] = []
        spans: list[Span] = []
        for start, end, is_token in _parts(text, expressions):
            if is_token:
                name = names[text[start:end].lstrip("".join(white) + " ")]
                found.append(tokenizer._special[name])
                spans.append((start, end))
                continue
            read, places = _read(tokenizer, text[start:end], white)
            pieces, *edges = slow.tokenize_with_offsets(read)
            # From bytes to characters, of which the last one has an end.
            index = [i for i, c in enumerate(read) for _ in c.encode()]
            index.append(len(read))
            places.append((end - start, end - start))
            for piece, first, last in zip(
                *(each.numpy().tolist() for each in (pieces, *edges)),
                strict=True,
            ):
                found.append(piece)
                begin = start + places[index[first]][0]
                stop = begin
                if last > first:
                    stop = start + places[index[last - 1]][1]
                spans.append((begin, stop))
        return _as_cut(tokenizer, ids, found, spans)

    return trace


def _as_cut(
    tokenizer: SentencepieceTokenizer,
    ids: Sequence[int],
    found: Sequence[int],
    spans: Sequence[Span],
) -> list[Span] | None:
    """Returns the spans of ids from those of other ids of the same text.

    The two tokenizers of TF-Text differ where ways to cut are equally likely,
    as in a run of dashes. There each piece has the characters of all.
    """
    length = [len(piece) for piece in tokenizer.vocabulary]
    result: list[Span] = []
    first = other = 0
    while first < len(ids) and other < len(found):
        end, other_end = first + 1, other + 1
        ahead = length[ids[first]] - length[found[other]]
        while ahead:
            if end == len(ids) if ahead < 0 else other_end == len(found):
                return None
            if ahead < 0:
                ahead += length[ids[end]]
                end += 1
            else:
                ahead -= length[found[other_end]]
                other_end += 1
        pieces, others = ids[first:end], found[other:other_end]
        if [*pieces] != [*others] and tokenizer.unknown_id in [
            *pieces,
            *others,
        ]:
            return None  # its length is not that of its characters
        result += [(spans[other][0], spans[other_end - 1][1])] * len(pieces)
        first, other = end, other_end
    return result if (first, other) == (len(ids), len(found)) else None


def _read(
    tokenizer: SentencepieceTokenizer, text: str, white: set[str]
) -> tuple[str, list[Span]]:
    """Returns a text as the model gets it, and where its characters are."""
    kept = [(c, (i, i + 1)) for i, c in enumerate(text)]
    mode = tokenizer.whitespace
    if mode in ("collapse", "keep"):
        deleted, white = map(
            _characters, (tokenizer._deleted, tokenizer._white)
        )
        kept = [(c, span) for c, span in kept if c not in deleted]
    white = white | {" "}
    if mode in ("collapse", "split"):
        kept = [
            (" " if c in white else c, span)
            for i, (c, span) in enumerate(kept)
            if not (i and {c, kept[i - 1][0]} <= white)
        ]
    if mode in ("collapse", "keep") and kept and kept[0][0] in white:
        del kept[0]  # this is the space that the model adds first
    return "".join(c for c, _ in kept), [span for _, span in kept]


def _characters(codes: str) -> set[str]:
    """Returns the characters of a regular expression's class, of RE2."""
    return {chr(int(code, 16)) for code in re.findall(r"\{(\w+)\}", codes)}


def _is_separator(character: str) -> bool:
    return unicodedata.category(character)[0] == "Z"


@functools.lru_cache(maxsize=2)
def _with_offsets(model: bytes) -> Any:
    tensorflow_text = import_tensorflow_text("SentencepieceTokenizer")
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        return tensorflow_text.SentencepieceTokenizer(model)
