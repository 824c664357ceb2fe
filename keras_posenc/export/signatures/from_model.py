"""From a model, and what its caller says, to the signatures of an artifact."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import in_words
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.signatures.cut_strings import cut_strings, from_ids
from keras_posenc.export.signatures.names import (
    as_served,
    begun_by,
    check_names,
    check_outputs,
    in_code,
    input_code,
    input_names,
    is_sequential,
    named_outputs,
    narrowed,
    output_of,
)
from keras_posenc.export.signatures.signature import (
    DEFAULT,
    Signature,
    offered,
    offered_in_numbers,
)
from keras_posenc.keras_internals import layers_within

# What is told of a model that has signatures of its own.
_OFFERED = (
    "Leave `signatures` out, or give one of generator.offered_signatures()"
)


def check_model(model: Any) -> None:
    """Raises `ValueError` for what is no model, such as the path of one."""
    if isinstance(model, keras.Model):
        return
    hint = _of_keras_2(model)
    if isinstance(model, str | Path):
        hint = f". Load it: keras.saving.load_model('{model}')"
    raise ValueError(
        f"`model` must be a keras.Model. Received: model={model!r}{hint}"
    )


def _of_keras_2(value: Any) -> str:
    """What to do with a model of `tf_keras`, which is another package."""
    if not any("tf_keras" in kind.__module__ for kind in type(value).__mro__):
        return ""
    return (
        ", of tf_keras, which is Keras 2. Build it with layers of Keras 3, or "
        "save it by model.save('model.keras') and load it with Keras 3: "
        "keras.saving.load_model('model.keras')"
    )


def resolve_signatures(
    model: keras.Model, signatures: Mapping[str, Any] | None = None
) -> list[Signature]:
    """The signatures that an artifact of `model` has.

    Args:
        model: The model to export.
        signatures: For each name a model, or a pair of a model and a dict of
            the shapes (or `keras.InputSpec`s) of its inputs by name. By
            default those that the model offers (see `offered`), else
            `serving_default`, and `from_ids` where the model takes strings:
            the model cut at its first numeric tensor.

    Returns:
        One `Signature` for each name.

    Raises:
        ValueError: A model that is not built, or names or shapes that do not
            fit it.
    """
    check_model(model)
    if signatures is None and not (signatures := offered(model)):
        default = _signature(DEFAULT, model, {})
        cut = from_ids(default)
        return [default] if cut is None else [default, cut]
    return [_signature(*given) for given in as_given(signatures)]


def as_given(
    signatures: Any,
) -> Iterator[tuple[str, keras.Model, Mapping[str, Any]]]:
    """The name, the model and the shapes by input name of each signature.

    Raises:
        ValueError: What was given is no dict of these.
    """
    if not isinstance(signatures, Mapping) or not signatures:
        raise ValueError(
            "`signatures` must be a dict of a model, or of a pair (model, "
            f"shapes), by name, such as {{'{DEFAULT}': model}}. Received: "
            f"signatures={signatures!r}"
        )
    for name, value in signatures.items():
        pair = value if isinstance(value, tuple | list) else (value, {})
        if (
            not isinstance(name, str)
            or not re.fullmatch(r"(?!__saved_model)\w+", name)
            or len(pair) != 2
            or not isinstance(pair[0], keras.Model)
        ):
            raise ValueError(
                "`signatures` must map names, of letters, digits and "
                "underscores, to a keras.Model or to a pair (model, shapes). "
                f"Received: {name!r}: {value!r}{_hint(pair[:1])}"
            )
        model, shapes = pair
        if not isinstance(shapes, Mapping):
            raise ValueError(
                f"Signature '{name}': shapes must be a dict by input name. "
                f"Received: {shapes!r}"
            )
        if Offers.of(model).is_drawn:
            raise ValueError(
                f"Signature '{name}': model '{model.name}' draws random "
                "numbers by a seed of its own, so that no file can reproduce "
                f"its outputs. {_OFFERED}, which take the noise too"
            )
        yield name, model, shapes


def _hint(given: Any) -> str:
    """What is to be given in place of a model's method."""
    if given and (hint := _of_keras_2(given[0])):
        return hint
    model = getattr(given[0], "__self__", None) if given else None
    if not isinstance(model, keras.Model):
        return ""
    if not offered(model):
        return ", a method: give the model"
    return (
        ", a method: give the model, or one of "
        f"generator.offered_signatures(): {', '.join(offered(model))}"
    )


