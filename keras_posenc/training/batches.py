"""Batches of texts of similar length, with little padding."""

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

    Example:
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
