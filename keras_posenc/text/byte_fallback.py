"""Texts of tokens of which some are single bytes, in TensorFlow."""

from typing import Any

# What the library "tokenizers" writes for a byte that is not UTF-8.
_LOST = "\ufffd"


def join_with_bytes(pieces: Any, is_byte: Any, ids: Any, kept: Any) -> Any:
    """Returns the texts of ids, as the library "tokenizers" joins them.

    Neighbouring bytes are characters if they are UTF-8 together; otherwise
    each of them is U+FFFD.

    Args:
        pieces: the text, or the byte, of each token, `(vocabulary,)`.
        is_byte: whether a token is a byte, `(vocabulary,)`.
        ids: integers `(..., seq)`.
        kept: which of them count, of the same shape.
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
