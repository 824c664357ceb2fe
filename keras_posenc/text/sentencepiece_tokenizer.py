"""SentencePiece tokenization as a layer."""

import base64
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_choice
from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.files import read_bytes, read_json
from keras_posenc.text.graphemes import character_class, grapheme_rules
from keras_posenc.text.normalization_steps import STEPS
from keras_posenc.text.sentencepiece_model import (
    GRAPHEMES,
    Rules,
    pieces_of,
    read_unigram,
)
from keras_posenc.text.spelled_tokens import ids_around, spelling

# The mark of the start of a word.
_SPACE = "▁"
_WHITE = r"\s\pZ\x{85}"


@keras.saving.register_keras_serializable(package="keras_posenc")
class SentencepieceTokenizer(Tokenizer):
    """Turns strings into ids of a SentencePiece model, inside the model.

    The Unigram models of XLM-R, multilingual E5, T5 and others, from a
    `.model` file of SentencePiece or, by `from_tokenizer_json`, from Hugging
    Face's `tokenizer.json`. The two may number the same pieces differently:
    `<s>`, `<pad>`, `</s>` and `<unk>` are 0 to 3 in the latter file of XLM-R,
    and pretrained models of Hugging Face know those ids.

    The output carries the Keras mask `ids != pad_id`, for all layers after it
    that take a mask. The model is in the layer's config, so in the `.keras`
    file, and a constant in the graph, so in the SavedModel. The layer has no
    weights, runs on the CPU and cannot be compiled by XLA. On the JAX and
    PyTorch backends, which have no strings, it works outside models: on strings
    and in `dataset.map`.

    `detokenize` returns texts, up to the first end, with `<unk>` for unknown
    characters. `pad_id`, `unknown_id`, `start_id` and `end_id` are the ids of
    the special tokens.

    Args:
        model: the path of a `.model` file, read at once, or its bytes.
        sequence_length: number of ids per text: longer texts are cut, keeping
            the end, shorter ones padded. None pads to the longest text of the
            batch and cuts nothing.
        max_length: the most ids of a text, where `sequence_length` is None:
            longer texts are cut, and all are padded to the longest one.
        num_separators: for pairs of texts, the number of end tokens between the
            two: 1 for BERT, 2 for RoBERTa. Pairs that are too long lose tokens
            at the end of the longer text. None for single texts.
        start_token: the piece before each text, or None for none.
        end_token: the piece after each text, or None for none.
        pad_token: the piece of padding.
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
            spaces one and keeps the last, `"keep"` keeps all.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: strings of shape (batch,), or (batch, 2) of pairs: a tensor, an
            array or a list.

    Returns:
        int32 ids of shape (batch, sequence_length), or (batch, longest).

    Raises:
        ImportError: if TF-Text is missing.
        FileNotFoundError: if `model` is a path with no file.
        ValueError: if the model is invalid or not Unigram; if a token is not a
            piece; if `sequence_length` is too short for an empty text; if the
            inputs are not strings of shape (batch,).

    Example:
        >>> from keras_posenc import SentencepieceTokenizer
        >>> tokenizer = SentencepieceTokenizer.from_tokenizer_json(
        ...     "multilingual-e5-small/tokenizer.json"
        ... )  # doctest: +SKIP
        >>> tokenizer(["query: 안녕하세요"])  # doctest: +SKIP

    References:
        - Kudo 2018, [Subword Regularization](https://arxiv.org/abs/1804.10959)
        - Kudo and Richardson 2018, [SentencePiece](
          https://arxiv.org/abs/1808.06226)
    """

    def __init__(
        self,
        model: bytes | str | os.PathLike[str],
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        num_separators: int | None = None,
        start_token: str | None = "<s>",
        end_token: str | None = "</s>",
        pad_token: str = "<pad>",
        special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        normalization: Sequence[str] = (),
        whitespace: str = "model",
        **kwargs: Any,
    ) -> None:
        # First: the base checks lengths against `frame`, which needs them.
        self.start_token, self.end_token = start_token, end_token
        super().__init__(
            sequence_length=sequence_length,
            max_length=max_length,
            num_separators=num_separators,
            **kwargs,
        )
        self.model = (
            model if isinstance(model, bytes) else read_bytes(_existing(model))
        )
        pieces, self.unknown_id = pieces_of(self.model)
        # A tuple: Keras and TensorFlow would wrap a list to track its items.
        self.vocabulary = tuple(pieces)
        # Of a piece that occurs twice the first one counts.
        ids = {piece: i for i, piece in reversed([*enumerate(pieces)])}
        self.pad_token = pad_token
        self.special_tokens = tuple(special_tokens)
        self.added_tokens = tuple(added_tokens)
        self.normalization = tuple(
            check_choice("normalization", step, (*STEPS, GRAPHEMES))
            for step in normalization
        )
        self.whitespace = check_choice(
            "whitespace", whitespace, ("model", "split", "collapse", "keep")
        )
        self.pad_id = _id_of(ids, "pad_token", pad_token)
        # A token that is None has no id.
        self.start_id, self.end_id = (
            -1 if token is None else _id_of(ids, name, token)
            for name, token in (
                ("start_token", start_token),
                ("end_token", end_token),
            )
        )
        self._ids = {
            spelling(token): _id_of(ids, name, spelling(token))
            for name in ("special_tokens", "added_tokens")
            for token in getattr(self, name)
        }
        # That of a text, or a part of one, which is a space.
        self.space_id = ids.get(_SPACE, self.unknown_id)
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
        self._tokenizer = _fast_tokenizer(self.model)

    @classmethod
    def from_tokenizer_json(
        cls,
        path: str | os.PathLike[str],
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """Returns a tokenizer that gives the ids of Hugging Face's file.

        They differ in three cases: where two ways to split a word are equally
        likely; for a token that is looked for in the normalized text
        (`normalized`), which is found before the model's own rules, so not in
        characters that these turn into it; and where lowercasing turns a text
        into the spelling of the unknown token.

        Args:
            path: a `tokenizer.json` of type Unigram.
            sequence_length: as for the constructor.
            max_length: as for the constructor.
            **kwargs: as for the constructor; the file's by default.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file has a setting that is not supported.
        """
        model, options = read_unigram(
            read_json(_existing(path, "path")),
            path,
            is_forgeable="special_tokens" not in kwargs,
        )
        return cls(
            model,
            sequence_length=sequence_length,
            max_length=max_length,
            **{**options, **kwargs},
        )

    @property
    def frame(self) -> tuple[int, int]:
        return int(self.start_token is not None), int(
            self.end_token is not None
        )

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        x = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
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
            return replace(texts, f"[{_WHITE}]+", " ")
        if self.whitespace != "model" and self._deleted:
            texts = replace(texts, f"[{self._deleted}]+", "")
        if self.whitespace == "collapse":
            several = f"[ {self._white}][ {self._more_white}]*"
            texts = replace(texts, several, " ")
        return texts

    def _pieces(self, texts: Any) -> Any:
        import tensorflow as tf

        if self.whitespace in ("model", "split"):
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
        pieces = self._tokenizer.tokenize(texts)
        return pieces.with_row_splits_dtype("int64")  # as other ragged tensors

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        pieces = [piece.replace(_SPACE, " ") for piece in self.vocabulary]
        found = tf.where(kept, tf.gather(tf.constant(pieces), ids), "")
        text = tf.strings.reduce_join(found, axis=-1)
        return tf.strings.regex_replace(text, "^ ", "")

    def get_vocabulary(self) -> list[str]:
        """Returns the pieces, in the order of their ids."""
        return list(self.vocabulary)

    def vocabulary_size(self) -> int:
        """Returns how many pieces the model has."""
        return len(self.vocabulary)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "model": base64.b64encode(self.model).decode(),
            "start_token": self.start_token,
            "end_token": self.end_token,
            "pad_token": self.pad_token,
            "special_tokens": list(self.special_tokens),
            "added_tokens": list(self.added_tokens),
            "normalization": list(self.normalization),
            "whitespace": self.whitespace,
        }

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


def _existing(
    path: str | os.PathLike[str], name: str = "model"
) -> pathlib.Path:
    file = pathlib.Path(os.path.expanduser(path))
    if not file.is_file():
        raise FileNotFoundError(
            f"`{name}` must be a file. Received: {name}={str(path)!r}, "
            "which is not a file."
        )
    return file


def _fast_tokenizer(model: bytes) -> Any:
    tensorflow_text = import_tensorflow_text("SentencepieceTokenizer")
    import tensorflow as tf

    # The model is a constant, made here once: outside the graph that happens
    # to be traced, and on the CPU, where its operators run.
    with tf.init_scope(), tf.device("CPU:0"):
        return tensorflow_text.FastSentencepieceTokenizer(model)
