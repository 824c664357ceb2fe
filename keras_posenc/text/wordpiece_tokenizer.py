"""WordPiece tokenization as a layer."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_bool, check_choice
from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.bert_words import NO_WORD, bert_words, marked
from keras_posenc.text.byte_pair_words import WHITE
from keras_posenc.text.spelled_tokens import ids_around
from keras_posenc.text.tokenizer_file import of_wordpiece
from keras_posenc.text.wordpiece_vocabulary import (
    CLS,
    PAD,
    SEP,
    SUFFIX,
    UNK,
    check_vocabulary,
    read_vocabulary,
)

_MASK = "[MASK]"
# Longest word, in characters: longer ones are unknown to BERT's tokenizers.
_LONGEST = 100


@keras.saving.register_keras_serializable(package="keras_posenc")
class WordpieceTokenizer(Tokenizer):
    """Turns strings into BERT's token ids, inside the model.

    >>> from keras_posenc import WordpieceTokenizer
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    >>> vocabulary += ["token", "##s", "in", "out", ","]
    >>> tokenizer = WordpieceTokenizer(vocabulary, sequence_length=7)
    >>> print(tokenizer(["Tokens in, tokens out!", "in"]).numpy())
    [[2 4 5 6 8 4 3]
     [2 6 3 0 0 0 0]]

    With the normalization of pretrained models:

    >>> tokenizer = WordpieceTokenizer(vocabulary, normalization="bert")
    >>> print(tokenizer(["in\u200b,[SEP] out"]).numpy())
    [[2 6 8 3 7 3]]

    A text is lowercased and stripped of accents (if `lowercase`) and split at
    white space, punctuation and Chinese characters; then each word is split,
    from the left, into the longest pieces that the vocabulary holds. `[CLS]`
    comes first, `[SEP]` last, then `[PAD]`. A word that cannot be split into
    pieces is `[UNK]`.

    `normalization` decides the details:

    - `"bert"`: as Hugging Face's tokenizers of BERT and its descendants, whose
      ids pretrained models know. Accents are dropped after canonical
      decomposition (NFD), control characters and invalid UTF-8 are deleted, a
      word of more than 100 characters is `[UNK]`, and `special_tokens` in a
      text become these tokens. The ids are those of the library "tokenizers",
      except for letters that Unicode has since version 13 only.
    - `"tf_text"`: as TF-Text's `FastBertTokenizer`. Compatibility characters
      and case are folded (NFKC): the ligature "fi" is two letters, and "ß" is
      "ss"; control characters are white space; a word of more than 100 bytes
      is `[UNK]`, as is one with invalid UTF-8. Special tokens in a text are
      plain text.
    - `"none"`: texts are split at white space and at `special_tokens`, and are
      not changed. With all tokens as `special_tokens`, this is ESM's tokenizer
      of proteins, whose letters are tokens. Needs `lowercase=False`.

    The output carries the Keras mask `ids != pad_id`, for all layers after it
    that take a mask. Keras' `Embedding`, and datasets, drop it: give the
    embedding `mask_zero=True`, which computes the mask `ids != 0` again.

    The vocabulary is in the layer's config, so in the `.keras` file, and a
    constant in the graph, so in the SavedModel. The layer has no weights,
    runs on the CPU and cannot be compiled by XLA. On the JAX and PyTorch
    backends, which have no strings, it works outside models: on strings and
    in `dataset.map`.

    `detokenize` returns texts, up to the first `[SEP]`. What tokenization
    removes is lost: case, accents, the spaces around punctuation; `[UNK]` is
    in place of unknown words. Attributes: `pad_id`, `unknown_id`, `start_id`,
    `end_id`.

    Args:
        vocabulary: a list of tokens in the order of their ids, or the path of
            a file with one token a line, read at once. It must have `[PAD]`,
            `[UNK]`, `[CLS]` and `[SEP]`; pieces that continue a word start with
            `##`. If padding is not the first token, its id is not 0.
        sequence_length: number of ids per text, at least 2: longer texts are
            cut, keeping `[SEP]` last, shorter ones padded. None pads to the
            longest text of the batch and cuts nothing.
        max_length: the most ids of a text, where `sequence_length` is None:
            longer texts are cut, and all are padded to the longest one.
        num_separators: for pairs of texts, the number of end tokens between the
            two: 1 for BERT, 2 for RoBERTa. Pairs that are too long lose tokens
            at the end of the longer text. None for single texts.
        lowercase: whether to lowercase and to strip accents.
        normalization: `"tf_text"`, `"bert"` or `"none"`, as above.
        strip_accents: whether to strip accents, whatever `lowercase` is; only
            with `"bert"`. None is the same as `lowercase`.
        split_on_cjk: whether each Chinese character is a word; False only with
            `"bert"`.
        special_tokens: tokens that become one id wherever a text contains them,
            not with `"tf_text"`. None is the four and, if in the vocabulary,
            `[MASK]`; () for texts that must not contain any.
        added_tokens: as `special_tokens`, but found in the normalized text:
            with `lowercase`, `<unk>` is found in `<UNK>` too.
        pad_token: another name of `[PAD]`; likewise the other three, such as
            `end_token="</s>"` for `[SEP]`.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: strings of shape (batch,), or (batch, 2) of pairs: a tensor, an
            array or a list.

    Returns:
        int32 ids of shape (batch, sequence_length), or (batch, longest).

    Raises:
        ImportError: if TF-Text is missing.
        FileNotFoundError: if `vocabulary` is a path with no file.
        ValueError: if the vocabulary is empty, lacks a special token or holds
            a token twice; if an argument needs another `normalization`; if the
            inputs are not strings of this shape.

    References:
        - Wu et al. 2016, [Google's Neural Machine Translation System](
          https://arxiv.org/abs/1609.08144)
        - Devlin et al. 2019, [BERT](https://arxiv.org/abs/1810.04805)
        - Song et al. 2021, [Fast WordPiece Tokenization](
          https://arxiv.org/abs/2012.15524)
    """

    def __init__(
        self,
        vocabulary: Sequence[str] | str | os.PathLike[str],
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        num_separators: int | None = None,
        lowercase: bool = True,
        normalization: str = "tf_text",
        strip_accents: bool | None = None,
        split_on_cjk: bool = True,
        special_tokens: Sequence[str] | None = None,
        added_tokens: Sequence[str] = (),
        pad_token: str = PAD,
        unknown_token: str = UNK,
        start_token: str = CLS,
        end_token: str = SEP,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            sequence_length=sequence_length,
            max_length=max_length,
            num_separators=num_separators,
            **kwargs,
        )
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = read_vocabulary(vocabulary)
        # A tuple: Keras and TensorFlow would wrap a list to track its items.
        self.vocabulary = tuple(vocabulary)
        framing = (pad_token, unknown_token, start_token, end_token)
        check_vocabulary(self.vocabulary, framing)
        self.pad_token, self.unknown_token = framing[:2]
        self.start_token, self.end_token = framing[2:]
        self.pad_id, self.unknown_id, self.start_id, self.end_id = map(
            self.vocabulary.index, framing
        )
        self.lowercase = check_bool("lowercase", lowercase)
        self.normalization = check_choice(
            "normalization", normalization, ("tf_text", "bert", "none")
        )
        if strip_accents is not None:
            check_bool("strip_accents", strip_accents)
        self.strip_accents = strip_accents
        self.split_on_cjk = check_bool("split_on_cjk", split_on_cjk)
        self.special_tokens = (
            None if special_tokens is None else tuple(special_tokens)
        )
        self.added_tokens = tuple(added_tokens)
        self._check_details()
        self._spelled = self._spelled_tokens()
        self._tokenizer = self._make_tokenizer()

    @classmethod
    def learn(
        cls,
        corpus: Any,
        vocabulary_size: int,
        *,
        sequence_length: int | None = None,
        lowercase: bool = True,
        verbose: int = True,
        **kwargs: Any,
    ) -> Self:
        """Returns a tokenizer whose vocabulary is learned from a corpus.

        >>> from keras_posenc import WordpieceTokenizer
        >>> texts = ["to be or not to be", "to see or not to see"]
        >>> tokenizer = WordpieceTokenizer.learn(texts, 30)
        >>> ids = tokenizer(["To be, or to see?"])
        >>> print(tokenizer.detokenize(ids).numpy())
        [b'to be [UNK] or to see [UNK]']

        The same texts, in any order, give the same vocabulary. The corpus is
        read once, as a stream, and its distinct words are kept in memory. Words
        are found by the tokenizer's `normalization`.

        Args:
            corpus: iterable of strings, or a `tf.data.Dataset` of strings.
            vocabulary_size: the most tokens to learn, special tokens
                included. The result may be smaller.
            sequence_length: as for the constructor.
            lowercase: as for the constructor.
            verbose: whether a terminal shows that it goes on.
            **kwargs: as for the constructor.

        Raises:
            TypeError: if the corpus is one string, or has anything else.
            ValueError: if `vocabulary_size` is below 6, or the corpus has no
                word.
        """
        from keras_posenc.progress import progress
        from keras_posenc.text.wordpiece_vocabulary import learn_vocabulary

        import_tensorflow_text("WordpieceTokenizer")
        words_of = _words_of(lowercase, **kwargs)
        with progress(verbose):
            vocabulary = learn_vocabulary(corpus, vocabulary_size, words_of)
        return cls(
            vocabulary,
            sequence_length=sequence_length,
            lowercase=lowercase,
            **kwargs,
        )

    def _check_details(self) -> None:
        unchanged: dict[str, Any] = {}
        if self.normalization != "bert":
            unchanged = {
                "strip_accents": None,
                "split_on_cjk": True,
                "added_tokens": (),
            }
        if self.normalization == "tf_text":
            unchanged["special_tokens"] = None
        for name, default in unchanged.items():
            if (value := getattr(self, name)) != default:
                raise ValueError(
                    f"`{name}` needs normalization='bert'. Received: "
                    f"{name}={value!r}, normalization={self.normalization!r}."
                )
        if self.normalization == "none" and self.lowercase:
            raise ValueError(
                "`lowercase` must be False with normalization='none', which "
                "changes no text. Received: lowercase=True."
            )
        known = {*self.vocabulary}
        for name in ("special_tokens", "added_tokens"):
            for token in getattr(self, name) or ():
                if token not in known:
                    raise ValueError(
                        f"`{name}` must be in the vocabulary. "
                        f"Received: {token!r}, which is not."
                    )

    def _spelled_tokens(self) -> tuple[str, ...]:
        """Returns the special tokens that a text can contain."""
        if self.normalization == "tf_text":
            return ()
        if self.special_tokens is not None:
            return self.special_tokens
        mask = (_MASK,) if _MASK in self.vocabulary else ()
        return (
            self.pad_token,
            self.unknown_token,
            self.start_token,
            self.end_token,
            *mask,
        )

    def _make_tokenizer(self) -> Any:
        tensorflow_text = import_tensorflow_text("WordpieceTokenizer")
        import tensorflow as tf

        vocabulary, unknown = list(self.vocabulary), self.unknown_id
        ids = {token: index for index, token in enumerate(vocabulary)}
        if self.normalization == "bert":
            for index, token in enumerate((*self._spelled, *self.added_tokens)):
                vocabulary[ids[token]] = marked(index)
        # The tokenizer's models are constants, made here once: outside the
        # graph that happens to be traced, and on the CPU, where they run.
        with tf.init_scope(), tf.device("CPU:0"):
            try:
                if self.normalization == "tf_text":
                    return tensorflow_text.FastBertTokenizer(
                        vocabulary,
                        token_out_type=tf.int32,
                        unknown_token=vocabulary[unknown],
                        lower_case_nfd_strip_accents=self.lowercase,
                    )
                return tensorflow_text.FastWordpieceTokenizer(
                    vocabulary,
                    token_out_type=tf.int32,
                    unknown_token=vocabulary[unknown],
                    no_pretokenization=True,
                    max_bytes_per_word=4 * _LONGEST,  # of UTF-8
                )
            except RuntimeError as error:
                raise ValueError(
                    f"`vocabulary` is not one that TF-Text can use: {error}"
                ) from error

    def split(self, texts: Any) -> Any:
        if self.normalization == "tf_text":
            return self._tokenizer.tokenize(texts)
        import tensorflow as tf

        if self.normalization == "none":
            x = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
            ids = {token: i for i, token in enumerate(self.vocabulary)}
            return ids_around(self._spelled, ids, x, self._whole_words)
        words = self.words(texts)
        is_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > _LONGEST
        # No text has this word.
        cut = tf.where(is_long, NO_WORD, words.flat_values)
        pieces = self._tokenizer.tokenize(words.with_flat_values(cut))
        return pieces.merge_dims(1, 2)  # (batch, words, any) -> (batch, any)

    def words(self, texts: Any) -> Any:
        """Returns the normalized words of texts, ragged, `(batch, any)`.

        Those of `normalization="bert"`, before they are split into pieces; a
        special token is the word `marked`.
        """
        return bert_words(
            texts,
            lowercase=self.lowercase,
            strip_accents=self.lowercase
            if self.strip_accents is None
            else self.strip_accents,
            split_on_cjk=self.split_on_cjk,
            special_tokens=self._spelled,
            added_tokens=[
                token.lower() if self.lowercase else token
                for token in self.added_tokens
            ],
        )

    def _whole_words(self, texts: Any) -> Any:
        import tensorflow as tf

        white = rf"[{WHITE}\x{{1c}}-\x{{1f}}]+"  # as Python's `split`
        words = tf.strings.split(tf.strings.regex_replace(texts, white, " "))
        pieces = self._tokenizer.tokenize(words)
        return pieces.merge_dims(1, 2)

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        tails = [token.startswith(SUFFIX) for token in self.vocabulary]
        alone = tf.constant(self.vocabulary)
        continued = tf.constant(
            [
                token.removeprefix(SUFFIX) if tail else f" {token}"
                for token, tail in zip(self.vocabulary, tails, strict=True)
            ]
        )
        counts = tf.cumsum(tf.cast(kept, "int32"), axis=-1)
        # At the start of a text a piece has nothing to continue.
        pieces = tf.where(
            counts == 1, tf.gather(alone, ids), tf.gather(continued, ids)
        )
        return tf.strings.reduce_join(tf.where(kept, pieces, ""), axis=-1)

    def tokenizer_json(self) -> dict[str, Any]:
        return of_wordpiece(self)


def _words_of(
    lowercase: bool,
    normalization: str = "tf_text",
    strip_accents: bool | None = None,
    split_on_cjk: bool = True,
    **_: Any,
) -> Callable[[Any], Any]:
    """Returns a function from texts to words, for these arguments."""
    if normalization == "bert":
        return functools.partial(
            bert_words,
            lowercase=lowercase,
            strip_accents=lowercase if strip_accents is None else strip_accents,
            split_on_cjk=split_on_cjk,
            special_tokens=(),
        )
    from tensorflow_text.python.ops.bert_tokenizer import BasicTokenizer

    return BasicTokenizer(lower_case=lowercase).tokenize