def resolve_numeric_signatures(
    model: keras.Model, signatures: Mapping[str, Any] | None = None
) -> list[Signature]:
    """Signatures without strings, for runtimes that cannot tokenize.

    Like `resolve_signatures`, but a model that takes strings goes out from
    what they become: see `cut_strings`. Shapes are of these inputs.

    Raises:
        ValueError: Also for a signature that cannot be cut.
    """
    check_model(model)
    given = signatures
    if given is None:
        given = offered_in_numbers(model) or {DEFAULT: model}
    resolved = [_numeric_signature(*each) for each in as_given(given)]
    for signature in resolved:
        for name, spec in signature.specs.items():
            if spec.dtype == "string":
                raise ValueError(
                    "LiteRT and ONNX take no strings. Received: signature "
                    f"'{signature.name}' with the string input '{name}'; give "
                    "a model that begins with numbers"
                )
            if spec.dtype == "bfloat16":
                raise ValueError(
                    "LiteRT and ONNX take no bfloat16 inputs. Received: "
                    f"signature '{signature.name}' with the bfloat16 input "
                    f"'{name}'; give it as float32"
                )
    return resolved


def _numeric_signature(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    inputs = getattr(model, "inputs", None) or []
    if any(tensor.dtype == "string" for tensor in inputs):
        whole = _signature(name, model, {})
        try:
            cut = cut_strings(whole)
        except ValueError as error:
            hint = f". {_OFFERED}, such as 'from_ids'" if offered(model) else ""
            raise ValueError(
                f"LiteRT and ONNX take no strings, and signature '{name}' "
                f"cannot begin where its strings become numbers: {error}{hint}"
            ) from error
        specs = with_shapes(name, model, cut.specs, shapes)
        return dataclasses.replace(cut, specs=specs)
    return _signature(name, model, shapes)


def _signature(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return signature_of_called(name, model, shapes)
    _check_inputs(name, model)
    names = input_names(model)
    check_names(name, names, model)
    specs = {
        input_name: keras.InputSpec(shape=tensor.shape, dtype=tensor.dtype)
        for input_name, tensor in zip(names, inputs, strict=True)
    }
    if _is_guess(model) and "int" not in inputs[0].dtype:
        # It has the first data's batch for its own, and floats in the dtype
        # that its first layer computes in.
        dtype = inputs[0].dtype
        specs[names[0]] = keras.InputSpec(
            shape=(None, *inputs[0].shape[1:]),
            dtype="float32" if dtype.endswith("float16") else dtype,
        )
    if not is_sequential(model):
        check_outputs(model, model.output)
    specs = with_shapes(name, model, specs, shapes)
    structure = inputs[0] if is_sequential(model) else model.input

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        packed = keras.tree.pack_sequence_as(
            structure, [tensors[input_name] for input_name in names]
        )
        return named_outputs(model, model(packed, training=False))

    return Signature(
        name,
        model,
        specs,
        call,
        arguments=[keras.tree.pack_sequence_as(structure, names)],
        pack=functools.partial(as_served, output_of(model)),
    )


def _check_inputs(name: str, model: keras.Model) -> None:
    """Raises `ValueError` for a `Sequential` that guessed that ids are floats.

    Without `keras.Input` it takes the first data's very shape for its own, and
    float32 for the dtype, of ids too.
    """
    if not is_sequential(model) or not _is_guess(model):
        return
    (tensor,) = model.inputs
    if "float" not in tensor.dtype or not takes_ids(model, tensor.shape):
        return
    shape, why = _longest(model, tensor.shape)
    begin = input_code(shape, "int32", "ids")
    sizes = "x".join("?" if size is None else f"{size}" for size in shape)
    raise ValueError(
        f"Signature '{name}': model '{model.name}' takes only "
        f"{tensor.dtype} of shape {tuple(tensor.shape)}, as one does that "
        "was built from data. Begin it with what it is to take, which keeps "
        f"the weights: `{begun_by(begin)}` (--input ids:int32:{sizes}){why}"
    )


def _longest(
    model: keras.Model, shape: Sequence[int | None]
) -> tuple[tuple[int | None, ...], str]:
    """Returns a shape of any batch, and of any length if all layers take it.

    Else which layer does not, in words, and what it raises.
    """
    x = keras.Input((None,), dtype="int32")
    longer = np.zeros((1, (shape[-1] or 1) + 1), "int32")
    for layer in model.layers:
        try:
            x, longer = layer(x), layer(longer)
        except Exception as error:  # layers may be anyone's
            reason = next(iter(in_words(error).splitlines()), "")
            return (None, *shape[1:]), (
                f". Its length is fixed, since layer '{layer.name}' takes no "
                f"other: {reason or type(error).__name__}"
            )
    return (None, None), ""


def _is_guess(model: keras.Model) -> bool:
    """Whether it is a `Sequential` whose input the first data made."""
    return is_sequential(model) and bool(
        re.fullmatch(r"input_layer(_\d+)?", input_names(model)[0])
    )


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
