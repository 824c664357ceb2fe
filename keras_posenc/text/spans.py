"""The characters of each token in its text.

The layers give ids alone. Here the ids of one text are traced back to its
characters, with what the kind of tokenizer keeps of them: the normalized
characters of each piece, the bytes, or SentencePiece's own offsets. What was
traced is compared with the ids and the text, and an error if it does not fit.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.bert_words import marked
from keras_posenc.text.byte_pair_tokenizer import BytePairTokenizer
from keras_posenc.text.files import shown
from keras_posenc.text.sentencepiece_model import Rules
from keras_posenc.text.sentencepiece_tokenizer import SentencepieceTokenizer
from keras_posenc.text.spelled_tokens import spelling
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer
from keras_posenc.text.wordpiece_vocabulary import SUFFIX

Span = tuple[int, int]
# From a text and its ids to the span of each id; None where they do not fit.
Trace = Callable[[str, Sequence[int]], list[Span] | None]

# As in `byte_pair_words.WHITE`: Python's `\s` also has these four characters.
_WHITE = r"[^\S\x1c-\x1f]*"
_KOREAN = r"[\u1100-\u115f\uac00-\ud7a3][\u1160-\u11ff]"
_KOREAN += r"|[\u1160-\u11a7][\u11a8-\u11ff]"
# What graphemes.py counts as marks too.
_JOINERS = "\u200c\u200d\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd"
_JOINERS += "\U0001f3fe\U0001f3ff"


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
        white space around it perhaps, and what the tokenizer deletes.

    Raises:
        ValueError: The tokenizer is of another kind, or the tokens of a text
            cannot be traced back.
    """
    if isinstance(tokenizer, BytePairTokenizer):
        trace = _by_bytes(tokenizer)
    elif isinstance(tokenizer, SentencepieceTokenizer):
        trace = _by_offsets(tokenizer, texts)
    elif (
        isinstance(tokenizer, WordpieceTokenizer)
        and tokenizer.normalization == "bert"
    ):
        trace = _by_words(tokenizer, texts)
    else:
        received = type(tokenizer).__name__
        if isinstance(tokenizer, WordpieceTokenizer):
            received += f" with normalization={tokenizer.normalization!r}"
        raise ValueError(
            "`tokenizer` must be a WordpieceTokenizer with "
            "normalization='bert', a BytePairTokenizer or a "
            "SentencepieceTokenizer, for its tokens to be found in the text. "
            f"Received: {received}"
        )
    found = []
    for text, ids in zip(
        texts, tokenizer.split([*texts]).to_list(), strict=True
    ):
        spans = trace(text, ids)
        if spans is None or len(spans) != len(ids):
            raise _untraced(text)
        found.append((ids, spans))
    return found


