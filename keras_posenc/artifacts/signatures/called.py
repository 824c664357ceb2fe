"""Models that know their inputs only from having been called."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_posenc.artifacts.signatures.naming import (
    as_served,
    check_names,
    in_code,
    named_outputs,
    narrowed,
)
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

_INTEGERS = (
    keras.layers.CategoryEncoding,
    keras.layers.Embedding,
    keras.layers.HashedCrossing,
    keras.layers.Hashing,
    keras.layers.IntegerLookup,
)

_OPTIONS = ("mask", "training")


def takes_ids(model: keras.Model, shape: Sequence[int | None]) -> bool:
    """Whether an input may be ids, whatever dtype Keras took it for."""
    return len(shape) <= 2 and any(
        isinstance(layer, _INTEGERS) for layer in layers_within(model)
    )


def with_shapes(
    name: str,
    model: keras.Model,
    specs: Mapping[str, keras.InputSpec],
    shapes: Mapping[str, Any],
) -> dict[str, keras.InputSpec]:
    """The specs of a signature's inputs, with some shapes that were given."""
    specs = dict(specs)
    for input_name, shape in shapes.items():
        if input_name not in specs:
            raise ValueError(
                f"Signature '{name}': model '{model.name}' has no input "
                f"'{input_name}'. Its inputs are: {', '.join(specs)}"
            )
        specs[input_name] = narrowed(name, input_name, specs[input_name], shape)
    return specs


def signature_of_called(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    """The signature of a model that is no graph, such as a subclass.

    Args:
        name: The signature's.
        model: The model, which was called on data.
        shapes: A `keras.InputSpec` for each of its inputs by name. Without
            them the shapes that it was called with are its own, with any
            batch, where these are of floats and `call` takes nothing else;
            plain shapes narrow these.

    Raises:
        ValueError: A model that was not called, or of which nothing says what
            dtype its inputs have.
    """
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built, and so has no weights. Call "
            "it once on a batch of its inputs, `model(x)`, and export it again"
        )
    recorded = _recorded(model)
    are_specs = bool(shapes) and all(
        isinstance(spec, keras.InputSpec) for spec in shapes.values()
    )
    if are_specs:
        specs = dict(shapes)
    elif (
        recorded
        and len(_arguments(model)) == 1
        and not any(takes_ids(model, shape) for shape in recorded.values())
    ):
        known = {
            each: keras.InputSpec(shape=(None, *shape[1:]), dtype="float32")
            for each, shape in recorded.items()
        }
        specs = with_shapes(name, model, known, shapes)
    else:
        raise ValueError(
            f"Model '{model.name}' does not know its inputs: build it with "
            "keras.Input, or give a keras.InputSpec for each input, as "
            f"{_remedy(name, model, recorded)}"
        )
    for input_name, spec in specs.items():
        if spec.shape is None or spec.dtype is None:
            raise ValueError(
                f"Signature '{name}': the keras.InputSpec of '{input_name}' "
                f"must have a shape and dtype. Received: {spec}"
            )
    check_names(name, list(specs))
    structure = (model.get_build_config() or {}).get("input_shape")
    is_list = isinstance(structure, list | tuple) and not _is_shape(structure)
    by_key = isinstance(structure, Mapping) or len(specs) > 1
    by_argument = not (
        isinstance(structure, Mapping) and {*structure} == {*specs}
    ) and set(specs) <= set(inspect.signature(model.call).parameters)

    returned: list[Any] = []  # the structure, which only a call shows

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        tensors = {input_name: tensors[input_name] for input_name in specs}
        if by_argument:
            outputs = model(**tensors, training=False)
        elif is_list:
            outputs = model([*tensors.values()], training=False)
        elif by_key:
            outputs = model(tensors, training=False)
        else:
            outputs = model(*tensors.values(), training=False)
        returned[:] = [keras.tree.map_structure(lambda _: 0, outputs)]
        return named_outputs(model, outputs)

    arguments: list[Any] = [*specs]
    if is_list and not by_argument:
        arguments = [[*specs]]
    elif by_key and not by_argument:
        arguments = [{each: each for each in specs}]
    return Signature(
        name,
        model,
        specs,
        call,
        arguments=arguments,
        pack=lambda outputs: as_served(returned[-1], outputs),
    )


def _arguments(model: keras.Model) -> list[str]:
    """What the model's `call` takes, besides what every layer may."""
    return [
        name
        for name in inspect.signature(model.call).parameters
        if name not in _OPTIONS
    ]


def _recorded(model: keras.Model) -> dict[str, tuple[int | None, ...]]:
    """The shapes of the first argument of the model's first call, by name.

    Keras keeps no others, but where the model has a `build` that takes them.
    """
    config = model.get_build_config() or {}
    structure = config.get("input_shape")
    name = next(iter(_arguments(model)), "inputs")
    if "shapes_dict" in config:  # those of the arguments of its own `build`
        found: Mapping[str, Any] = {
            each.removesuffix("_shape"): shape
            for each, shape in config["shapes_dict"].items()
        }
    elif _is_shape(structure):
        found = {name: structure}
    elif isinstance(structure, Mapping):
        found = structure
    else:
        found = {f"{name}_{n}": each for n, each in enumerate(structure or [])}
    if not all(map(_is_shape, found.values())):
        return {}
    return {each: tuple(shape) for each, shape in found.items()}


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(size is None or isinstance(size, int) for size in value)
    )


def _remedy(
    name: str,
    model: keras.Model,
    recorded: Mapping[str, tuple[int | None, ...]],
) -> str:
    """The signatures to give, by what is known of the model's inputs."""
    shapes, dtypes = {}, {}
    for each, shape in (recorded or {"ids": (None, None)}).items():
        are_ids = takes_ids(model, shape) or not recorded
        dtypes[each] = "int32" if are_ids else "float32"
        shapes[each] = (None, *(None if are_ids else n for n in shape[1:]))
    return in_code({name: shapes}, dtypes)


def of_one_row(signatures: Sequence[Signature]) -> str:
    """The `signatures` to give for a batch of one, in Python and as options."""
    shapes = {
        signature.name: {
            name: (1, *spec.shape[1:]) for name, spec in signature.specs.items()
        }
        for signature in signatures
    }
    dtypes = {
        name: spec.dtype
        for signature in signatures
        for name, spec in signature.specs.items()
    }
    know = all(getattr(each.model, "inputs", None) for each in signatures)
    return in_code(shapes, None if know else dtypes)
