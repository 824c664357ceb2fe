"""Checks of constructor arguments, in one voice.

Every message names the argument, what it must be, and what came.
"""

import inspect
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Returns `value` if it is one of `choices`, else raises `ValueError`."""
    # Keras reads "add" in a `.h5` file as its function of that name.
    if inspect.isfunction(value):
        value = value.__name__
    if isinstance(value, str | None) and value in choices:
        return value
    *most, last = [repr(choice) for choice in choices]
    raise ValueError(
        f"`{name}` must be {', '.join(most)} or {last}. "
        f"Received: {name}={value!r}"
    )


def check_integer(name: str, value: Any) -> int:
    """Returns `value` if it is an integer, else raises `ValueError`."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r}")


def check_positive_int(name: str, value: Any) -> int:
    """Returns `value` if it is an integer above 0, else `ValueError`."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number <= 0:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}"
        )
    return number


def check_count(name: str, value: Any) -> int:
    """Returns `value` if it is an integer from 0 on, else `ValueError`."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(
            f"`{name}` must be an integer of at least 0. "
            f"Received: {name}={value!r}"
        )
    return number


def check_index(name: str, value: Any, size: int) -> int:
    """Returns `value` if it counts one of `size` things, else `ValueError`."""
    if not isinstance(value, bool):
        try:
            index = operator.index(value)
        except TypeError:
            index = -1
        if 0 <= index < size:
            return index
    raise ValueError(
        f"`{name}` must be an integer in [0, {size}). "
        f"Received: {name}={value!r}"
    )


def check_rate(name: str, value: Any) -> float:
    """Returns `value` if it is a dropout rate in [0, 1), else `ValueError`."""
    if is_number(value) and 0 <= value < 1:
        return float(value)
    raise ValueError(
        f"`{name}` must be a number in [0, 1). Received: {name}={value!r}"
    )


def check_positive(name: str, value: Any) -> float:
    """Returns `value` if it is finite and above 0, else `ValueError`."""
    if is_number(value) and math.isfinite(value) and value > 0:
        return float(value)
    raise ValueError(
        f"`{name}` must be a positive finite number. Received: {name}={value!r}"
    )


def check_max_wavelength(value: Any) -> float:
    """Returns `value` if it is finite and at least 1, else `ValueError`."""
    if is_number(value) and math.isfinite(value) and value >= 1:
        return float(value)
    raise ValueError(
        "`max_wavelength` must be a finite number of at least 1. "
        f"Received: max_wavelength={value!r}"
    )


def check_bool(name: str, value: Any) -> bool:
    """Returns `value` if it is a bool, else raises `ValueError`."""
    if isinstance(value, bool):
        return value
    raise ValueError(
        f"`{name}` must be True or False. Received: {name}={value!r}"
    )


def check_shape(
    name: str,
    value: Any,
    *expected: tuple[str, ...],
    sizes: Mapping[str, int | None],
) -> None:
    """Holds a tensor's shape to one of those expected, where sizes are known.

    A batch of 1 stands for any batch.

    Args:
        name: The argument's name.
        value: The tensor, symbolic or not, or what becomes one. None passes.
        *expected: Shapes as names of axes, such as `("batch", "seq")`.
        sizes: The sizes of those axes, None where unknown.

    Raises:
        ValueError: No expected shape fits.
    """
    if value is None:
        return
    if not hasattr(value, "shape"):
        value = ops.convert_to_tensor(value)
    shape = tuple(value.shape)
    for axes in expected:
        if len(axes) == len(shape) and all(
            size is None
            or sizes[axis] in (None, size)
            or (axis == "batch" and size == 1)
            for axis, size in zip(axes, shape, strict=True)
        ):
            return
    wanted = " or ".join(
        "(" + ", ".join(axes) + ("," if len(axes) == 1 else "") + ")"
        for axes in expected
    )
    known = ", ".join(
        f"{axis}={size}" for axis, size in sizes.items() if size is not None
    )
    raise ValueError(
        f"`{name}` must have shape {wanted}{known and ', with '}{known}. "
        f"Received: {name} of shape {shape}"
    )


def check_mask(name: str, value: Any) -> None:
    """Raises `ValueError` for a mask of reals.

    Elsewhere these are added to the scores, 0 where a query may attend: the
    opposite of what they would say here.
    """
    if value is None:
        return
    if not hasattr(value, "dtype"):
        value = ops.convert_to_tensor(value)
    dtype = keras.backend.standardize_dtype(value.dtype)
    if "float" in dtype:
        raise ValueError(
            f"`{name}` must be bool, True where a token is real or may be "
            f"attended to. Received: {name} of dtype {dtype}; cast it to bool"
        )


