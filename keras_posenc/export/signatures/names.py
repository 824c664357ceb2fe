"""Names, shapes and outputs of a model's own, as a signature has them."""

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checks import as_integer
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
            f"Model '{model.name}' has nested outputs, and an exported model "
            "names each output. Make them one dict of tensors"
            + _FLATTENED
            * bool(getattr(model, "inputs", None))
        )


_FLATTENED = (
    ": `keras.Model(model.input, {f'output_{n}': x for n, x in "
    "enumerate(keras.tree.flatten(model.output))})`"
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


def as_served(structure: Any, outputs: dict[str, Any]) -> Any:
    """Outputs by name in the structure in which their model returns them.

    Args:
        structure: The model's symbolic output.
        outputs: The named outputs, and perhaps more.
    """
    count = len(keras.tree.flatten(structure))
    if isinstance(structure, Mapping) or len(outputs) != count:
        return dict(outputs)
    values = list(outputs.values())
    return values if count > 1 else values[0]  # as Keras returns them


def is_sequential(model: keras.Model) -> bool:
    """Whether a model is a chain of layers, which keeps no output names."""
    return isinstance(model, keras.Sequential)


def check_names(
    signature: str, names: list[str], model: keras.Model | None = None
) -> None:
    """Raises `ValueError` for names that an artifact cannot have as inputs.

    Args:
        signature: The name of the signature.
        names: The names.
        model: Whose inputs have these names, if they are its own.
    """
    if all(_is_plain(name) and names.count(name) == 1 for name in names):
        return
    remedy = "give it one by keras.Input(..., name='ids')"
    if model is not None:
        plain = [
            name
            if _is_plain(name)
            else re.sub("[^A-Za-z0-9]+", "_", f"x_{name}")
            for name in names
        ]
        unique = [
            f"{name}_{index}" if plain.count(name) > 1 else name
            for index, name in enumerate(plain)
        ]
        remedy = f"give it one by `{_renamed(model, unique)}`"
    raise ValueError(
        f"Signature '{signature}': the name of an input must be an "
        f"identifier in ASCII, and unique; {remedy}. "
        f"Received: {', '.join(names)}"
    )


def _is_plain(name: str) -> bool:
    """Whether TensorFlow can make node names and Python arguments of it."""
    return (
        re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) is not None
        and not keyword.iskeyword(name)
        and name != "self"
    )


def _renamed(model: keras.Model, names: Sequence[str]) -> str:
    """Python that makes `model` one with other names of its inputs."""
    made = [
        input_code(tensor.shape, tensor.dtype, name)
        for tensor, name in zip(model.inputs, names, strict=True)
    ]
    if is_sequential(model):
        return begun_by(made[0])
    if not keras.tree.is_nested(model.input):
        return f"keras.Model(x := {made[0]}, model(x))"
    packed = keras.tree.pack_sequence_as(model.input, made)
    inputs = str(packed).replace('"', "")  # of the code, which is no string
    # Keras warns of dicts whose keys are not the names.
    return f"keras.Model(keras.tree.flatten(x := {inputs}), model(x))"


def begun_by(inputs: str) -> str:
    """Python that gives a `Sequential` called `model` an input, by its code."""
    return f"keras.Sequential([{inputs}, *model.layers])"


def input_code(shape: Sequence[int | None], dtype: str, name: str) -> str:
    """Python of a `keras.Input`, batch first in the shape."""
    batch, *rest = shape
    first = f"{(*rest,)}" if batch is None else f"batch_shape={(*shape,)}"
    return f"keras.Input({first}, dtype='{dtype}', name='{name}')"


def in_code(
    shapes: Mapping[str, Mapping[str, Any]],
    dtypes: Mapping[str, str] | None = None,
) -> str:
    """The `signatures` of a model called `model`, and the command's options.

    Args:
        shapes: Shapes by the name of the input, by that of the signature.
        dtypes: Those of the inputs, of a model that does not know its own.
    """

    def spec(name: str, shape: Sequence[int | None]) -> str:
        if dtypes is None:
            return f"{(*shape,)}"
        return f"keras.InputSpec(shape={(*shape,)}, dtype='{dtypes[name]}')"

    def sizes(shape: Sequence[int | None]) -> str:
        return "x".join("?" if each is None else f"{each}" for each in shape)

    code = ", ".join(
        f"'{signature}': (model, {{"
        + ", ".join(f"'{name}': {spec(name, own[name])}" for name in own)
        + "})"
        for signature, own in shapes.items()
    )
    if dtypes is None:
        options = " ".join(
            f"--signature {signature}="
            + ",".join(f"{name}:{sizes(shape)}" for name, shape in own.items())
            for signature, own in shapes.items()
        )
    else:
        options = " ".join(
            f"--input {name}:{dtypes[name]}:{sizes(shape)}"
            for own in [*shapes.values()][:1]
            for name, shape in own.items()
        )
    return f"`signatures={{{code}}}` ({options})"


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
        size is None or (as_integer(size) or 0) > 0 for size in shape
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
