"""Checks of tensors and shapes, in one voice.

Every message names the argument, what it must be, and what came.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops


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