def check_integers(name: str, value: Any) -> None:
    """Raises `ValueError` unless the tensor is of an integer dtype."""
    if not hasattr(value, "dtype"):
        value = ops.convert_to_tensor(value)
    dtype = keras.backend.standardize_dtype(value.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be of an integer dtype. "
            f"Received: {name} of dtype {dtype}"
        )


def check_real(name: str, value: Any) -> None:
    """Raises `ValueError` unless the tensor is of integers or reals."""
    if value is None:
        return
    if not hasattr(value, "dtype"):
        value = ops.convert_to_tensor(value)
    dtype = keras.backend.standardize_dtype(value.dtype)
    if "int" not in dtype and "float" not in dtype:
        raise ValueError(
            f"`{name}` must be of an integer or float dtype. "
            f"Received: {name} of dtype {dtype}"
        )


def check_built_for(
    layer: keras.Layer, what: str, built_for: Any, received: Any
) -> None:
    """Raises `ValueError` unless queries are what the weights are made for."""
    if built_for != received:
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' was built for queries of "
            f"{what} {built_for}. Received: queries of {what} {received}"
        )


def check_position_tensors(
    batch: Any,
    seq: Any,
    positions: Any,
    start_index: Any,
    segment_ids: Any,
    mask: Any,
) -> None:
    """Holds what says where tokens stand to its shapes, dtypes and company.

    Raises:
        ValueError: One does not fit, or `positions` come with a start.
    """
    sizes, row = {"batch": batch, "seq": seq}, ("batch", "seq")
    check_shape("mask", mask, row, sizes=sizes)
    check_shape("positions", positions, ("seq",), row, sizes=sizes)
    check_shape("segment_ids", segment_ids, row, sizes=sizes)
    check_shape("start_index", start_index, (), ("batch",), sizes=sizes)
    check_integers("start_index", start_index)
    check_real("positions", positions)
    if segment_ids is not None:
        check_integers("segment_ids", segment_ids)
    has_start = not isinstance(start_index, int) or start_index
    if positions is not None and has_start:
        raise ValueError(
            "`positions` says where every token stands, and cannot be used "
            "with start_index"
        )


def known_values(x: Any) -> np.ndarray | None:
    """The values of a tensor, or None while a graph is traced."""
    if isinstance(x, keras.KerasTensor):
        return None
    try:
        return np.asarray(ops.convert_to_numpy(x))
    except Exception:  # each backend refuses with an error of its own
        return None


def check_inputs(
    layer: keras.Layer,
    inputs: Any,
    axes: Sequence[str] = ("batch", "seq", "dim"),
) -> None:
    """Raises `ValueError` unless the inputs have these axes, and are floats."""
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    check_input_shape(layer, inputs.shape, axes, dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' expects inputs of a float "
            "dtype, such as the output of an Embedding layer. "
            f"Received: inputs of dtype {dtype}"
        )
    if layer.built and layer.weights:
        built_for = keras.Layer.get_build_config(layer)["input_shape"]
        if built_for[-1] != inputs.shape[-1]:
            raise ValueError(
                f"{type(layer).__name__} '{layer.name}' was built for inputs "
                f"of width {built_for[-1]}. Received: inputs of shape "
                f"{tuple(inputs.shape)}"
            )


def check_input_shape(
    layer: keras.Layer, shape: Any, axes: Sequence[str], dtype: str = ""
) -> None:
    """Raises `ValueError` unless there are these axes, the last one known.

    A layer that is being built knows no dtype of its inputs.
    """
    if len(shape) != len(axes) or not shape[-1]:
        hint = ""
        if tuple(axes[:2]) == ("batch", "seq") and len(shape) == 2:
            if "int" in dtype:
                hint = ". Ids go through a keras.layers.Embedding first"
            elif not dtype:
                hint = ". If these are ids, a keras.layers.Embedding goes first"
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' expects inputs of shape "
            f"({', '.join(axes)}), with {axes[-1]} known and above 0. "
            f"Received: inputs of shape {tuple(shape)}{hint}"
        )


def check_sequence_shape(layer: keras.Layer, shape: Any) -> None:
    """Raises `ValueError` unless the shape is `(batch, seq, dim)`."""
    check_input_shape(layer, shape, ("batch", "seq", "dim"))


def is_number(value: Any) -> bool:
    """Whether `value` is one number, NumPy's too, and no bool."""
    return not isinstance(value, bool | str | bytes) and (
        hasattr(value, "__float__") and getattr(value, "shape", ()) == ()
    )
