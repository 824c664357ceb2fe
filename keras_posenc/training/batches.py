"""Batches of texts of similar length, and rows of several texts."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checks import check_bool, check_positive_int


def batch_by_length(
    dataset: Any,
    *,
    boundaries: Sequence[int],
    tokens: int,
    drop_longer: bool = False,
    drop_remainder: bool = False,
) -> Any:
    """Batches sequences of ids by length, with about as many tokens in each.

    >>> import tensorflow as tf
    >>> from keras_posenc import training
    >>> rows = tf.ragged.constant([[5], [6, 7, 8], [9, 9], [4]])
    >>> dataset = tf.data.Dataset.from_tensor_slices(rows)
    >>> batches = training.batch_by_length(
    ...     dataset, boundaries=[2, 4], tokens=6
    ... )
    >>> for batch in batches:
    ...     print(batch.numpy().tolist())
    [[6, 7, 8, 0]]
    [[5, 0], [9, 9], [4, 0]]

    A sequence goes to the first boundary that is at least its length; with
    several features, the longest counts. A batch is padded to its boundary, so
    there is one shape for each boundary, and XLA compiles once for each. It has
    as many sequences as `tokens` allows for that length, at least one.
    Sequences keep their order within a boundary: shuffle first.

    Args:
        dataset: a `tf.data.Dataset` of ids, of shape (any,): a tensor, or a
            dict, tuple or list of them, which may be nested.
        boundaries: the lengths to pad to, increasing.
        tokens: how many tokens a batch has at most in each feature, padding
            included.
        drop_longer: whether sequences longer than the last boundary are left
            out. If not, the dataset raises an `InvalidArgumentError` for them.
        drop_remainder: whether the last, incomplete batch of each boundary is
            left out.

    Returns:
        A `tf.data.Dataset` of the same features, of shape (batch, boundary).

    Raises:
        ValueError: if the boundaries are not positive and increasing, `tokens`
            is below the last, or a feature does not have one axis.
    """
    import tensorflow as tf

    if not isinstance(boundaries, Sequence):
        raise ValueError(
            "`boundaries` must be a sequence of integers. "
            f"Received: boundaries={boundaries!r}"
        )
    boundaries = [check_positive_int("boundaries", b) for b in boundaries]
    tokens = check_positive_int("tokens", tokens)
    if not boundaries or sorted(set(boundaries)) != boundaries:
        raise ValueError(
            "`boundaries` must be increasing, and at least one. "
            f"Received: boundaries={boundaries}"
        )
    last = boundaries[-1]
    if tokens < last:
        raise ValueError(
            f"`tokens` must be at least the last boundary, {last}. "
            f"Received: tokens={tokens}"
        )
    check_bool("drop_longer", drop_longer)
    dataset = as_rows(dataset)

    def length(*features: Any) -> Any:
        sizes = [tf.shape(each)[0] for each in tf.nest.flatten(features)]
        return tf.reduce_max(tf.stack(sizes))

    def checked(*features: Any) -> Any:
        size = length(*features)
        message = tf.strings.format(
            "A row has {} tokens, and the last of `boundaries` is "
            f"{last}. Give a longer one, or `drop_longer=True`.",
            size,
        )
        # As a dependency: datasets run only what their elements need.
        with tf.control_dependencies([tf.Assert(size <= last, [message])]):
            features = tf.nest.map_structure(tf.identity, features)
        return features if len(features) > 1 else features[0]

    if drop_longer:
        dataset = dataset.filter(lambda *features: length(*features) <= last)
    else:
        dataset = dataset.map(checked)
    return dataset.bucket_by_sequence_length(
        length,
        # Keras's boundaries are exclusive; the last bucket stays empty.
        [boundary + 1 for boundary in boundaries],
        [*(tokens // boundary for boundary in boundaries), 1],
        pad_to_bucket_boundary=True,
        drop_remainder=drop_remainder,
    )


def as_rows(dataset: Any) -> Any:
    """Returns the dataset, whose elements are tensors of one axis.

    Raises:
        ValueError: if they are anything else.
    """
    import tensorflow as tf

    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            "`dataset` must be a tf.data.Dataset. "
            f"Received: dataset={dataset!r:.80}"
        )
    specs = tf.nest.flatten(dataset.element_spec)
    for spec in specs:
        if getattr(spec, "shape", tf.TensorShape(None)).rank != 1:
            raise ValueError(
                "`dataset` must hold ids of shape (any,). "
                f"Received: an element {spec}"
            )
    # Slices of a ragged tensor become tensors when they are mapped.
    if all(isinstance(spec, tf.TensorSpec) for spec in specs):
        return dataset
    return dataset.map(
        lambda *features: features if features[1:] else features[0]
    )


def pack_sequences(dataset: Any, length: int, *, window: int = 1_000) -> Any:
    """Packs texts one after another into rows of one length.

    >>> import tensorflow as tf
    >>> from keras_posenc import training
    >>> texts = tf.ragged.constant([[5, 6], [7], [8, 9, 9]])
    >>> dataset = tf.data.Dataset.from_tensor_slices(texts)
    >>> for row in training.pack_sequences(dataset, 4):
    ...     print(*(row[name].numpy() for name in sorted(row)))
    [5 6 7 0] [0 1 0 0] [1 1 2 0]
    [8 9 9 0] [0 1 2 0] [1 1 1 0]

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
