"""Vectors rounded to integers, and how a verification settles near-ties.

A number within rounding of the middle between two integers may become either of
them: runtimes that agree except in the last bit then differ by a whole step. A
verification runs the model without this last layer's rounding, and takes the
other runtime's integer where both are equally near, and nowhere else.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import check_inputs
from keras_posenc.ops.named import NamedArguments
from keras_posenc.ops.reductions import largest

# The layers that do not round. Of one thread, so that a verification changes
# nothing for a model that is in use in another.
_UNROUNDED: contextvars.ContextVar[frozenset[int]] = contextvars.ContextVar(
    "keras_posenc_unrounded_vectors", default=frozenset()
)


class RoundedVectors(NamedArguments, keras.Layer):
    """Base of layers that round vectors `(batch, dim)` to integers.

    A subclass has `rounded_dtype`, that of its outputs; `width(dim)`, how many
    integers a vector becomes; `rounded(x)`, which rounds floats; `relative(x)`,
    floats over the largest one of their vector, which decide what is near; and
    `settled(x, outputs, tolerance)`, which rounds those, but where a number is
    as near to what it is in `outputs`, of this layer's shape, as that.
    """

    rounded_dtype: str

    def width(self, dim: int) -> int:
        raise NotImplementedError

    def rounded(self, x: Any) -> Any:
        raise NotImplementedError

    def relative(self, x: Any) -> Any:
        raise NotImplementedError

    def settled(self, x: Any, outputs: Any, tolerance: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def finite(x: Any) -> Any:
        """Returns vectors with 0 instead of NaN and infinities."""
        # A cast makes another integer of NaN in each runtime.
        is_finite = ops.absolute(x) < float("inf")
        return ops.where(is_finite, x, ops.zeros_like(x))

    @staticmethod
    def size(x: Any) -> Any:
        """Returns the largest absolute number of each vector, `(batch, 1)`."""
        return largest(ops.absolute(x), axis=-1, keepdims=True)

    @staticmethod
    def divisor(size: Any) -> Any:
        """Returns sizes with 1 instead of 0."""
        return ops.where(size > 0, size, ops.ones_like(size))

    @contextlib.contextmanager
    def unrounded(self) -> Iterator[None]:
        """Within, the layer returns `relative` floats, for a verification."""
        token = _UNROUNDED.set(_UNROUNDED.get() | {id(self)})
        try:
            yield
        finally:
            _UNROUNDED.reset(token)

    def call(self, inputs: Any) -> Any:
        check_inputs(self, inputs, ("batch", "dim"))
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        if id(self) in _UNROUNDED.get():
            return self.relative(x)
        return ops.cast(self.rounded(x), self.rounded_dtype)

    def compute_output_spec(self, inputs: Any) -> Any:
        check_inputs(self, inputs, ("batch", "dim"))
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.rounded_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, dim = input_shape
        return (batch, self.width(dim))
