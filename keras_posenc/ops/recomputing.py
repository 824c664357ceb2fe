"""What is computed anew where its gradients are asked for, and not kept."""

from collections.abc import Callable, Sequence
from typing import Any

import keras


def recomputed(
    function: Callable[..., Any],
    *args: Any,
    values: Sequence[tuple[Any, Any]] = (),
) -> Any:
    """`function(*args)`, of which gradients keep the arguments alone.

    Gradients reach arguments of reals and the values, and nothing else that
    the function uses.

    Args:
        function: Gives one tensor or a list, the same whenever it is called.
        *args: Tensors, or None.
        values: Variables of Keras that the function reads, and the tensors
            that it is to find there. In loops, TensorFlow hands no gradients
            to variables.
    """
    given = [*args, *(value for _, value in values)]
    reals = [i for i, x in enumerate(given) if x is not None and _is_real(x)]

    def run(*tensors: Any) -> Any:
        filled = list(given)
        for i, tensor in zip(reals, tensors, strict=True):
            filled[i] = tensor
        held = [
            (variable, tensor)
            for (variable, _), tensor in zip(
                values, filled[len(args) :], strict=True
            )
        ]
        with keras.StatelessScope(held):
            return function(*filled[: len(args)])

    return keras.remat(run)(*(given[i] for i in reals))


def _is_real(x: Any) -> bool:
    return keras.backend.is_float_dtype(x.dtype)
