"""Vectors rounded to integers, and how a verification settles near-ties.

A number within rounding of the middle between two integers may become either of
them: runtimes that agree except in the last bit then differ by a whole step. A
verification runs the model again, and has it take the other runtime's integer
where both are equally near, and nowhere else.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import check_inputs
from keras_posenc.ops.named import NamedArguments
from keras_posenc.ops.reductions import largest

# By layer, the outputs of another runtime and a tolerance. Of one thread, so
# that a verification changes nothing for a model that is in use in another.
_GIVEN: contextvars.ContextVar[Mapping[int, tuple[Any, Any]] | None] = (
    contextvars.ContextVar("keras_posenc_rounded_vectors", default=None)
)


class RoundedVectors(NamedArguments, keras.Layer):
    """Base of layers that round vectors `(batch, dim)` to integers.

    A subclass has `rounded_dtype`, that of its outputs; `width(dim)`, how many
    integers a vector becomes; and `rounded(x, given)`, which rounds floats, by
    what `choosing` was given, if not None.
    """

    takes_vectors = False  # inputs need the axis `dim`
    rounded_dtype: str

    def width(self, dim: int) -> int:
        raise NotImplementedError

    def rounded(self, x: Any, given: Any) -> Any:
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

    @contextlib.contextmanager
    def choosing(self, outputs: Any, tolerance: Any) -> Iterator[None]:
        """Within, near-ties are decided as in the outputs given.

        Exports are verified with this.

        Args:
            outputs: The outputs of another runtime, of this layer's shape.
            tolerance: How far a number may be off, relative to the largest one
                of its vector.
        """
        given = {**(_GIVEN.get() or {}), id(self): (outputs, tolerance)}
        token = _GIVEN.set(given)
        try:
            yield
        finally:
            _GIVEN.reset(token)

    def call(self, inputs: Any) -> Any:
        check_inputs(self, inputs, ("batch", "dim"))
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        given = (_GIVEN.get() or {}).get(id(self))
        return ops.cast(self.rounded(x, given), self.rounded_dtype)

    def compute_output_spec(self, inputs: Any) -> Any:
        check_inputs(self, inputs, ("batch", "dim"))
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.rounded_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, dim = input_shape
        return (batch, self.width(dim))
