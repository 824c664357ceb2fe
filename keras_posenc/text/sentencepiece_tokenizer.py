"""SentencePiece tokenization as a layer."""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_bool, check_choice
from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.byte_pair_words import WHITE
from keras_posenc.text.files import read_bytes
from keras_posenc.text.graphemes import character_class, grapheme_rules
from keras_posenc.text.lookup import Lookup
from keras_posenc.text.normalization_steps import GRAPHEMES, STEPS
from keras_posenc.text.sentencepiece_model import Rules, pieces_of
from keras_posenc.text.spelled_tokens import ids_around, spelling, starts_with
from keras_posenc.text.tokenizer_file import (
    FALLBACK,
    PIECES,
    existing,
    of_sentencepiece,
    read_file,
)

# The mark of the start of a word.
_SPACE = "▁"
# Without the character that most models' rules delete before texts are split.
_MOST_WHITE = r"\s\pZ\x{85}"
_BLANK = rf"[{WHITE}\x{{1c}}-\x{{1f}}]+"  # as Python's `strip`
# A language at the start of a text, as Marian's tokenizers know it.
_CODE = r"(?s)\A(>>.*?<<)?(.*)\z"
# What Hugging Face's `clean_up_tokenization` replaces, in this order.
_CLEANED = [
    *((rf" \{mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
]
_CLEANABLE = [pattern.replace("\\", "") for pattern, _ in _CLEANED]


@keras.saving.register_keras_serializable(package="keras_posenc")
class SentencepieceTokenizer(Tokenizer):
    """Turns strings into ids of a SentencePiece model, inside the model.

    >>> from keras_posenc import SentencepieceTokenizer
    >>> tokenizer = SentencepieceTokenizer.from_tokenizer_json(
    ...     "multilingual-e5-small/tokenizer.json"
    ... )  # doctest: +SKIP
    >>> tokenizer(["query: 안녕하세요"])  # doctest: +SKIP

    The Unigram models of XLM-R, multilingual E5, T5 and others, and BPE with a
    fallback to bytes as in Llama 2 and Gemma, from a `.model` file of
    SentencePiece or, by `from_tokenizer_json`, from Hugging Face's
    `tokenizer.json`. The two may number the same pieces differently:
    `<s>`, `<pad>`, `</s>` and `<unk>` are 0 to 3 in the latter file of XLM-R,
    and pretrained models of Hugging Face know those ids.

    Inputs, outputs, mask, config and backends are as for `WordpieceTokenizer`.
    `detokenize` returns texts, up to the first end, with `<unk>` for unknown
    characters.

    Args:
        model: the path of a `.model` file, read at once, or its bytes.
        sequence_length: as for `WordpieceTokenizer`, as are the next two.
        max_length: the most ids of a text, where that is None.
        num_separators: for pairs of texts.
        start_token: the piece before each text, or None for none.
        end_token: the piece after each text, or None for none.
        pad_token: the piece of padding; None pads with -1, for models of
            `pad_id=-1`, where every piece is one of a text.
        special_tokens: pieces that become one id wherever a text contains
            them; the parts before and after are tokenized separately. One with
            a space in front, `" <mask>"`, also takes all white space there.
        added_tokens: as `special_tokens`, but found after the steps of
            `normalization`: with `"lowercase"`, `<unk>` is found in `<UNK>`
            too.
        normalization: steps before the model's own rules, in this order:
            `"lowercase"`, `"nfc"`, `"nfd"`, `"nfkc"`, `"nfkd"`,
            `"strip_accents"`; `"backticks"` and `"apostrophes"` make a quote of
            two of them; `"spaces"` makes a space of a line end, a tab or
            several spaces; `"strip"` and `"strip_right"` remove white space at
            the ends; `"graphemes"` applies the model's rules to letters with
            marks as Hugging Face's library does.
        whitespace: `"model"` reads white space as the model says, `"split"`
            splits at all of Unicode's white space, `"collapse"` makes several
            spaces one and keeps the last, `"keep"` keeps all. `"first"` is
            `"model"` with a space before a text that starts without one,
            `"always"` with one before each part around special tokens.
        skipped_tokens: pieces that `detokenize` leaves out, such as those that
            mark the turns of a chat.
        language_token: the piece after the end of each text, as in mBART, or
            None for none.
        clean_up_spaces: whether `detokenize` removes spaces before marks and
            in English contractions, as Hugging Face's
            `clean_up_tokenization_spaces` does.
        vocabulary: tokens in the order of their ids, where these are not the
            model's pieces: those of Marian's `vocab.json`. A piece that is not
            among them is unknown, and `>>fra<<` at the start of a text is one.
        **kwargs: Keras' `name` and the like.

    Raises:
        FileNotFoundError: if `model` is a path with no file.
        ValueError: if the model is invalid, or neither Unigram nor BPE; or if a
            token is not a piece.

    References:
        - Kudo 2018, [Subword Regularization](https://arxiv.org/abs/1804.10959)
        - Kudo and Richardson 2018, [SentencePiece](
          https://arxiv.org/abs/1808.06226)
    """

    vocabulary: Sequence[str]

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        num_separators: int | None = None,
        start_token: str | None = "<s>",
        end_token: str | None = "</s>",
        pad_token: str | None = "<pad>",
        special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        normalization: Sequence[str] = (),
        whitespace: str = "model",
        skipped_tokens: Sequence[str] = (),
        language_token: str | None = None,
        clean_up_spaces: bool = False,
        vocabulary: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        # First: the base checks lengths against `frame`, which needs them.
        self.start_token, self.end_token = start_token, end_token
        self.language_token = language_token
        super().__init__(
            sequence_length=sequence_length,
            max_length=max_length,
            num_separators=num_separators,
            **kwargs,
        )
        if not isinstance(model, bytes):
            model = read_bytes(existing(model, "model"))
        self.model = model
        read = pieces_of(self.model)
        pieces, self.unknown_id = read.pieces, read.unknown
        self._is_plain = read.is_plain and vocabulary is None
        self._lookup = None
        if vocabulary is not None:
            pieces = [*vocabulary]
        # Of a piece that occurs twice the first one counts.
        ids = {piece: i for i, piece in reversed([*enumerate(pieces)])}
        if vocabulary is not None:
            unknown = read.pieces[read.unknown]
            self.unknown_id = _id_of(ids, "vocabulary", unknown)
            self._lookup = Lookup(ids, self.unknown_id)
        # Past Keras, which looks at each item to track it: for seconds.
        object.__setattr__(self, "vocabulary", tuple(pieces))
        self.pad_token = pad_token
        self.special_tokens = tuple(special_tokens)
        self.added_tokens = tuple(added_tokens)
        self.normalization = tuple(
            check_choice("normalization", step, (*STEPS, GRAPHEMES))
            for step in normalization
        )
        self.whitespace = check_choice(
            "whitespace",
            whitespace,
            ("model", "split", "collapse", "keep", "first", "always"),
        )
        self.skipped_tokens = tuple(skipped_tokens)
        self.clean_up_spaces = check_bool("clean_up_spaces", clean_up_spaces)
        # A token that is None has no id.
        self.start_id, self.end_id, self.language_id, self.pad_id = (
            -1 if token is None else _id_of(ids, name, token)
            for name, token in (
                ("start_token", start_token),
                ("end_token", end_token),
                ("language_token", language_token),
                ("pad_token", pad_token),
            )
        )
        self.skipped_ids = tuple(
            _id_of(ids, "skipped_tokens", token) for token in skipped_tokens
        )
        self._ids = {
            spelling(token): _id_of(ids, name, spelling(token))
            for name in ("special_tokens", "added_tokens")
            for token in getattr(self, name)
        }
        # That of a text, or a part of one, which is a space.
        self.space_id = ids.get(_SPACE, self.unknown_id)
        self._white_space = WHITE
        if self.whitespace == "split" and Rules(self.model).of("\v") == b"":
            self._white_space = _MOST_WHITE
        self._graphemes: list[tuple[str, str]] = []
        if GRAPHEMES in self.normalization or (
            self.whitespace in ("collapse", "keep")
        ):
            rules = Rules(self.model)
            replaced = rules.of_characters()
            # Characters that the model turns into spaces, which are more than
            # Unicode's, and those that it deletes between them.
            white, deleted = (
                [chr(code) for code, by in replaced.items() if by == to]
                for to in (b" ", b"")
            )
            parting = ""
            if GRAPHEMES in self.normalization and len(deleted) > 1:
                parting, *deleted = deleted
                self._graphemes = [
                    (parting, deleted[0]),
                    *grapheme_rules(replaced, rules.of, parting),
                ]
            self._white, self._deleted = map(character_class, (white, deleted))
            self._more_white = self._white + character_class(parting)
            self.first_space = f"^[ {_SPACE}{self._white}]"
        # The first space is added, and removed on the way back.
        self._adds_space = read.is_plain or (
            read.adds_space or whitespace in ("first", "always")
        )
        import tensorflow as tf

        # Those of pieces that are bytes; not in another vocabulary.
        self._codes = read.codes if vocabulary is None else {}
        # Constants, made here once: outside the graph that happens to be
        # traced, and on the CPU, where strings are. A function, so that no
        # resource is tracked.
        with tf.init_scope(), tf.device("CPU:0"):
            self._tokenize = self._made().tokenize
            self._texts = tf.constant(
                [
                    bytes([self._codes[index]])
                    if index in self._codes
                    else piece.replace(_SPACE, " ").encode()
                    for index, piece in enumerate(pieces)
                ]
            )
            self._is_byte = None
            if self._codes:
                is_byte = [index in self._codes for index in range(len(pieces))]
                self._is_byte = tf.constant(is_byte)

    @classmethod
    def from_tokenizer_json(
        cls,
        path: str | os.PathLike[str],
        **kwargs: Any,
    ) -> Self:
        """Returns a tokenizer that gives the ids of Hugging Face's file.

        Those of a Unigram model differ in three cases: where two ways to split
        a word are equally likely; for a token that is looked for in the
        normalized text (`normalized`), which is found before the model's own
        rules, so not in characters that these turn into it; and where
        lowercasing turns a text into the spelling of the unknown token.

        Args:
            path: a `tokenizer.json` of type Unigram, or of BPE with a fallback
                to bytes.
            **kwargs: as for the constructor; all but lengths are the file's by
                default.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file has a setting that is not supported.
        """
        is_forgeable = "special_tokens" not in kwargs
        options = read_file(path, PIECES, FALLBACK, is_forgeable=is_forgeable)
        return cls(**{**options, "max_length": None, **kwargs})

    @property
    def frame(self) -> tuple[int, int]:
        after = (self.end_token, self.language_token)
        return int(self.start_token is not None), 2 - after.count(None)

    @property
    def ending(self) -> Sequence[int]:
        after = (self.end_id, self.language_id)
        return [index for index in after if index >= 0]

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        x = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        if self.whitespace == "first":
            begins = starts_with(self.special_tokens, rf"[ {_SPACE}]|\z", x)
            x = tf.where(begins, x, tf.strings.join([_SPACE, x]))
        return self._after(x, self.steps())

    def steps(self) -> list[Any]:
        """Returns what happens to texts before the model reads them, in order.

        Each is a function of texts, or the ids of tokens by their spelling, at
        which texts are divided.
        """
        special = {
            token: self._ids[spelling(token)] for token in self.special_tokens
        }
        is_lowered = "lowercase" in self.normalization
        added = {
            token.lower() if is_lowered else token: self._ids[spelling(token)]
            for token in self.added_tokens
        }
        return [special, self._normalize, added, self._prepare]

    def _after(self, texts: Any, steps: Sequence[Any]) -> Any:
        """Returns the ids of texts, ragged, after these steps."""
        if not steps:
            return self._pieces(texts)
        step, *rest = steps
        if callable(step):
            return self._after(step(texts), rest)
        ids = {spelling(token): index for token, index in step.items()}
        return ids_around(
            [*step], ids, texts, lambda between: self._after(between, rest)
        )

    def _normalize(self, texts: Any) -> Any:
        """Returns texts after the steps before the model's own rules."""
        for step in self.normalization:
            if step != GRAPHEMES:
                texts = STEPS[step](texts)
        return texts

    def _prepare(self, texts: Any) -> Any:
        """Returns texts as the model's own rules get them.

        A first space is kept, which `_pieces` removes where the model adds it.
        """
        import tensorflow as tf

        replace = tf.strings.regex_replace
        for pattern, by in self._graphemes:
            texts = replace(texts, pattern, by)
        if self.whitespace == "split":
            return replace(texts, f"[{self._white_space}]+", " ")
        if self.whitespace == "always":
            return replace(texts, rf"\A[^ {_SPACE}]", rf"{_SPACE}\0")
        if self.whitespace in ("model", "first"):
            return texts
        if self._deleted:
            texts = replace(texts, f"[{self._deleted}]+", "")
        if self.whitespace == "collapse":
            several = f"[ {self._white}][ {self._more_white}]*"
            texts = replace(texts, several, " ")
        return texts

    def _pieces(self, texts: Any) -> Any:
        import tensorflow as tf

        if self.whitespace not in ("collapse", "keep"):
            return self._cut(texts)
        # A space that the model adds first again, but not to an empty text.
        is_space = tf.strings.regex_full_match(texts, self.first_space)
        space = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(is_space)], self.space_id),
            tf.cast(is_space, "int64"),
        )
        texts = tf.strings.regex_replace(texts, self.first_space, "")
        return tf.concat([self._cut(texts), space], axis=1)

    def _cut(self, texts: Any) -> Any:
        import tensorflow as tf

        tokenize = self._tokenize
        if not (self._is_plain or tf.executing_eagerly()):
            # A part of the graph, which no resource made outside is.
            with tf.device("CPU:0"):
                tokenize = self._made().tokenize
        if self._lookup is not None:
            code = tf.strings.regex_replace(texts, _CODE, r"\1")
            rest = tf.strings.regex_replace(texts, _CODE, r"\2")
            codes = tf.RaggedTensor.from_row_lengths(
                tf.boolean_mask(code, code != ""),
                tf.cast(code != "", "int64"),
            )
            pieces = tf.concat([codes, tokenize(rest)], 1)
            return pieces.with_flat_values(self._lookup(pieces.flat_values))
        pieces = tokenize(texts)
        return pieces.with_row_splits_dtype("int64")  # as other ragged tensors

    def _made(self) -> Any:
        tensorflow_text = import_tensorflow_text("SentencepieceTokenizer")
        if self._is_plain:
            return tensorflow_text.FastSentencepieceTokenizer(self.model)
        kind = "int32" if self._lookup is None else "string"
        # Python shares models of one name between functions that it loads.
        name = f"model_{hashlib.sha256(self.model).hexdigest()[:16]}"
        return tensorflow_text.SentencepieceTokenizer(
            self.model, kind, name=name
        )

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        if self._is_byte is None:
            found = tf.where(kept, tf.gather(self._texts, ids), "")
            text = tf.strings.reduce_join(found, axis=-1)
        else:
            text = join_with_bytes(self._texts, self._is_byte, ids, kept)
        if self._lookup is not None:
            text = tf.strings.regex_replace(text, rf"\A{_BLANK}|{_BLANK}\z", "")
        elif self._adds_space:
            text = tf.strings.regex_replace(text, "^ ", "")
        for pattern, by in _CLEANED if self.clean_up_spaces else ():
            text = tf.strings.regex_replace(text, pattern, by)
        return text

    def settled(self, ids: Sequence[int]) -> Sequence[int]:
        count = len(ids)
        # Neighboring bytes are characters together, or not.
        while count and ids[count - 1] in self._codes:
            count -= 1
        return ids[:count]

    def settled_text(self, text: str) -> str:
        """Returns the start of a decoded text that no later token changes."""
        if not self.clean_up_spaces:
            return text
        # "do n" may become "don't"; and of "a ' " one sees "a'", which a mark
        # makes "a '." again.
        at = text.rfind(" ")
        while at >= 0 and any(
            each.startswith(text[at:]) for each in _CLEANABLE
        ):
            text = text[:at]
            at = text.rfind(" ")
        return text.rstrip(" '")

    def tokenizer_json(self) -> dict[str, Any]:
        return of_sentencepiece(self)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["model"] = base64.b64encode(self.model).decode()
        if self._lookup is None:
            config["vocabulary"] = None
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls(**{**config, "model": base64.b64decode(config["model"])})


