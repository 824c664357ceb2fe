"""A signature is a Keras model with a name, and names for what it takes."""

import dataclasses
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.errors import ExportError

DEFAULT = "serving_default"

Shape = tuple[int | None, ...]
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Signature:
    """One entry point of an artifact.

    Attributes:
        name: Name of the signature.
        model: The model that answers.
        specs: Shape and dtype of each input by name, batch dimension first.
        call: The function from a dict of tensors to a dict of tensors.
        origin: What it was made of, if it does more than call the model.
        cut_at: The tensor of its model that is its input, where it is not the
            model's own.
        whole: The model of strings that it stands for, if it does.
    """

    name: str
    model: keras.Model
    specs: Mapping[str, keras.InputSpec]
    call: Callable[[Mapping[str, Any]], dict[str, Any]]
    origin: "Origin | None" = None
    cut_at: keras.KerasTensor | None = None
    whole: "Whole | None" = None


@dataclasses.dataclass(frozen=True)
class Whole:
    """A model of strings for which its part behind them stands.

    Attributes:
        signature: That of the strings.
        cut: From its inputs to those of the part.
    """

    signature: Signature
    cut: Callable[[Arrays], Arrays]


def _same(arrays: Arrays) -> Arrays:
    return arrays


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a signature was made of that does more than call its model.

    Verification asks the model through the older signature, and does what the
    newer one adds in NumPy: an oracle in other code than what it judges.

    Attributes:
        signature: The older signature.
        ask: Inputs of the newer as inputs of the older.
        tell: Answers of the older as answers of the newer.
        widen: Inputs of the older as inputs of the newer, to verify with.
    """

    signature: Signature
    ask: Callable[[Arrays], Arrays] = _same
    tell: Callable[[Arrays], Arrays] = _same
    widen: Callable[[Arrays], Arrays] = _same


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
            default `serving_default`, and `from_ids` where the model takes
            strings: the model cut at its first numeric tensor.

    Returns:
        One `Signature` for each name.

    Raises:
        ValueError: A model that is not built, or names or shapes that do not
            fit it.
    """
    check_model(model)
    if signatures is None:
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
            f"shapes), by name. Received: signatures={signatures!r}"
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
                f"Received: {name!r}: {value!r}"
            )
        model, shapes = pair
        if not isinstance(shapes, Mapping):
            raise ValueError(
                f"Signature '{name}': shapes must be a dict by input name. "
                f"Received: {shapes!r}"
            )
        yield name, model, shapes


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
    given = {DEFAULT: model} if signatures is None else signatures
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
            raise ValueError(
                f"LiteRT and ONNX take no strings, and signature '{name}' "
                f"cannot begin where its strings become numbers: {error}"
            ) from error
        specs = _with_shapes(name, model, cut.specs, shapes)
        return dataclasses.replace(cut, specs=specs)
    return _signature(name, model, shapes)


def flatten_layers(model: keras.Layer) -> Iterator[keras.Layer]:
    """Every layer of a model, however deep, each once."""
    yield from model._flatten_layers()


def trace(signature: Signature) -> Any:
    """The signature as a TensorFlow graph function of dynamic shapes.

    Raises:
        ExportError: The model runs on numbers alone.
    """
    import tensorflow as tf

    def call(**inputs: Any) -> dict[str, Any]:
        for name, spec in signature.specs.items():
            # Servers feed what clients send, and TF-Text's operators end the
            # whole process where that is of another rank.
            if spec.dtype == "string":
                inputs[name] = tf.ensure_shape(inputs[name], spec.shape)
        return signature.call(inputs)

    try:
        return tf.function(call, autograph=False).get_concrete_function(
            **{
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in signature.specs.items()
            }
        )
    except Exception as error:  # of the model's code, which may be anyone's
        raise ExportError(
            f"Model '{signature.model.name}' cannot be traced as a graph of "
            f"signature '{signature.name}': {error}"
        ) from error


