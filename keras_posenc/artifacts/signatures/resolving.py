"""From a model, and what its caller says, to the signatures of an artifact."""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_posenc.artifacts.signatures.naming import (
    check_names,
    check_outputs,
    input_names,
    is_sequential,
    named_outputs,
    narrowed,
)
from keras_posenc.artifacts.signatures.signature import (
    DEFAULT,
    Signature,
    offered,
    offered_in_numbers,
)
from keras_posenc.artifacts.signatures.strings import cut_strings, from_ids
from keras_posenc.keras_internals import layers_within

# What is told of a model that has signatures of its own.
_OFFERED = "Give no `signatures`, or one of generator.offered_signatures()"


def check_model(model: Any) -> None:
    """Raises `ValueError` for what is no model, such as the path of one."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"`model` must be a keras.Model. Received: model={model!r}"
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
        if getattr(model, "is_drawn", False):
            raise ValueError(
                f"Signature '{name}': nobody can ask for an answer of model "
                f"'{model.name}' again, which draws by a seed of its own. "
                f"{_OFFERED}, which take the noise too"
            )
        yield name, model, shapes


def _hint(given: Any) -> str:
    """What is to be given in place of a model's method."""
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
        specs = _with_shapes(name, model, cut.specs, shapes)
        return dataclasses.replace(cut, specs=specs)
    return _signature(name, model, shapes)


def _signature(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return _signature_of_subclass(name, model, shapes)
    _check_inputs(name, model)
    names = input_names(model)
    check_names(name, names)
    specs = {
        input_name: keras.InputSpec(shape=tensor.shape, dtype=tensor.dtype)
        for input_name, tensor in zip(names, inputs, strict=True)
    }
    if _is_guess(model) and inputs[0].dtype == "string":
        # Of the dtype it is sure; of the batch it has the first data's.
        shape = (None, *inputs[0].shape[1:])
        specs = {names[0]: keras.InputSpec(shape=shape, dtype="string")}
    if not is_sequential(model):
        check_outputs(model, model.output)
    specs = _with_shapes(name, model, specs, shapes)
    structure = inputs[0] if is_sequential(model) else model.input

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        packed = keras.tree.pack_sequence_as(
            structure, [tensors[input_name] for input_name in names]
        )
        return named_outputs(model, model(packed, training=False))

    return Signature(name, model, specs, call)


def _with_shapes(
    name: str,
    model: keras.Model,
    specs: Mapping[str, keras.InputSpec],
    shapes: Mapping[str, Any],
) -> dict[str, keras.InputSpec]:
    specs = dict(specs)
    for input_name, shape in shapes.items():
        if input_name not in specs:
            raise ValueError(
                f"Signature '{name}': model '{model.name}' has no input "
                f"'{input_name}'. Its inputs are: {', '.join(specs)}"
            )
        specs[input_name] = narrowed(name, input_name, specs[input_name], shape)
    return specs


def _check_inputs(name: str, model: keras.Model) -> None:
    """Raises `ValueError` for a `Sequential` that guessed its input.

    Without `keras.Input` it takes the first data's very shape, batch and all,
    for its own, and float32 for the dtype, of ids too.
    """
    if not is_sequential(model):
        return
    (tensor,) = model.inputs
    is_guess = "float" in tensor.dtype and _is_guess(model)
    takes_ids = len(tensor.shape) == 2 and any(
        isinstance(layer, keras.layers.Embedding)
        for layer in layers_within(model)
    )
    if is_guess and (tensor.shape[0] is not None or takes_ids):
        raise ValueError(
            f"Signature '{name}': model '{model.name}' takes only "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}, as one does that "
            "was built from data. Begin it with what it is to take, such as "
            "keras.Input((None,), dtype='int32', name='ids'): "
            "keras.Sequential([keras.Input(...), *model.layers]) keeps the "
            "weights, as --input ids:int32:?x? does for the command"
        )


def _is_guess(model: keras.Model) -> bool:
    """Whether it is a `Sequential` whose input the first data made."""
    return is_sequential(model) and bool(
        re.fullmatch(r"input_layer(_\d+)?", input_names(model)[0])
    )


def _signature_of_subclass(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    specs = dict(shapes)
    if not specs or not all(
        isinstance(spec, keras.InputSpec) for spec in specs.values()
    ):
        raise ValueError(
            f"Model '{model.name}' does not know its inputs: build it with "
            "keras.Input, or give a keras.InputSpec for each input (--input "
            "ids:int32:?x?), as "
            f"signatures={{'{name}': (model, {{'ids': keras.InputSpec("
            "shape=(None, None), dtype='int32')})}"
        )
    for input_name, spec in specs.items():
        if spec.shape is None or spec.dtype is None:
            raise ValueError(
                f"Signature '{name}': the keras.InputSpec of '{input_name}' "
                f"must have a shape and dtype. Received: {spec}"
            )
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built. Call it once on data first"
        )
    check_names(name, list(specs))

    by_argument = set(specs) <= set(inspect.signature(model.call).parameters)
    shape = model.get_build_config() or {}
    by_key = len(specs) > 1 or isinstance(shape.get("input_shape"), Mapping)

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        tensors = dict(tensors)
        if by_argument:
            outputs = model(**tensors, training=False)
        elif by_key:
            outputs = model(tensors, training=False)
        else:
            outputs = model(*tensors.values(), training=False)
        return named_outputs(model, outputs)

    return Signature(name, model, specs, call)