def _id_of(ids: Mapping[str, int], name: str, token: str) -> int:
    if token not in ids:
        raise ValueError(
            f"`{name}` must be of the model's pieces. "
            f"Received: {token!r}, which is not."
        )
    return ids[token]


# What the library "tokenizers" writes for a byte that is not UTF-8.
_LOST = "\ufffd"


def join_with_bytes(pieces: Any, is_byte: Any, ids: Any, kept: Any) -> Any:
    """Returns the texts of ids, as the library "tokenizers" joins them.

    Neighboring bytes are characters if they are UTF-8 together; otherwise
    each of them is U+FFFD. `pieces` are the text, or the byte, of each token;
    `kept` says which of the ids count.
    """
    import tensorflow as tf

    shape = tf.shape(ids)
    kept = tf.reshape(kept, (-1, shape[-1]))
    row = tf.where(kept)[:, 0]  # of each id that counts
    ids = tf.boolean_mask(tf.reshape(ids, (-1, shape[-1])), kept)
    byte = tf.gather(is_byte, ids)
    goes_on = byte[1:] & byte[:-1] & (row[1:] == row[:-1])
    starts = tf.concat([tf.ones_like(byte[:1]), ~goes_on], 0)
    run = tf.cumsum(tf.cast(starts, "int32")) - 1
    count = tf.math.count_nonzero(starts, dtype="int32")
    join = tf.strings.unsorted_segment_join
    text = join(tf.gather(pieces, ids), run, count)
    lost = join(tf.where(byte, _LOST, ""), run, count)
    is_text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8") == text
    text = join(
        tf.where(is_text, text, lost),
        tf.boolean_mask(row, starts),
        tf.shape(kept)[0],
    )
    return tf.reshape(text, shape[:-1])
