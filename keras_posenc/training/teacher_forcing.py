"""The inputs and targets of a decoder in training."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import (
    check_count,
    check_integer,
    check_positive_int,
)
from keras_posenc.ops.arguments import check_integers, check_shape, known_values
from keras_posenc.ops.named import NamedArguments


@keras.saving.register_keras_serializable(package="keras_posenc")
class TeacherForcing(NamedArguments, keras.layers.Layer):
    """Turns target ids into a decoder's inputs and targets.

    >>> import numpy as np
    >>> from keras_posenc import training
    >>> ids = np.array([[5, 6, 3, 0], [7, 3, 0, 0]])
    >>> inputs, targets = training.TeacherForcing(start_id=2)(ids)
    >>> print(np.array(inputs))
    [[2 5 6 0]
     [2 7 0 0]]
    >>> print(np.array(targets))
    [[5 6 3 0]
     [7 3 0 0]]

    The inputs are the targets one token late: at each position the token before
    it. With `start_id` they start with that id, in each row, after padding on
    its left, and in each segment of a packed row. Without, ids must start with
    a start symbol, as a tokenizer adds it; it is not a target. Inputs are
    padding where targets are, and in place of the end symbol.

    Both carry the Keras mask `!= pad_id`.

    Args:
        start_id: the id to start with, or None if ids have it.
        pad_id: the id of padding, as of the model.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: integer ids of shape (batch, seq), padded left or right.
        segment_ids: the segment of each token of a packed row, of shape
            (batch, seq).

    Returns:
        A pair of int32 ids, inputs and targets, of shape (batch, seq). Without
        `start_id` both are shorter by one; use `segment_ids[:, :-1]` and
        `positions[:, :-1]` with them.

    Raises:
        ValueError: if `start_id` is not an id or None, or all rows start with
            it already; if the ids are not integers with two axes, or below 0
            and not padding; or if `segment_ids` do not fit them.
    """

    def __init__(
        self, *, start_id: int | None = None, pad_id: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.pad_id = check_integer("pad_id", pad_id)
        if start_id is not None:
            check = check_positive_int if pad_id == 0 else check_count
            start_id = check("start_id", start_id)
        self.start_id = start_id
        self.supports_masking = True
        self.autocast = False

    def call(
        self,
        inputs: Any,
        *,
        segment_ids: Any = None,
        mask: Any = None,
    ) -> tuple[Any, Any]:
        if len(inputs.shape) != 2:
            raise ValueError(
                f"Layer '{self.name}' expects ids of shape (batch, seq). "
                f"Received: shape={tuple(inputs.shape)}"
            )
        check_integers("inputs", inputs)
        batch, seq = inputs.shape
        check_shape(
            "segment_ids",
            segment_ids,
            ("batch", "seq"),
            sizes={"batch": batch, "seq": seq},
        )
        self._check_known(known_values(inputs))
        ids = ops.cast(inputs, "int32")
        before, targets = ids[:, :-1], ids[:, 1:]
        apart = False
        if segment_ids is not None:
            segments = ops.cast(segment_ids, "int32")
            apart = ops.not_equal(segments[:, :-1], segments[:, 1:])
        # Starts: no real token of the same segment is before.
        begins = ops.logical_or(ops.equal(before, self.pad_id), apart)
        if self.start_id is None:
            targets = ops.where(begins, self.pad_id, targets)
            given = before
        else:
            targets = ids
            given = ops.pad(
                ops.where(begins, self.start_id, before),
                ((0, 0), (1, 0)),
                constant_values=self.start_id,
            )
        given = ops.where(ops.equal(targets, self.pad_id), self.pad_id, given)
        return given, targets

    def _check_known(self, values: Any) -> None:
        """Raises `ValueError` for ids below 0, and for a start symbol."""
        if values is None:
            return
        is_real = values != self.pad_id
        wrong = values[(values < 0) & is_real]
        if wrong.size:
            raise ValueError(
                f"`inputs` has {wrong[0]}, which is no id, and this layer has "
                f"pad_id={self.pad_id}. If it is the model's padding, as in "
                f"loaded generators, give pad_id={wrong[0]} here and "
                f"ignored_id={wrong[0]} to the loss and the metrics"
            )
        if self.start_id is None or not is_real.any():
            return
        first = is_real.argmax(axis=1)[:, np.newaxis]
        starts = np.take_along_axis(values, first, axis=1)
        if np.all(starts[is_real.any(axis=1)] == self.start_id):
            raise ValueError(
                f"`start_id` is put before ids without a start symbol, but "
                "these have it, as from a tokenizer: leave `start_id` out. "
                f"Received: start_id={self.start_id}"
            )

    def compute_mask(
        self, inputs: Any, previous_mask: Any = None
    ) -> tuple[Any, Any]:
        given, targets = self.call(inputs)
        return tuple(ops.not_equal(x, self.pad_id) for x in (given, targets))

    def build(self, input_shape: Any) -> None:
        self.built = True

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
        batch, length = input_shape
        if self.start_id is None and length is not None:
            length -= 1
        return (batch, length), (batch, length)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "start_id": self.start_id,
            "pad_id": self.pad_id,
        }
