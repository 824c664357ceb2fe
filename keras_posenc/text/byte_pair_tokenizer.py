"""Byte-level BPE tokenization as a layer."""

import codecs
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_bool, check_choice
from keras_posenc.text._tokenizer import Tokenizer, import_tensorflow_text
from keras_posenc.text.byte_pair_words import PATTERNS, byte_pair_words
from keras_posenc.text.byte_pairs import BYTES, BytePairs, spelled_bytes
from keras_posenc.text.spelled_tokens import ids_around, spelling
from keras_posenc.text.tokenizer_file import (
    BYTE_LEVEL,
    of_byte_pairs,
    read_file,
)
from keras_posenc.text.wordpiece_vocabulary import check_vocabulary


@keras.saving.register_keras_serializable(package="keras_posenc")
class BytePairTokenizer(Tokenizer):
    """Turns strings into ids of a byte-level BPE vocabulary, inside the model.

    >>> from keras_posenc import BytePairTokenizer
    >>> tokenizer = BytePairTokenizer.from_tokenizer_json(
    ...     "roberta-base/tokenizer.json"
    ... )  # doctest: +SKIP
    >>> tokenizer(["Hello world"])  # doctest: +SKIP

    The tokenizers of RoBERTa, ModernBERT, EuroBERT, GPT-2, Llama 3, Qwen 2 and
    3 and SmolLM2, from Hugging Face's `tokenizer.json` by
    `from_tokenizer_json`. A text is split into words by a regular expression;
    the space before a word belongs to the word. Each word starts as bytes, of
    which neighbors are merged in the order of `merges`. No text is unknown,
    and invalid UTF-8 counts as U+FFFD. The ids are those of the library
    "tokenizers".

    Inputs, outputs, mask, config and backends are as for `WordpieceTokenizer`.
    The operators are TensorFlow's own; with `normalization` TF-Text's too.
    `detokenize` returns texts, up to the first end, with U+FFFD where ids are
    not valid UTF-8.

    Args:
        vocabulary: tokens in the order of their ids, spelled as in GPT-2's
            `vocab.json`: with one character for each byte, "Ġ" for the space.
            Bytes that it lacks, such as those of control characters, are left
            out of texts.
        merges: pairs of tokens, with a space in between, in order of priority,
            as in `merges.txt`.
        sequence_length: as for `WordpieceTokenizer`, as are the next two.
        max_length: the most ids of a text, where that is None.
        num_separators: for pairs of texts.
        pattern: how words are found: `"gpt2"`; `"llama3"`, where a word may
            start with any one character, and has at most three digits;
            `"qwen2"`, as that with single digits; `"smollm2"`, as `"gpt2"`
            with single digits.
        normalization: None, or `"nfc"`, which composes letters and marks.
        add_prefix_space: whether to add a space before texts without one.
        ignore_merges: whether a word that is a token stays one, whatever the
            merges make of it.
        start_token: the token before each text, or None for none.
        end_token: the token after each text, or None for none.
        pad_token: the token of padding; None pads with -1, for models of
            `pad_id=-1`, where every token is one of a text.
        special_tokens: tokens that become one id wherever a text contains
            them; the parts before and after are tokenized separately. One with
            a space in front, `" <mask>"`, also takes all white space there.
        added_tokens: as `special_tokens`, but found in the normalized text,
            between the special ones. They may be white space.
        skipped_tokens: tokens that `detokenize` leaves out, such as those that
            mark the turns of a chat.
        **kwargs: Keras' `name` and the like.

    Raises:
        ValueError: if the vocabulary is empty, lacks a byte or a special token,
            or holds a token twice; or if a merge is not of its tokens.

    References:
        - Sennrich et al. 2016, [Neural Machine Translation of Rare Words with
          Subword Units](https://arxiv.org/abs/1508.07909)
        - Radford et al. 2019, [Language Models are Unsupervised Multitask
          Learners](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)
    """

    unknown_id = -1  # no id: no text is unknown
    vocabulary: Sequence[str]
    merges: Sequence[str]
    _ids: Mapping[str, int]
    _spelled: Sequence[bytes]

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        merges: Sequence[str],
        sequence_length: int | None = None,
        max_length: int | None = None,
        num_separators: int | None = None,
        pattern: str = "gpt2",
        normalization: str | None = None,
        add_prefix_space: bool = False,
        ignore_merges: bool = False,
        start_token: str | None = "<s>",
        end_token: str | None = "</s>",
        pad_token: str | None = "<pad>",
        special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        skipped_tokens: Sequence[str] = (),
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
        # Past Keras, which looks at each item to track it: for seconds.
        keep = functools.partial(object.__setattr__, self)
        keep("vocabulary", tuple(vocabulary))
        keep("merges", tuple(merges))
        self.pad_token = pad_token
        self.special_tokens = tuple(special_tokens)
        self.added_tokens = tuple(added_tokens)
        spelled = [*map(spelling, (*self.special_tokens, *self.added_tokens))]
        self.skipped_tokens = tuple(skipped_tokens)
        framing = [
            each
            for each in (start_token, end_token, pad_token)
            if each is not None
        ]
        check_vocabulary(
            self.vocabulary, [*framing, *spelled, *self.skipped_tokens]
        )
        places = sum(map(len, self.vocabulary))
        if len(self.merges) > places:
            raise ValueError(
                "`merges` must be at most as many as the places where tokens "
                f"can be split, fewer than {places}. "
                f"Received: {len(self.merges)} merges."
            )
        keep("_ids", {token: i for i, token in enumerate(self.vocabulary)})
        # A token that is None has no id.
        self.start_id, self.end_id, self.pad_id = (
            -1 if token is None else self._ids[token]
            for token in (start_token, end_token, pad_token)
        )
        self.skipped_ids = tuple(self._ids[t] for t in self.skipped_tokens)
        self.pattern = check_choice("pattern", pattern, PATTERNS)
        self.normalization = check_choice(
            "normalization", normalization, (None, "nfc")
        )
        if normalization is not None:
            import_tensorflow_text("BytePairTokenizer")
        self.add_prefix_space = check_bool("add_prefix_space", add_prefix_space)
        self.ignore_merges = check_bool("ignore_merges", ignore_merges)
        named = {*framing, *spelled}
        parts = {each for pair in self.merges for each in pair.split(" ")}
        if clash := sorted(named & (parts | {*BYTES})):
            raise ValueError(
                "Special tokens must be neither bytes nor parts of `merges`. "
                f"Received: {clash[0]!r}."
            )
        self._pairs = BytePairs(
            {t: i for t, i in self._ids.items() if t not in named},
            self.merges,
            ignore_merges,
        )
        keep(
            "_spelled",
            [
                token.encode() if token in named else spelled_bytes(token)
                for token in self.vocabulary
            ],
        )
        import tensorflow as tf

        # Made once: it takes long for large vocabularies.
        with tf.init_scope(), tf.device("CPU:0"):
            self._pieces_of_ids = tf.constant(self._spelled)

    @classmethod
    def from_tokenizer_json(
        cls, path: str | os.PathLike[str], **kwargs: Any
    ) -> Self:
        """Returns a tokenizer that gives the ids of Hugging Face's file.

        Args:
            path: a `tokenizer.json` of type BPE, byte-level.
            **kwargs: as for the constructor; the file's by default.
                `pad_token` is required where the file has none, or one that is
                also at the start or end of texts.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file has a setting that is not supported, or no
                padding.
        """
        options = {**read_file(path, BYTE_LEVEL), **kwargs}
        if "pad_token" not in options:
            raise ValueError(
                "`pad_token=` must be given, a special token that no text has, "
                "or None for a model of pad_id=-1: the file has none, or one "
                "that is also at the start or end of texts. "
                f"Received: path='{path}'."
            )
        if options.get("sequence_length") is not None:
            options["max_length"] = kwargs.get("max_length")
        return cls(**options)

    @property
    def frame(self) -> tuple[int, int]:
        return int(self.start_token is not None), int(
            self.end_token is not None
        )

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        x = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        return ids_around(self.special_tokens, self._ids, x, self._normalized)

    def _normalized(self, texts: Any) -> Any:
        if self.normalization is not None:
            tensorflow_text = import_tensorflow_text("BytePairTokenizer")
            texts = tensorflow_text.normalize_utf8(texts, "NFC")
        return ids_around(self.added_tokens, self._ids, texts, self._pieces)

    def _pieces(self, texts: Any) -> Any:
        import tensorflow as tf

        if self.add_prefix_space:
            texts = tf.strings.regex_replace(texts, "^[^ ]", r" \0")
        words = byte_pair_words(texts, self.pattern)
        # Unique words: most words occur again and again.
        each, places = tf.unique(words.flat_values)
        ids = tf.gather(self._pairs.cut(each), places)
        return words.with_flat_values(ids).merge_dims(1, 2)

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        pieces = tf.where(kept, tf.gather(self._pieces_of_ids, ids), "")
        text = tf.strings.reduce_join(pieces, axis=-1)
        if self.add_prefix_space:
            text = tf.strings.regex_replace(text, "^ ", "")
        return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")

    def settled(self, ids: Sequence[int]) -> Sequence[int]:
        spelled = [b"" if i < 0 else self._spelled[i] for i in ids]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(b"".join(spelled))
        pending, _ = decoder.getstate()
        count, left = len(ids), len(pending)
        while left > 0:
            count -= 1
            left -= len(spelled[count])
        return ids[:count]

    def tokenizer_json(self) -> dict[str, Any]:
        return of_byte_pairs(self)
