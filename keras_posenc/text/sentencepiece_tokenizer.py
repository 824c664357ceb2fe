"""SentencePiece tokenisation as a layer."""

import base64
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_choice
from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.files import read_bytes, read_json
from keras_posenc.text.sentencepiece_model import (
    convert_tokenizer,
    pieces_of,
    replaced_characters,
)

# Of a word's begin.
_SPACE = "▁"
_WHITE = r"\s\pZ\x{85}"
# What stands around a special token in a text, and before its number.
_AROUND, _BEFORE, _NEITHER = "\x01", "\x02", "\x03"


@keras.saving.register_keras_serializable(package="keras_posenc")
class SentencepieceTokenizer(Tokenizer):
    """Turns strings into ids of a SentencePiece model, inside the model.

    The Unigram models of XLM-R, multilingual E5, T5 and others, from a
    `.model` file of SentencePiece or, by `from_tokenizer_json`, from Hugging
    Face's `tokenizer.json`. The two may number the same pieces differently:
    `<s>`, `<pad>`, `</s>` and `<unk>` are 0 to 3 in the latter file of XLM-R,
    and a pretrained model of Hugging Face's knows those.

    The output carries the Keras mask `ids != pad_id`, for every layer behind
    that takes a mask. The model lies in the layer's config, so in the `.keras`
    file, and as a constant in the graph, so in the SavedModel. The layer has no
    weights, runs on the CPU and cannot be compiled by XLA. On the JAX and
    PyTorch backends, which have no strings, it works outside models: on strings
    and in `dataset.map`.

    `detokenize` gives texts back, up to the first end; `<unk>` stands where
    unknown characters were. `pad_id`, `unknown_id`, `start_id` and `end_id` are
    the ids of the special tokens.

    Args:
        model: the path of a `.model` file, read at once, or its bytes.
        sequence_length: number of ids per text: longer texts are cut, keeping
            the end, shorter ones padded. None pads to the longest text of the
            batch and cuts nothing.
        max_length: the most ids of a text, where `sequence_length` is None:
            longer texts are cut, and all are padded to the longest one.
        num_separators: for pairs of texts, the number of end tokens between the
            two: 1 as BERT has, 2 as RoBERTa. What is too long is cut where the
            longer text ends. None is for single texts.
        start_token: the piece before each text, or None for none.
        end_token: the piece behind each text, or None for none.
        pad_token: the piece of padding.
        special_tokens: pieces that are themselves where a text spells them;
            what stands before and behind are texts of their own. One spelled
            with a space before it, `" <mask>"`, takes all white space there.
        whitespace: `"model"` reads white space as the model says, `"split"`
            splits at all that Unicode calls so, `"collapse"` makes one space of
            several and keeps the last, `"keep"` keeps all.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: strings of shape (batch,), or (batch, 2) of pairs: a tensor, an
            array or a list.

    Returns:
        int32 ids of shape (batch, sequence_length), or (batch, longest).

    Raises:
        ImportError: if TF-Text is missing.
        FileNotFoundError: if `model` is a path with no file.
        ValueError: if the model is none, or of another kind than Unigram; if a
            token is not a piece; if `sequence_length` is below what an empty
            text takes; if the inputs are not strings of shape (batch,).

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
        whitespace: str = "model",
        **kwargs: Any,
    ) -> None:
        # First, since what a row takes at least depends on them.
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
        # Of a piece that is there twice the first one counts.
        ids = {piece: i for i, piece in reversed([*enumerate(pieces)])}
        self.pad_token = pad_token
        self.special_tokens = tuple(special_tokens)
        for token in self.special_tokens:
            if token.strip().isdigit():  # they are numbered in `split`
                raise ValueError(
                    "`special_tokens` must not be numbers. "
                    f"Received: {token!r}."
                )
        self.whitespace = check_choice(
            "whitespace", whitespace, ("model", "split", "collapse", "keep")
        )
        self.pad_id = _id_of(ids, "pad_token", pad_token)
        # No id where there is no token.
        self.start_id, self.end_id = (
            -1 if token is None else _id_of(ids, name, token)
            for name, token in (
                ("start_token", start_token),
                ("end_token", end_token),
            )
        )
        self._special = {
            token: _id_of(ids, "special_tokens", token.removeprefix(" "))
            for token in self.special_tokens
        }
        if self.whitespace in ("collapse", "keep"):
            rules = replaced_characters(self.model)
            # What the model makes spaces of, which is more than Unicode calls
            # so, and what it deletes between them.
            self._white, self._deleted = (
                "".join(
                    f"\\x{{{code:x}}}" for code, by in rules.items() if by == to
                )
                for to in (b" ", b"")
            )
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
        """A tokenizer that gives the ids of Hugging Face's file.

        Of those three things are otherwise: of two ways to cut a word that are
        equally likely the other one may be taken, several marks on one letter
        are composed as SentencePiece composes them, and a token that is looked
        for in the normalized text (`normalized`) is found where it is spelled,
        and not in characters that only become it.

        Args:
            path: a `tokenizer.json` of the kind Unigram.
            sequence_length: as for the constructor.
            max_length: as for the constructor.
            **kwargs: as for the constructor; what the file says by default.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file says what is not known here.
        """
        whole = read_json(_existing(path, "path"))
        try:
            model, said = convert_tokenizer(whole)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(
                f"'{path}' is no whole tokenizer.json of the kind Unigram: "
                f"{type(error).__name__}: {error}"
            ) from error
        return cls(
            model,
            sequence_length=sequence_length,
            max_length=max_length,
            **{**said, **kwargs},
        )

    @property
    def frame(self) -> tuple[int, int]:
        return int(self.start_token is not None), int(
            self.end_token is not None
        )

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        replace = tf.strings.regex_replace
        x = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        if not self.special_tokens:
            return self._pieces(x)
        x = replace(x, f"[{_AROUND}{_BEFORE}]", _NEITHER)
        # One that holds another goes first.
        for token in sorted(self._special, key=len, reverse=True):
            spelled = re.escape(token.removeprefix(" "))
            if token.startswith(" "):
                spelled = rf"[{_WHITE}]*{spelled}"
            number = self._special[token]
            x = replace(x, spelled, f"{_AROUND}{_BEFORE}{number}{_AROUND}")
        parts = tf.strings.split(x, _AROUND)  # (batch, parts)
        flat = parts.flat_values
        is_special = tf.strings.substr(flat, 0, 1) == _BEFORE
        numbers = tf.boolean_mask(flat, is_special)
        numbers = tf.strings.substr(numbers, 1, 10)  # 10 digits suffice
        special = tf.RaggedTensor.from_row_lengths(
            tf.strings.to_number(numbers, "int32"), tf.cast(is_special, "int64")
        )
        pieces = self._pieces(tf.where(is_special, "", flat))
        ids = tf.concat([pieces, special], axis=1)  # one of the two is empty
        return parts.with_flat_values(ids).merge_dims(1, 2)

    def _pieces(self, texts: Any) -> Any:
        import tensorflow as tf

        replace = tf.strings.regex_replace
        if self.whitespace == "split":
            texts = replace(texts, f"[{_WHITE}]+", " ")
        elif self.whitespace != "model":
            if self._deleted:
                texts = replace(texts, f"[{self._deleted}]+", "")
            if self.whitespace == "collapse":
                texts = replace(texts, f"[ {self._white}]+", " ")
            # The space that the model puts first is this one.
            texts = replace(texts, f"^[ {self._white}]", "")
        pieces = self._tokenizer.tokenize(texts)
        return pieces.with_row_splits_dtype("int64")  # as of other ragged ones

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        pieces = [piece.replace(_SPACE, " ") for piece in self.vocabulary]
        found = tf.where(kept, tf.gather(tf.constant(pieces), ids), "")
        text = tf.strings.reduce_join(found, axis=-1)
        return tf.strings.regex_replace(text, "^ ", "")

    def get_vocabulary(self) -> list[str]:
        """The pieces, in the order of their ids."""
        return list(self.vocabulary)

    def vocabulary_size(self) -> int:
        """How many pieces the model has."""
        return len(self.vocabulary)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "model": base64.b64encode(self.model).decode(),
            "start_token": self.start_token,
            "end_token": self.end_token,
            "pad_token": self.pad_token,
            "special_tokens": list(self.special_tokens),
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
            "which is none."
        )
    return file


def _fast_tokenizer(model: bytes) -> Any:
    tensorflow_text = import_tensorflow_text("SentencepieceTokenizer")
    import tensorflow as tf

    # The model is a constant, made here once: not in the graph that happens to
    # be traced, and on the CPU, where its ops run.
    with tf.init_scope(), tf.device("CPU:0"):
        return tensorflow_text.FastSentencepieceTokenizer(model)
