"""Names, shapes and outputs of a model's own, as a signature has them."""

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.keras_internals import layer_behind


def input_names(model: keras.Model) -> list[str]:
    """The names of the input layers, which loading does not change."""
    return [layer_behind(tensor).name for tensor in model.inputs]


def check_outputs(model: keras.Model, outputs: Any) -> None:
    """Raises `ValueError` for outputs that are dicts or lists within others."""
    values = outputs.values() if isinstance(outputs, Mapping) else outputs
    if isinstance(outputs, Mapping | Sequence) and any(
        keras.tree.is_nested(value) for value in values
    ):
        raise ValueError(
            f"Model '{model.name}' has nested outputs; an artifact names "
            "each output, so they must be one dict of tensors"
        )


def named_outputs(model: keras.Model, outputs: Any) -> dict[str, Any]:
    """Outputs by name: dict keys, else the names of the output layers."""
    check_outputs(model, outputs)
    if not isinstance(outputs, Mapping | Sequence):
        outputs = [outputs]
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if is_sequential(model) and model.layers:
        names = [model.layers[-1].name]
    else:
        names = list(getattr(model, "output_names", None) or [])
    if len(names) != len(outputs) or len(set(names)) != len(names):
        names = [f"output_{index}" for index in range(len(outputs))]
    return dict(zip(names, outputs, strict=True))


def output_of(model: keras.Model) -> Any:
    """The symbolic output of a model that is a graph."""
    return model.outputs[0] if is_sequential(model) else model.output


def is_sequential(model: keras.Model) -> bool:
    """Whether a model is a chain of layers, which keeps no output names."""
    return isinstance(model, keras.Sequential)


def check_names(signature: str, names: list[str]) -> None:
    """Raises `ValueError` for names that an artifact cannot have as inputs."""
    for name in names:
        # Of these names TensorFlow makes node names and Python arguments.
        is_plain = re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
        if (
            not is_plain
            or keyword.iskeyword(name)
            or name == "self"
            or names.count(name) > 1
        ):
            raise ValueError(
                f"Signature '{signature}': the name of an input must be an "
                "identifier in ASCII, and unique; give it one by "
                f"keras.Input(..., name='ids'). Received: {', '.join(names)}"
            )


def narrowed(
    signature: str, name: str, spec: keras.InputSpec, shape: Any
) -> keras.InputSpec:
    """The spec with the given shape, if the model's own admits it."""
    if isinstance(shape, keras.InputSpec):
        if shape.dtype not in (None, spec.dtype):
            raise ValueError(
                f"Signature '{signature}': input '{name}' of the model is of "
                f"dtype {spec.dtype}. Received: dtype {shape.dtype}"
            )
        shape = shape.shape
    is_shape = isinstance(shape, Sequence) and all(
        size is None
        or (
            isinstance(size, int | np.integer)
            and not isinstance(size, bool)
            and size > 0
        )
        for size in shape
    )
    if (
        not is_shape
        or len(shape) != len(spec.shape)
        or any(
            own is not None and size != own
            for own, size in zip(spec.shape, shape, strict=True)
        )
    ):
        raise ValueError(
            f"Signature '{signature}': input '{name}' of the model has shape "
            f"{tuple(spec.shape)}, of which each None may stay, or become an "
            f"integer above 0. Received: shape {shape}"
        )
    sizes = tuple(None if size is None else int(size) for size in shape)
    return keras.InputSpec(shape=sizes, dtype=spec.dtype)
