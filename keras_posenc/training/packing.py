"""Packing several texts into a row, with segment ids."""

from typing import Any

from keras_posenc.checks import check_positive_int
from keras_posenc.training.batches import as_rows


def pack_sequences(dataset: Any, length: int, *, window: int = 1_000) -> Any:
    """Packs texts one after another into rows of one length.

    Texts keep their order. A text starts a new row if one of its features does
    not fit into the last; each `window` of texts starts one too. No text is
    cut.

    Args:
        dataset: a `tf.data.Dataset` of ids, of shape (any,): a tensor, a dict
            or a tuple of them. Source and target are packed together: the texts
            of a row are the same in both.
        length: the length of a row, in every feature.
        window: how many texts are packed at a time. The last row of each window
            stays incomplete.

    Returns:
        A `tf.data.Dataset` with the same features, each a dict of `ids`,
        `segment_ids` and `positions`, int32 of shape (length,). Segments count
        from 1, and positions from 0 in each; both are 0 for padding. Attention
        takes 0 as one more segment: padding that may hold NaN needs a mask.

    Raises:
        ValueError: if `length` or `window` is not a positive integer, or a
            feature does not have one axis, or no integers. For a text longer
            than `length`, the dataset raises an `InvalidArgumentError`.

    Example:
        >>> import tensorflow as tf
        >>> from keras_posenc import training
        >>> texts = tf.ragged.constant([[5, 6], [7], [8, 9, 9]])
        >>> dataset = tf.data.Dataset.from_tensor_slices(texts)
        >>> for row in training.pack_sequences(dataset, 4):
        ...     print(*(row[name].numpy() for name in sorted(row)))
        [5 6 7 0] [0 1 0 0] [1 1 2 0]
        [8 9 9 0] [0 1 2 0] [1 1 1 0]
    """
    import tensorflow as tf

    length = check_positive_int("length", length)
    window = check_positive_int("window", window)
    dataset = as_rows(dataset)
    for spec in tf.nest.flatten(dataset.element_spec):
        if not spec.dtype.is_integer:
            raise ValueError(
                "`dataset` must hold ids of an integer dtype. "
                f"Received: an element {spec}"
            )

    def rows_of(sizes: Any) -> Any:
        """Returns the row of each text, for sizes (texts, features)."""

        def place(state: Any, size: Any) -> Any:
            row, used = state
            fits = tf.reduce_all(used + size <= length)
            return tf.where(fits, row, row + 1), tf.where(
                fits, used + size, size
            )

        # Full before the first text, so that rows count from 0.
        full = tf.fill(tf.shape(sizes)[1:], length)
        row, _ = tf.scan(place, sizes, (tf.constant(-1), full))
        # A text without tokens fits a full row, but not one before the first.
        return tf.maximum(row, 0)

    def packed(texts: Any, rows: Any) -> Any:
        """Packs one feature: ragged texts to rows of ids and their places."""
        first = tf.searchsorted(rows, rows)  # the first text of the same row
        segments = tf.range(tf.shape(rows)[0]) - first + 1
        owner = texts.value_rowids()  # the text of each token
        places = tf.range(tf.size(owner)) - tf.gather(texts.row_starts(), owner)
        count = tf.reduce_max(rows) + 1
        into = tf.gather(rows, owner)

        def full(values: Any) -> Any:
            ragged = tf.RaggedTensor.from_value_rowids(values, into, count)
            return ragged.to_tensor(shape=(None, length))

        return {
            "ids": full(tf.cast(texts.flat_values, tf.int32)),
            "segment_ids": full(tf.gather(segments, owner)),
            "positions": full(places),
        }

    def pack(*features: Any) -> Any:
        # Texts of one static length are a tensor, not ragged.
        ragged = [
            (
                each
                if isinstance(each, tf.RaggedTensor)
                else tf.RaggedTensor.from_tensor(each)
            ).with_row_splits_dtype(tf.int32)
            for each in tf.nest.flatten(features)
        ]
        sizes = tf.stack([each.row_lengths() for each in ragged], axis=1)
        message = (
            f"A text has more than the {length} tokens that `length` gives a "
            "row."
        )
        check = tf.Assert(tf.reduce_all(sizes <= length), [message])
        with tf.control_dependencies([check]):
            rows = rows_of(tf.identity(sizes))
        found = tf.nest.pack_sequence_as(
            features, [packed(each, rows) for each in ragged]
        )
        return found if len(features) > 1 else found[0]

    return dataset.ragged_batch(window).map(pack).unbatch()
