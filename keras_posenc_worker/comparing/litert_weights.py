"""Which constants of a LiteRT file hold which of a model's weights."""

from collections.abc import Iterator
from typing import Any

from keras_posenc_worker.comparing.arrays import layouts
from keras_posenc_worker.comparing.litert_graph import (
    Constant,
    File,
    as_list,
    plain,
)

_HALF = 0.5 * (1 + 1e-3)  # a step of rounding, as float32 may fall


def reached(file: File, names: list[str]) -> list[Constant]:
    """The constants that signatures' outputs, or states, come from."""
    found: dict[tuple[int, int], Constant] = {}
    remaining = []
    for name in names:
        signature = file.signatures[name]
        index = signature.subgraphIndex
        remaining += [
            (index, each.tensorIndex) for each in signature.outputs or []
        ]
    entered: set[int] = set()
    seen = set()
    makers: dict[int, dict[int, Any]] = {}

    def follow(index: int, operator: Any) -> None:
        remaining.extend((index, i) for i in as_list(operator.inputs))
        for setting in ("builtinOptions", "builtinOptions2"):
            for key, value in plain(setting, getattr(operator, setting)):
                if "subgraph" in key.lower() and value >= 0:
                    remaining.extend(
                        (value, i) for i in as_list(file.graphs[value].outputs)
                    )
                    enter(value)

    def enter(index: int) -> None:
        if index in entered:
            return
        entered.add(index)
        makers[index] = {}
        for operator in file.graphs[index].operators:
            outputs = as_list(operator.outputs)
            makers[index].update(dict.fromkeys(outputs, operator))
            if not outputs:  # it changes what others read
                follow(index, operator)

    while remaining:
        index, tensor = remaining.pop()
        if tensor < 0 or (index, tensor) in seen:
            continue
        seen.add((index, tensor))
        enter(index)
        if tensor in makers[index]:
            follow(index, makers[index][tensor])
            continue
        value = file.graphs[index].tensors[tensor]
        constant = file.constant(value)
        if constant is not None:
            found[index, tensor] = constant
    return list(found.values())


def laid_out(value: Any, constant: Constant) -> Iterator[Any]:
    """A weight with its axes in each order, in a constant's shape."""
    if value.size == constant.array.size:
        for each in layouts(value):
            yield each.reshape(constant.array.shape)


def is_of(value: Any, constant: Constant, is_static: bool) -> bool:
    """Whether a constant is a weight, exactly or correctly rounded."""
    import numpy as np

    if constant.is_rounded and value.dtype.kind == "f":
        return is_rounding_of(value, constant, is_static)
    if constant.array.dtype == "float16":
        with np.errstate(over="ignore"):
            value = value.astype("float16")
    return bool(
        value.dtype == constant.array.dtype
        and np.ascontiguousarray(value).tobytes() == constant.content
    )


def is_rounding_of(value: Any, constant: Constant, is_static: bool) -> bool:
    """Whether integers are a weight, quantized by a correct scale.

    A scale is right that the largest number of its channel, or of all, comes
    from. Where it was measured, on some rows of a table or on what comes in,
    it may be less, and what is beyond is cut off.
    """
    import numpy as np

    if not constant.is_whole():
        return False
    scale = constant.by_channel(constant.scale)
    zero = constant.by_channel(constant.zero)
    if not (np.all(np.isfinite(scale)) and np.all(scale > 0)):
        return False
    value = value.astype("float64")
    limits = np.iinfo(constant.array.dtype)
    is_measured = (
        is_static
        and constant.array.dtype == "int8"
        and len(constant.scale) == 1
    )
    if not np.all(
        (zero >= limits.min) & (zero <= limits.max)
        if is_measured
        else zero == 0
    ):
        return False
    if constant.array.dtype == "int8":
        axes: tuple[int, ...] | None = None
        if len(constant.scale) > 1:
            axes = tuple(i for i in range(value.ndim) if i != constant.axis)
        low = np.minimum(np.min(value, axis=axes, keepdims=True), 0)
        high = np.maximum(np.max(value, axis=axes, keepdims=True), 0)
        right = np.maximum(-low, high) / 127
        is_empty = right == 0
        is_right = np.abs(scale / np.where(is_empty, 1, right) - 1) <= 1e-6
        if is_measured:
            is_right |= scale <= (high - low) / 255 * (1 + 1e-6)
        if not np.all(is_right | is_empty):
            return False
    wanted = np.clip(value / scale + zero, limits.min, limits.max)
    return bool(np.all(np.abs(constant.array - wanted) <= _HALF))


def is_near(one: Constant, other: Constant) -> bool:
    """Whether integers of two scales may stand for the same numbers."""
    import numpy as np

    if not (one.is_whole() and other.is_whole()):
        return False
    step = one.by_channel(one.scale) + other.by_channel(other.scale)
    return bool(np.all(np.abs(one.real() - other.real()) <= _HALF * step))
