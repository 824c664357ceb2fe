"""Checks of tensors and shapes, with uniform messages.

Every message names the argument, what it must be, and what it was.
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
    """Raises `ValueError` unless a tensor has one of the expected shapes.

    These are names of axes, whose `sizes` are None if unknown. None passes, and
    a batch of 1 is broadcast to any.
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
    """Raises `ValueError` for a mask of floats.

    Other libraries add those to the scores, 0 where a query may attend: as a
    bool mask they would mean the opposite.
    """
    if value is not None and "float" in (dtype := _dtype_of(value)):
        raise ValueError(
            f"`{name}` must be bool, True where a token is real or may be "
            f"attended to. Received: {name} of dtype {dtype}; cast it to bool"
        )


def check_integers(name: str, value: Any) -> None:
    """Raises `ValueError` unless the tensor is of an integer dtype."""
    if "int" not in (dtype := _dtype_of(value)):
        raise ValueError(
            f"`{name}` must be of an integer dtype. "
            f"Received: {name} of dtype {dtype}"
        )


def check_real(name: str, value: Any) -> None:
    """Raises `ValueError` unless the tensor is of integers or floats."""
    dtype = "int" if value is None else _dtype_of(value)
    if "int" not in dtype and "float" not in dtype:
        raise ValueError(
            f"`{name}` must be of an integer or float dtype. "
            f"Received: {name} of dtype {dtype}"
        )


def _dtype_of(value: Any) -> str:
    if not hasattr(value, "dtype"):
        value = ops.convert_to_tensor(value)
    return keras.backend.standardize_dtype(value.dtype)


def check_built_for(
    layer: keras.Layer, what: str, built_for: Any, received: Any
) -> None:
    """Raises `ValueError` unless queries are as the layer was built for."""
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
    axes: int | None = None,
) -> None:
    """Checks the arguments of a call that give positions, of so many `axes`."""
    sizes, row = {"batch": batch, "seq": seq}, ("batch", "seq")
    check_shape("mask", mask, row, sizes=sizes)
    if axes is None:
        check_shape("positions", positions, ("seq",), row, sizes=sizes)
    else:
        vectors = (*row, "axes")
        check_shape(
            "positions", positions, vectors, sizes=sizes | {"axes": axes}
        )
    check_shape("segment_ids", segment_ids, row, sizes=sizes)
    check_shape("start_index", start_index, (), ("batch",), sizes=sizes)
    check_integers("start_index", start_index)
    check_real("positions", positions)
    if segment_ids is not None:
        check_integers("segment_ids", segment_ids)
    has_start = not isinstance(start_index, int) or start_index
    if positions is not None and has_start:
        raise ValueError(
            "`positions` gives the position of every token, and cannot be used "
            "with start_index"
        )


def known_values(x: Any) -> np.ndarray | None:
    """Returns the values of a tensor; None while a graph is traced."""
    if isinstance(x, keras.KerasTensor):
        return None
    try:
        return np.asarray(ops.convert_to_numpy(x))
    except Exception:  # each backend raises another one
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

    For `build`, which gets no dtype of the inputs.
    """
    if len(shape) != len(axes) or not shape[-1]:
        hint = ""
        if tuple(axes[:2]) == ("batch", "seq") and len(shape) == 2:
            if "int" in dtype:
                hint = ". Ids need a keras.layers.Embedding first"
            elif not dtype:
                hint = ". If these are ids, they need an Embedding layer first"
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}' expects inputs of shape "
            f"({', '.join(axes)}), with {axes[-1]} known and above 0. "
            f"Received: inputs of shape {tuple(shape)}{hint}"
        )


def check_tokens(layer: keras.Layer, inputs: Any, mask: Any) -> None:
    """Raises `ValueError` unless inputs and mask are those of sequences."""
    check_inputs(layer, inputs)
    batch, seq, _ = inputs.shape
    sizes = {"batch": batch, "seq": seq}
    check_shape("mask", mask, ("batch", "seq"), sizes=sizes)
    check_mask("mask", mask)


def check_sequence_shape(layer: keras.Layer, shape: Any) -> None:
    """Raises `ValueError` unless the shape is `(batch, seq, dim)`."""
    check_input_shape(layer, shape, ("batch", "seq", "dim"))
