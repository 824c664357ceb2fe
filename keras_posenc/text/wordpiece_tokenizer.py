"""WordPiece tokenisation as a layer."""

import os
import threading
from collections.abc import Sequence
from typing import Any, Self

import keras

from keras_posenc.ops.arguments import check_bool
from keras_posenc.progress import progress
from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.wordpiece_vocabulary import (
    CLS,
    SEP,
    SUFFIX,
    UNK,
    check_vocabulary,
    learn_vocabulary,
    read_vocabulary,
)

# Seconds until what takes long is named.
_PATIENCE = 2.0


@keras.saving.register_keras_serializable(package="keras_posenc")
class WordpieceTokenizer(Tokenizer):
    """Turns strings into BERT's token ids, inside the model.

    A text is lowercased and stripped of accents (if `lowercase`) and split at
    white space, punctuation and Chinese characters; then each word is cut,
    from the left, into the longest pieces that the vocabulary holds. `[CLS]`
    comes first, `[SEP]` last, then `[PAD]`, id 0. A word that does not divide
    into pieces, or has more than 100 bytes, is `[UNK]`, and so is a word with
    invalid UTF-8. Special tokens spelled out in a text are plain text.

    The output carries the Keras mask `ids != 0`, for every layer behind that
    takes a mask. Keras' `Embedding` drops it, with a warning, unless it has
    `mask_zero=True`.
    Datasets drop masks: behind `dataset.map(tokenizer)` it is again the
    embedding's `mask_zero=True` that makes one.

    The vocabulary lies in the layer's config, so in the `.keras` file, and as
    a constant in the graph, so in the SavedModel. The layer has no weights,
    runs on the CPU and cannot be compiled by XLA. On the JAX and PyTorch
    backends, which have no strings, it works outside models: on strings and
    in `dataset.map`.

    `detokenize` gives texts back, up to the first `[SEP]`. What tokenising
    takes away does not return: case, accents, the spaces around punctuation.
    `[UNK]` stands where a word was. `pad_id`, `unknown_id`, `start_id` and
    `end_id` are the ids of the special tokens.

    Args:
        vocabulary: a list of tokens in the order of their ids, or the path of
            a file with one token a line, read at once. `[PAD]` comes first;
            `[UNK]`, `[CLS]` and `[SEP]` anywhere; pieces that continue a word
            begin with `##`.
        sequence_length: number of ids per text, at least 2: longer texts are
            cut, keeping `[SEP]` last, shorter ones padded. None pads to the
            longest text of the batch and cuts nothing.
        lowercase: whether to lowercase and to strip accents. Like TF-Text,
            this also folds compatibility characters: the ligature "fi" is
            two letters.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: strings of shape (batch,): a tensor, an array or a list.

    Returns:
        int32 ids of shape (batch, sequence_length), or (batch, longest).

    Raises:
        ImportError: if TF-Text is missing.
        FileNotFoundError: if `vocabulary` is a path with no file.
        ValueError: if the vocabulary is empty, lacks a special token or holds
            a token twice; if `sequence_length` is below 2; if the inputs are
            not strings of shape (batch,).

    Example:
        >>> from keras_posenc import WordpieceTokenizer
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        >>> vocabulary += ["token", "##s", "in", "out", ","]
        >>> tokenizer = WordpieceTokenizer(vocabulary, sequence_length=7)
        >>> print(tokenizer(["Tokens in, tokens out!", "in"]).numpy())
        [[2 4 5 6 8 4 3]
         [2 6 3 0 0 0 0]]

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
        lowercase: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(sequence_length=sequence_length, **kwargs)
        if isinstance(vocabulary, str | os.PathLike):
            vocabulary = read_vocabulary(vocabulary)
        # A tuple: Keras and TensorFlow would wrap a list to track its items.
        self.vocabulary = tuple(vocabulary)
        check_vocabulary(self.vocabulary)
        self.lowercase = check_bool("lowercase", lowercase)
        self.unknown_id, self.start_id, self.end_id = (
            self.vocabulary.index(token) for token in (UNK, CLS, SEP)
        )
        self._tokenizer = _fast_tokenizer(self.vocabulary, lowercase)

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
        """A tokenizer whose vocabulary is learned from a corpus.

        The same texts, in any order, give the same vocabulary. The corpus is
        read once, in a stream; TF-Text's tool keeps every distinct word in
        memory.

        Args:
            corpus: iterable of strings, or a `tf.data.Dataset` of strings.
            vocabulary_size: the most tokens to learn, special tokens
                included. The result may be smaller.
            sequence_length: as for the constructor.
            lowercase: as for the constructor.
            verbose: whether to say on standard error what takes long, if it
                does; 2 also shows what native code logs.
            **kwargs: as for the constructor.

        Returns:
            The tokenizer.

        Raises:
            TypeError: if the corpus is one string, or holds something else.
            ValueError: if `vocabulary_size` is below 6, or the corpus holds
                no word.

        Example:
            >>> from keras_posenc import WordpieceTokenizer
            >>> texts = ["to be or not to be", "to see or not to see"]
            >>> tokenizer = WordpieceTokenizer.learn(texts, 30)
            >>> ids = tokenizer(["To be, or to see?"])
            >>> print(tokenizer.detokenize(ids).numpy())
            [b'to be [UNK] or to see [UNK]']
        """
        _import_tensorflow_text()
        with progress(verbose) as step:
            # Half a minute for some thousand texts, and nothing to say of few.
            patience = threading.Timer(
                _PATIENCE,
                step,
                [f"Learning a vocabulary of {vocabulary_size} tokens"],
            )
            patience.daemon = True
            patience.start()
            try:
                vocabulary = learn_vocabulary(
                    corpus, vocabulary_size, lowercase
                )
            finally:
                patience.cancel()
                patience.join()
        return cls(
            vocabulary,
            sequence_length=sequence_length,
            lowercase=lowercase,
            **kwargs,
        )

    def split(self, texts: Any) -> Any:
        return self._tokenizer.tokenize(texts)

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        tails = [token.startswith(SUFFIX) for token in self.vocabulary]
        alone = tf.constant(self.vocabulary)
        behind = tf.constant(
            [
                token.removeprefix(SUFFIX) if tail else f" {token}"
                for token, tail in zip(self.vocabulary, tails, strict=True)
            ]
        )
        counts = tf.cumsum(tf.cast(kept, "int32"), axis=-1)
        # A piece has nothing to continue where a text begins with it.
        pieces = tf.where(
            counts == 1, tf.gather(alone, ids), tf.gather(behind, ids)
        )
        return tf.strings.reduce_join(tf.where(kept, pieces, ""), axis=-1)

    def get_vocabulary(self) -> list[str]:
        """The tokens, in the order of their ids."""
        return list(self.vocabulary)

    def vocabulary_size(self) -> int:
        """How many tokens the vocabulary holds."""
        return len(self.vocabulary)

    def token_to_id(self, token: str) -> int:
        """The id of a token.

        Args:
            token: the token as the vocabulary spells it.

        Returns:
            Its id.

        Raises:
            ValueError: if the vocabulary has no such token.
        """
        try:
            return self.vocabulary.index(token)
        except ValueError:
            raise ValueError(
                f"`token` must be in the vocabulary. Received: token={token!r}."
            ) from None

    def id_to_token(self, index: int) -> str:
        """The token of an id.

        Args:
            index: the id.

        Returns:
            The token as the vocabulary spells it.

        Raises:
            ValueError: if no token has this id.
        """
        if not 0 <= index < len(self.vocabulary):
            raise ValueError(
                f"`index` must be in [0, {len(self.vocabulary)}). "
                f"Received: index={index}."
            )
        return self.vocabulary[index]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary": self.get_vocabulary(),
            "sequence_length": self.sequence_length,
            "lowercase": self.lowercase,
        }


def _fast_tokenizer(vocabulary: Sequence[str], lowercase: bool) -> Any:
    tensorflow_text = _import_tensorflow_text()
    import tensorflow as tf

    # The models of the tokenizer are constants, made here once: not in the
    # graph that happens to be traced, and on the CPU, where its ops run.
    with tf.init_scope(), tf.device("CPU:0"):
        try:
            return tensorflow_text.FastBertTokenizer(
                list(vocabulary),
                token_out_type=tf.int32,
                unknown_token=UNK,
                lower_case_nfd_strip_accents=lowercase,
            )
        except RuntimeError as error:
            raise ValueError(
                f"`vocabulary` is not one that TF-Text can use: {error}"
            ) from error


def _import_tensorflow_text() -> Any:
    try:
        import tensorflow_text
    except ImportError as error:
        raise ImportError(
            "`WordpieceTokenizer` needs TensorFlow and TF-Text, of the same "
            "minor version: `pip install tensorflow tensorflow-text`. TF-Text "
            "has no wheel for Windows; use the Windows Subsystem for Linux."
        ) from error
    return tensorflow_text