def _signature(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return _signature_of_subclass(name, model, shapes)
    _check_inputs(name, model)
    names = _input_names(model)
    _check_names(name, names)
    specs = {
        input_name: keras.InputSpec(shape=tensor.shape, dtype=tensor.dtype)
        for input_name, tensor in zip(names, inputs, strict=True)
    }
    if not _is_sequential(model):
        _check_outputs(model, model.output)
    specs = _with_shapes(name, model, specs, shapes)
    structure = inputs[0] if _is_sequential(model) else model.input

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
    if not _is_sequential(model):
        return
    (tensor,) = model.inputs
    is_guess = "float" in tensor.dtype and re.fullmatch(
        r"input_layer(_\d+)?", _input_names(model)[0]
    )
    takes_ids = len(tensor.shape) == 2 and any(
        isinstance(layer, keras.layers.Embedding)
        for layer in flatten_layers(model)
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


def _input_names(model: keras.Model) -> list[str]:
    """The names of the input layers, which loading does not change."""
    return [tensor._keras_history[0].name for tensor in model.inputs]


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
    _check_names(name, list(specs))

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


def from_ids(signature: Signature) -> Signature | None:
    """The signature cut at its first numeric tensor, if it takes a string."""
    if [spec.dtype for spec in signature.specs.values()] != ["string"]:
        return None
    try:
        cut = cut_strings(signature)
    except ValueError:
        return None
    if len(cut.specs) != 1:
        return None
    return dataclasses.replace(cut, name="from_ids", whole=None)


def cut_strings(signature: Signature) -> Signature:
    """The signature cut where its strings become numbers.

    Of a model of one string that becomes one tensor, this is `ids` if it is of
    integers, else `features`. Elsewhere each tensor has the name of its string
    input (the names, if it comes of several, joined by underscores), with that
    of its layer behind it where there are several such tensors. Inputs that
    are numbers already stay as they are.

    Raises:
        ValueError: The model cannot be cut, and why.
    """
    model = signature.model
    outputs = output_of(model)
    flat = keras.tree.flatten(outputs)
    cuts, rest = _first_numeric_tensors(flat)
    if any(tensor.dtype == "string" for tensor in flat):
        raise ValueError("an output is of strings")
    if any(cut is output for cut in cuts for output in flat):
        raise ValueError("an output is what they become, and no more")
    for cut in cuts:
        layer = cut._keras_history[0]
        if isinstance(layer, keras.Model):
            raise ValueError(
                f"that is within model '{layer.name}', which is a layer of "
                f"'{model.name}'"
            )
    inputs = _input_names(model)
    sources = dict(zip(inputs, model.inputs, strict=True))
    kept = [
        (name, tensor)
        for name, tensor in sources.items()
        if any(tensor is each for each in rest)
    ]
    named = sorted(
        [*_named(cuts, sources), *kept],
        key=lambda pair: inputs.index(_roots(pair[1], sources)[0]),
    )
    _check_names(signature.name, [name for name, _ in named])
    tensors = dict(named)
    is_one = len(tensors) == 1
    part = keras.Model(
        next(iter(tensors.values())) if is_one else list(tensors.values()),
        outputs,
        name=f"{model.name}_from_ids",
    )
    part.supports_masking = True  # else Keras warns of the masks given below
    # A tokenizer's mask is cut off with it: its padding is id 0.
    masked = {
        name
        for name, tensor in tensors.items()
        if "int" in tensor.dtype
        and getattr(tensor, "_keras_mask", None) is not None
    }

    def call(values: Mapping[str, Any]) -> dict[str, Any]:
        given = [values[name] for name in tensors]
        masks = [
            keras.ops.not_equal(values[name], 0) if name in masked else None
            for name in tensors
        ]
        if is_one:
            found = part(given[0], mask=masks[0], training=False)
        else:
            found = part(given, mask=masks if masked else None, training=False)
        return named_outputs(model, found)

    return Signature(
        signature.name,
        part,
        {
            name: keras.InputSpec(shape=tensor.shape, dtype=tensor.dtype)
            for name, tensor in tensors.items()
        },
        call,
        cut_at=cuts[0] if is_one else None,
        whole=Whole(signature, _cutter(tensors, sources)),
    )


def _named(
    cuts: Sequence[keras.KerasTensor],
    sources: Mapping[str, keras.KerasTensor],
) -> list[tuple[str, keras.KerasTensor]]:
    """Names for the first numeric tensors of a model; see `cut_strings`."""
    if len(cuts) == len(sources) == 1:
        return [("ids" if "int" in cuts[0].dtype else "features", cuts[0])]
    names = [
        "_".join(
            name
            for name in _roots(cut, sources)
            if sources[name].dtype == "string"
        )
        for cut in cuts
    ]
    return [
        (
            f"{name}_{cut._keras_history[0].name}"
            if names.count(name) > 1
            else name,
            cut,
        )
        for name, cut in zip(names, cuts, strict=True)
    ]


def _roots(
    tensor: keras.KerasTensor, sources: Mapping[str, keras.KerasTensor]
) -> list[str]:
    """The names of the inputs that a tensor is made of, in their order."""
    found = {id(each) for each, _, _ in steps([tensor])}
    return [name for name, each in sources.items() if id(each) in found]


def _cutter(
    tensors: Mapping[str, keras.KerasTensor],
    sources: Mapping[str, keras.KerasTensor],
) -> Callable[[Arrays], Arrays]:
    """From the inputs of a model of strings to those of it when it is cut."""
    made = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor is not sources.get(name)
    }
    needed = [
        name
        for name in sources
        if any(name in _roots(tensor, sources) for tensor in made.values())
    ]

    @functools.cache  # made when it is needed, and once
    def preprocessing() -> keras.Model:
        return keras.Model([sources[name] for name in needed], dict(made))

    def cut(arrays: Arrays) -> Arrays:
        import tensorflow as tf

        found = preprocessing()([tf.constant(arrays[name]) for name in needed])
        return {
            name: keras.ops.convert_to_numpy(found[name])
            if name in made
            else arrays[name]
            for name in tensors
        }

    return cut


def _first_numeric_tensors(
    outputs: Sequence[keras.KerasTensor],
) -> tuple[list[keras.KerasTensor], list[keras.KerasTensor]]:
    """The numeric tensors of a graph that come straight from strings.

    And all tensors behind those.
    """
    cuts, rest = [], []
    for tensor, _, sources in steps(outputs, beyond_strings=False):
        if any(source.dtype == "string" for source in sources):
            cuts.append(tensor)
        else:
            rest.append(tensor)
    return cuts, rest


def steps(
    outputs: Sequence[keras.KerasTensor], beyond_strings: bool = True
) -> Iterator[tuple[keras.KerasTensor, Any, list[keras.KerasTensor]]]:
    """Each tensor on the way to the outputs, what made it, and out of what.

    Args:
        outputs: Where to begin.
        beyond_strings: Whether to go on where something came from strings.
    """
    # By the history of the tensors, since a layer that several models share
    # has several outputs.
    seen = set()
    remaining = list(outputs)
    while remaining:
        tensor = remaining.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        operation, node_index, _ = tensor._keras_history
        sources = operation._inbound_nodes[node_index].input_tensors
        yield tensor, operation, sources
        if beyond_strings or all(each.dtype != "string" for each in sources):
            remaining.extend(sources)


def _check_outputs(model: keras.Model, outputs: Any) -> None:
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
    _check_outputs(model, outputs)
    if not isinstance(outputs, Mapping | Sequence):
        outputs = [outputs]
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if _is_sequential(model) and model.layers:
        names = [model.layers[-1].name]
    else:
        names = list(getattr(model, "output_names", None) or [])
    if len(names) != len(outputs) or len(set(names)) != len(names):
        names = [f"output_{index}" for index in range(len(outputs))]
    return dict(zip(names, outputs, strict=True))


def output_of(model: keras.Model) -> Any:
    """The symbolic output of a model that is a graph."""
    return model.outputs[0] if _is_sequential(model) else model.output


def _is_sequential(model: keras.Model) -> bool:
    return isinstance(model, keras.Sequential)


def _check_names(signature: str, names: list[str]) -> None:
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
                "identifier in ASCII, and its own; give it one by "
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
