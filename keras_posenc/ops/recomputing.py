"""Functions that are computed again for gradients, to save memory."""

from collections.abc import Callable, Sequence
from typing import Any

import keras


def recomputed(
    function: Callable[..., Any],
    *args: Any,
    values: Sequence[tuple[Any, Any]] = (),
) -> Any:
    """Returns `function(*args)`; for gradients only the arguments are kept.

    Gradients reach float arguments and the values, and nothing else that the
    function uses.

    Args:
        function: Returns one tensor or a list, the same for each call.
        *args: Tensors, or None.
        values: Keras variables that the function reads, with the tensors that
            it reads instead. In loops, TensorFlow gives variables no
            gradients.
    """
    given = [*args, *(value for _, value in values)]
    floats = [i for i, x in enumerate(given) if x is not None and _is_float(x)]

    def run(*tensors: Any) -> Any:
        filled = list(given)
        for i, tensor in zip(floats, tensors, strict=True):
            filled[i] = tensor
        held = [
            (variable, tensor)
            for (variable, _), tensor in zip(
                values, filled[len(args) :], strict=True
            )
        ]
        with keras.StatelessScope(held):
            return function(*filled[: len(args)])

    return keras.remat(run)(*(given[i] for i in floats))


def _is_float(x: Any) -> bool:
    return keras.backend.is_float_dtype(x.dtype)