def _clusters(text: str, joiners: str = "") -> Iterator[Span]:
    """Yields where characters are that normalization may join or reorder."""
    start = 0
    for index, character in enumerate(text):
        joins = (
            unicodedata.category(character)[0] == "M"
            or character in joiners
            # Vowels and ends of Korean, where they have a syllable.
            or re.search(_KOREAN, text[max(index - 1, 0) : index + 1])
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
    # These are found in what the clusters become, where white space is lost.
    added = {
        marked(len(special) + index): "".join(token.split())
        for index, token in enumerate(tokenizer.normalized_tokens())
    }
    names = {*special.values(), *added}
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
        spelled = [added.get(word, word) for word in words]
        if "".join(spelled) != "".join(each for each, _ in characters):
            return None
        spans: list[Span] = []
        place = 0  # in `characters`
        for word, letters in zip(words, spelled, strict=True):
            rest = len(letters)
            while rest:
                if len(spans) == len(ids):
                    return None
                index = ids[len(spans)]
                size = len(tokenizer.vocabulary[index])
                if rest < len(letters):
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
        tokenizer.vocabulary.index(spelling(token)): token
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


class _Part(NamedTuple):
    """Characters of a text, with their spans; perhaps one token, of an id."""

    source: str
    characters: list[tuple[str, Span]]
    token: int | None = None

    @property
    def text(self) -> str:
        return "".join(c for c, _ in self.characters)


def _by_offsets(
    tokenizer: SentencepieceTokenizer, texts: Sequence[str]
) -> Trace:
    """Traces pieces: the slower of TF-Text's tokenizers knows offsets.

    They are in the text that it gets. Up to there, the layer's own steps change
    the text cluster by cluster, and each character keeps its cluster's span.
    """
    parts = [
        _Part(text, [(c, (i, i + 1)) for i, c in enumerate(text)])
        for text in dict.fromkeys(texts)
    ]
    for step in tokenizer.steps():
        change = _changed if callable(step) else _around
        parts = change(parts, step)
    if tokenizer.whitespace in ("collapse", "keep"):
        parts = _without_first_space(parts, tokenizer)
    slow, rules = _with_offsets(tokenizer.model)
    numbers = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    found: dict[str, tuple[list[int], list[Span]]] = {
        text: ([], []) for text in texts
    }
    read = [part.text for part in parts]
    for part, *tokens in zip(
        parts,
        *(each.to_list() for each in slow.tokenize_with_offsets(read)),
        strict=True,
    ):
        ids, spans = found[part.source]
        # Of each byte.
        places = [span for c, span in part.characters for _ in c.encode()]
        if part.token is not None:
            ids.append(part.token)
            spans.append((places[0][0], places[-1][1]))
            continue
        # TF-Text ends a piece before what becomes its last character, if that
        # becomes several, as ½ does.
        letters = [
            each for each in rules.applied(part.text) if each[0] not in " ▁"
        ]
        pieces = [piece.decode() for piece in tokens[0]]
        if "".join(pieces).replace("▁", "") != "".join(c for c, _ in letters):
            raise _untraced(part.source)
        count = 0
        for piece, first, last in zip(pieces, *tokens[1:], strict=True):
            if text := piece.replace("▁", ""):
                count += len(text)
                last = max(last, letters[count - 1][1])
            index = numbers.get(piece, tokenizer.unknown_id)
            at = places[first][0] if first < len(places) else _end(spans)
            here = places[first:last] or [(at, at)]
            ids.append(index)
            spans.append((here[0][0], here[-1][1]))

    def trace(text: str, ids: Sequence[int]) -> list[Span] | None:
        return _as_cut(tokenizer, ids, *found[text])

    return trace


def _around(parts: list[_Part], ids: Mapping[str, int]) -> list[_Part]:
    """Returns parts in which tokens are spelled, divided at these tokens."""
    names = {spelling(token): token for token in ids}
    expressions = [
        _WHITE * (names[name] != name) + re.escape(name)
        for name in _longest(names)
    ]
    divided = []
    for part in parts:
        if part.token is not None:
            divided.append(part)
            continue
        for start, end, is_token in _parts(part.text, expressions):
            here = part.characters[start:end]
            index = None
            if is_token:
                text = part.text[start:end]
                index = ids[names[text if text in names else text.lstrip()]]
            divided.append(_Part(part.source, here, index))
    return divided


def _changed(parts: list[_Part], change: Callable[[Any], Any]) -> list[_Part]:
    """Returns parts with the texts that `change` makes of theirs.

    Raises:
        ValueError: What it makes of clusters is not what it makes of the whole.
    """
    texts = sorted({part.text for part in parts if part.token is None})
    whole = _results(change, texts)
    units = {text: [*_clusters(text, _JOINERS)] for text in texts}
    alone = _inside(
        change, {text[a:b] for text in texts for a, b in units[text]}
    )
    runs = {text: [*_runs(text, units[text], alone)] for text in texts}
    joined = _inside(
        change,
        {text[run[0][0] : run[-1][1]] for text in texts for run in runs[text]},
    )
    changed = []
    for part in parts:
        if part.token is not None:
            changed.append(part)
            continue
        characters: list[tuple[str, Span]] = []
        for run in runs[part.text]:
            start, end = run[0][0], run[-1][1]
            results = [alone[part.text[a:b]] for a, b in run]
            together = joined[part.text[start:end]]
            if "".join(results) != together:
                run, results = [(start, end)], [together]
            for (first, last), result in zip(run, results, strict=True):
                begin, (_, stop) = (
                    part.characters[i][1] for i in (first, last - 1)
                )
                characters += [(c, (begin[0], stop)) for c in result]
        text = "".join(c for c, _ in characters)
        expected = whole[part.text]
        # White space at the ends may be removed.
        at = text.find(expected)
        stop = at + len(expected)
        if at < 0 or (text[:at] + text[stop:]).strip():
            raise _untraced(part.source)
        changed.append(_Part(part.source, characters[at:stop]))
    return changed


def _runs(
    text: str, units: Iterable[Span], results: Mapping[str, str]
) -> Iterator[list[Span]]:
    """Yields units that may change together: white space, pairs of quotes."""
    run: list[Span] = []
    is_blank = False
    for start, end in units:
        result = results[text[start:end]]
        starts_blank = not result[:1].strip()
        is_pair = run and text[run[0][0] : start + 1] in ("''", "``")
        if run and not (is_pair or (is_blank and starts_blank)):
            yield run
            run = []
        run.append((start, end))
        is_blank = not result.strip()
    if run:
        yield run


def _results(
    change: Callable[[Any], Any], texts: Sequence[str]
) -> dict[str, str]:
    if not texts:
        return {}
    import tensorflow as tf

    results = change(tf.constant([*texts])).numpy().tolist()
    return {
        text: result.decode()
        for text, result in zip(texts, results, strict=True)
    }


def _inside(
    change: Callable[[Any], Any], texts: Iterable[str]
) -> dict[str, str]:
    """Returns what texts become between others, here between digits."""
    results = _results(change, [f"0{text}0" for text in texts])
    return {text[1:-1]: result[1:-1] for text, result in results.items()}


def _without_first_space(
    parts: list[_Part], tokenizer: SentencepieceTokenizer
) -> list[_Part]:
    """Returns parts without what the model adds first again."""
    import tensorflow as tf

    results = _results(
        lambda texts: tf.strings.regex_replace(
            texts, tokenizer.first_space, ""
        ),
        [part.text for part in parts],
    )
    read = []
    for part in parts:
        if part.token is None and (kept := results[part.text]) != part.text:
            part = (
                _Part(
                    part.source,
                    part.characters[len(part.text) - len(kept) :],
                )
                if kept
                else part._replace(token=tokenizer.space_id)
            )
        read.append(part)
    return read


def _untraced(text: str) -> ValueError:
    return ValueError(
        "Tokens cannot be traced back to the text "
        f"{shown(text)}. Remove its unusual characters"
    )


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


@functools.lru_cache(maxsize=2)
def _with_offsets(model: bytes) -> Any:
    tensorflow_text = import_tensorflow_text("SentencepieceTokenizer")
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU:0"):
        slow = tensorflow_text.SentencepieceTokenizer(model, out_type=tf.string)
    return slow, Rules(model)
