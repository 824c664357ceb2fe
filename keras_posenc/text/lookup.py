"""Strings to ids, in TensorFlow, without a table.

A graph would have to be given the resource of a table; sorted constants are a
part of it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


def hashed(strings: Any) -> Any:
    """Returns a number for each string, int64, the same in all processes."""
    import tensorflow as tf

    return tf.strings.to_hash_bucket_fast(strings, np.iinfo(np.int64).max)


class Lookup:
    """The ids of strings."""

    def __init__(self, ids: Mapping[Any, int], default: int) -> None:
        import tensorflow as tf

        with tf.init_scope(), tf.device("CPU:0"):
            strings = tf.constant([*ids])
            hashes = hashed(strings)
            order = tf.argsort(hashes)
            self._hashes = tf.gather(hashes, order)
            self._strings = tf.gather(strings, order)
            self._ids = tf.gather(tf.constant([*ids.values()], "int32"), order)
        self._default = default

    def __call__(self, strings: Any) -> Any:
        """Returns int32 ids of strings, of the same shape `(any,)`."""
        import tensorflow as tf

        found = tf.searchsorted(self._hashes, hashed(strings))
        found = tf.minimum(found, tf.size(self._hashes) - 1)
        is_known = tf.gather(self._strings, found) == strings
        return tf.where(is_known, tf.gather(self._ids, found), self._default)
