"""Bytes as tokens, as a layer."""

from typing import Any

import keras

from keras_posenc.text._framed_tokenizer import FramedTokenizer
from keras_posenc.text.tokenizer_json import of_bytes


@keras.saving.register_keras_serializable(package="keras_posenc")
class ByteTokenizer(FramedTokenizer):
    """Turns strings into ids of their bytes, and back; nothing is unknown.

    Id 0 is padding, 2 the start of a text, 3 its end, and byte b is b + 4: 260
    ids in all. 1, which means unknown in a `CharacterTokenizer`, never occurs.
    All bytes have ids, valid UTF-8 or not. An empty text is a start and an end.

    `detokenize` returns texts, up to the first end. Where ids are not valid
    UTF-8, because a text was cut within a character or a model chose them, and
    for id 1, it returns U+FFFD.

    The output carries the Keras mask `ids != 0`. The operators are TensorFlow's
    own. The layer has no weights, runs on the CPU and cannot be compiled by
    XLA. On the JAX and PyTorch backends, which have no strings, it works
    outside models: on strings and in `dataset.map`.

    Args:
        sequence_length: number of ids per text: longer texts are cut, keeping
            the end, shorter ones padded. None pads to the longest text of the
            batch and cuts nothing.
        max_length: the most ids of a text, where `sequence_length` is None:
            longer texts are cut, and all are padded to the longest one.
        add_start: whether each text starts with `start_id`.
        add_end: whether each text ends with `end_id`.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: strings of shape (batch,): a tensor, an array or a list.

    Returns:
        int32 ids of shape (batch, sequence_length), or (batch, longest).

    Raises:
        ValueError: if `sequence_length` is too short for an empty text; if the
            inputs are not strings of shape (batch,).

    Example:
        >>> from keras_posenc import ByteTokenizer
        >>> tokenizer = ByteTokenizer()
        >>> ids = tokenizer(["né", "a"])
        >>> print(ids.numpy())
        [[  2 114 199 173   3]
         [  2 101   3   0   0]]
        >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
        ['né', 'a']

    References:
        - Xue et al. 2021, [ByT5](https://arxiv.org/abs/2105.13626)
    """

    def __init__(
        self,
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        add_start: bool = True,
        add_end: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            sequence_length=sequence_length,
            max_length=max_length,
            add_start=add_start,
            add_end=add_end,
            **kwargs,
        )

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        pieces = tf.strings.bytes_split(texts)  # (batch, any), of one byte each
        codes = tf.io.decode_raw(pieces.flat_values, tf.uint8)
        codes = tf.cast(tf.reshape(codes, (-1,)), "int32")
        return pieces.with_flat_values(codes + self.first_id)

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        # No byte of UTF-8, so it becomes U+FFFD below.
        special = [b"\xff"] * self.first_id
        pieces = tf.constant([*special, *(bytes([b]) for b in range(256))])
        pieces = tf.where(kept, tf.gather(pieces, ids), "")
        return tf.strings.unicode_transcode(
            tf.strings.reduce_join(pieces, axis=-1), "UTF-8", "UTF-8"
        )

    def tokenizer_json(self) -> dict[str, Any]:
        return of_bytes(self)

    def vocabulary_size(self) -> int:
        """Returns how many ids there are: four, and one for each byte."""
        return self.first_id + 256
