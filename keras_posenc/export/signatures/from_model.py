"""The signature of one model: names, shapes and dtypes of its inputs."""

import dataclasses
import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checks import as_integer
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layer_of, layers_within


def signature_of(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    """Returns a model's signature.

    Args:
        name: Name of the signature.
        model: The model.
        shapes: Shapes, or `keras.InputSpec`s, of some inputs by name. A model
            without symbolic inputs, as subclassed ones are, needs a
            `keras.InputSpec` for each, unless `call` takes only floats: then
            the inputs have the shapes of the model's first call, with any
            batch, and plain shapes narrow these.

    Raises:
        ValueError: A model that is not built, or names or shapes that do not
            fit it.
    """
    if getattr(model, "inputs", None):
        specs = with_shapes(name, model, _specs(name, model), shapes)
        structure = model.inputs[0] if is_sequential(model) else model.input
        arguments = [keras.tree.pack_sequence_as(structure, list(specs))]
        call = _Call(model, tuple(specs), arguments)
    else:
        specs = _specs_of_called(name, model, shapes)
        call = _call_of(model, list(specs))
    return Signature(
        name,
        model,
        specs,
        call,
        arguments=call.arguments,
        pack=lambda outputs: as_served(call.returned[-1], outputs),
    )


def _specs(name: str, model: keras.Model) -> dict[str, keras.InputSpec]:
    """Returns the specs of a model that has symbolic inputs, by their names."""
    names = input_names(model)
    specs = {}
    for input_name, tensor in zip(names, model.inputs, strict=True):
        if getattr(tensor, "ragged", False) or getattr(tensor, "sparse", False):
            raise ValueError(
                f"Signature '{name}': the input '{input_name}' is ragged or "
                "sparse, and exported models take dense tensors: pad it, and "
                "leave `ragged` and `sparse` out of its keras.Input"
            )
        specs[input_name] = keras.InputSpec(
            shape=tensor.shape, dtype=tensor.dtype
        )
    if is_sequential(model) and re.fullmatch(r"input_layer(_\d+)?", names[0]):
        specs[names[0]] = _unguessed(name, model, specs[names[0]])
    check_names(name, names, model)
    if not is_sequential(model):
        check_outputs(model, model.output)
    return specs


def _unguessed(
    name: str, model: keras.Model, spec: keras.InputSpec
) -> keras.InputSpec:
    """Returns the spec of a `Sequential` that was built from its first data.

    It took their batch size for its own, and as dtype the compute dtype of its
    first layer, which is float32 for ids too.
    """
    if "int" in spec.dtype:
        return spec
    shape = (None, *spec.shape[1:])
    if "float" in spec.dtype and takes_ids(model, shape):
        sizes = "x".join("?" if size is None else f"{size}" for size in shape)
        raise ValueError(
            f"Signature '{name}': model '{model.name}' takes only "
            f"{spec.dtype} of shape {tuple(spec.shape)}, because it was built "
            "from data. Add an input, which keeps the weights: "
            f"`{_with_input(model, shape, 'int32', 'ids')}` "
            f"(--input ids:int32:{sizes})"
        )
    is_half = spec.dtype.endswith("float16")
    dtype = "float32" if is_half else spec.dtype
    return keras.InputSpec(shape=shape, dtype=dtype)


_INTEGERS = (
    keras.layers.CategoryEncoding,
    keras.layers.Embedding,
    keras.layers.HashedCrossing,
    keras.layers.Hashing,
    keras.layers.IntegerLookup,
)


def takes_ids(model: keras.Model, shape: Sequence[int | None]) -> bool:
    """Returns whether an input may be ids, also if Keras assumed floats."""
    return len(shape) <= 2 and any(
        isinstance(layer, _INTEGERS) for layer in layers_within(model)
    )


def with_shapes(
    name: str,
    model: keras.Model,
    specs: Mapping[str, keras.InputSpec],
    shapes: Mapping[str, Any],
) -> dict[str, keras.InputSpec]:
    """Returns the specs of a signature's inputs, narrowed to given shapes."""
    specs = dict(specs)
    for input_name, shape in shapes.items():
        if input_name not in specs:
            raise ValueError(
                f"Signature '{name}': model '{model.name}' has no input "
                f"'{input_name}'. Its inputs are: {', '.join(specs)}"
            )
        specs[input_name] = narrowed(name, input_name, specs[input_name], shape)
    return specs


def _specs_of_called(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> dict[str, keras.InputSpec]:
    """Returns the specs of a model that only its calls know the inputs of."""
    if type(model).call is keras.Model.call:
        inner = [layer.name for layer in model.layers]
        raise ValueError(
            f"Model '{model.name}' has no `call`, so it gives no outputs. "
            "Export the part of it that does, such as `model.generator`, or "
            f"give it a `call`. Its layers: {', '.join(inner) or 'none'}"
        )
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built, and so has no weights. Call "
            "it once on a batch of its inputs, `model(x)`, and export it again"
        )
    recorded = _recorded(model)
    are_ids = {each: takes_ids(model, recorded[each]) for each in recorded}
    if shapes and all(
        isinstance(spec, keras.InputSpec) for spec in shapes.values()
    ):
        specs = dict(shapes)
    elif recorded and len(_arguments(model)) == 1 and not any(are_ids.values()):
        known = {
            each: keras.InputSpec(shape=(None, *shape[1:]), dtype="float32")
            for each, shape in recorded.items()
        }
        specs = with_shapes(name, model, known, shapes)
    else:
        likely = {
            each: (None, *(None if are_ids[each] else n for n in shape[1:]))
            for each, shape in recorded.items()
        } or {"ids": (None, None)}
        dtypes = {
            each: "int32" if are_ids.get(each, True) else "float32"
            for each in likely
        }
        raise ValueError(
            f"Model '{model.name}' does not know its inputs: build it with "
            "keras.Input, or give a keras.InputSpec for each input, as "
            f"{in_code({name: likely}, dtypes)}. Give each the dtype of your "
            "data"
        )
    for input_name, spec in specs.items():
        if spec.shape is None or spec.dtype is None:
            raise ValueError(
                f"Signature '{name}': the keras.InputSpec of '{input_name}' "
                f"must have a shape and dtype. Received: {spec}"
            )
    check_names(name, list(specs))
    return specs


@dataclasses.dataclass(frozen=True)
class _Call:
    """Calls a model on tensors by name; equal for equal names.

    Attributes:
        model: The model.
        names: The names.
        arguments: For each argument a name, or a list or dict of names.
        by_keyword: Whether each argument has the name of its tensor.
        returned: The structure of the model's outputs, known after a call.
    """

    model: keras.Model
    names: tuple[str, ...]
    arguments: list[Any] = dataclasses.field(compare=False)
    by_keyword: bool = False
    returned: list[Any] = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        given = keras.tree.map_structure(tensors.__getitem__, self.arguments)
        if self.by_keyword:
            named = dict(zip(self.names, given, strict=True))
            outputs = self.model(**named, training=False)
        else:
            outputs = self.model(*given, training=False)
        self.returned[:] = [keras.tree.map_structure(lambda _: 0, outputs)]
        return named_outputs(self.model, outputs)


def _call_of(model: keras.Model, names: list[str]) -> _Call:
    """Returns how a subclassed model takes its inputs, by its first call."""
    structure = _first_call(model).get("input_shape")
    keys = set(structure) if isinstance(structure, Mapping) else None
    parameters = inspect.signature(model.call).parameters
    if set(names) <= set(parameters) and set(names) != keys:
        return _Call(model, tuple(names), list(names), by_keyword=True)
    arguments: list[Any] = list(names)
    if isinstance(structure, list | tuple) and not _is_shape(structure):
        arguments = [list(names)]
    elif keys is not None or len(names) > 1:
        arguments = [{name: name for name in names}]
    return _Call(model, tuple(names), arguments)


def _arguments(model: keras.Model) -> list[str]:
    """Returns the model's own arguments of `call`."""
    parameters = inspect.signature(model.call).parameters
    return [name for name in parameters if name not in ("mask", "training")]


def _first_call(model: keras.Model) -> dict[str, Any]:
    """Returns what Keras keeps of the shapes of a model's first call."""
    return model.get_build_config() or {}


def _recorded(model: keras.Model) -> dict[str, tuple[int | None, ...]]:
    """Returns the input shapes of the model's first call, by name.

    Keras keeps only those of the first argument, unless the model has a `build`
    that takes more.
    """
    config = _first_call(model)
    structure = config.get("input_shape")
    name = next(iter(_arguments(model)), "inputs")
    if "shapes_dict" in config:  # shapes of the arguments of its own `build`
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


def with_sizes(
    signatures: Sequence[Signature],
    sizes: Callable[[Sequence[int | None]], Sequence[int | None]],
) -> str:
    """Returns `signatures` of other shapes, as Python and as options."""
    specs = {each.name: each.specs for each in signatures}
    shapes = {
        signature: {name: sizes(spec.shape) for name, spec in own.items()}
        for signature, own in specs.items()
    }
    dtypes = {
        n: spec.dtype for own in specs.values() for n, spec in own.items()
    }
    know = all(getattr(each.model, "inputs", None) for each in signatures)
    return in_code(shapes, None if know else dtypes)


def of_one_example(signatures: Sequence[Signature]) -> str:
    """Returns the `signatures` of a batch of one, as Python and as options."""
    return with_sizes(signatures, lambda shape: [1, *shape[1:]])


def input_names(model: keras.Model) -> list[str]:
    """Returns the names of the input layers, which loading keeps."""
    return [layer_of(tensor).name for tensor in model.inputs]


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
    """Returns outputs by dict key, else by the names of the output layers."""
    check_outputs(model, outputs)
    if isinstance(outputs, Mapping):
        return {name: as_dense(output) for name, output in outputs.items()}
    if not isinstance(outputs, Sequence):
        outputs = [outputs]
    if is_sequential(model) and model.layers:
        names = [model.layers[-1].name]
    else:
        names = list(getattr(model, "output_names", None) or [])
    if len(names) != len(outputs) or len(set(names)) != len(names):
        names = [f"output_{index}" for index in range(len(outputs))]
    return dict(zip(names, map(as_dense, outputs), strict=True))


def as_dense(tensor: Any) -> Any:
    """Returns a ragged or sparse tensor with zeros where it has no number.

    Servers know neither. Keras gives such arrays of them, too.
    """
    kind = type(tensor).__name__
    if kind == "RaggedTensor":
        return tensor.to_tensor()
    if kind == "SparseTensor":
        import tensorflow as tf

        return tf.sparse.to_dense(tf.sparse.reorder(tensor))
    return tensor


def output_of(model: keras.Model) -> Any:
    """Returns the symbolic output of a functional or sequential model."""
    return model.outputs[0] if is_sequential(model) else model.output


def as_served(structure: Any, outputs: dict[str, Any]) -> Any:
    """Returns named outputs in the structure that their model returns.

    Args:
        structure: The structure of the model's output.
        outputs: The named outputs, and perhaps more.
    """
    count = len(keras.tree.flatten(structure))
    if isinstance(structure, Mapping) or len(outputs) != count:
        return dict(outputs)
    values = list(outputs.values())
    return values if count > 1 else values[0]  # as Keras returns them


def is_sequential(model: keras.Model) -> bool:
    """Returns whether a model is `Sequential`, which keeps no output names."""
    return isinstance(model, keras.Sequential)


def check_names(
    signature: str, names: list[str], model: keras.Model | None = None
) -> None:
    """Raises `ValueError` for names that exported inputs cannot have.

    Args:
        signature: The name of the signature.
        names: The names.
        model: The model whose inputs have these names, if there is one.
    """
    # TensorFlow's signatures have names in lower case inside.
    different = {name.lower() for name in names}
    if all(map(_is_plain, names)) and len(different) == len(names):
        return
    remedy = "give each one by keras.Input(..., name='ids')"
    if model is not None:
        remedy = f"give others by `{_with_names(model)}`"
    raise ValueError(
        f"Signature '{signature}': the name of an input must be of ASCII "
        "letters, digits and underscores, begin with a letter, be no keyword "
        "of Python and not 'self', and differ from the others in more than "
        f"upper case; {remedy}. Received: {', '.join(names)}"
    )


def _is_plain(name: str) -> bool:
    """Returns whether a name can name a TensorFlow node and an argument."""
    return (
        re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) is not None
        and not keyword.iskeyword(name)
        and name != "self"
    )


def _with_names(model: keras.Model) -> str:
    """Returns the code that gives the inputs of `model` plain names."""
    made = [
        input_code(tensor.shape, tensor.dtype, f"input_{index}")
        for index, tensor in enumerate(model.inputs)
    ]
    if is_sequential(model):
        return f"keras.Sequential([{made[0]}, *model.layers])"
    packed = keras.tree.pack_sequence_as(model.input, made)
    inputs = str(packed).replace('"', "")  # they are code, not strings
    outputs = "model(x)"
    if not isinstance(model.output, dict):
        names = [*named_outputs(model, model.output)]
        outputs = (
            f"{{'{names[0]}': model(x)}}"
            if len(names) == 1
            else f"dict(zip({names}, keras.tree.flatten(model(x))))"
        )
    # Flat, since Keras warns of dicts whose keys are not the input names.
    return f"keras.Model(keras.tree.flatten(x := {inputs}), {outputs})"


def _with_input(
    model: keras.Model, shape: Sequence[int | None], dtype: str, name: str
) -> str:
    """Returns the code that gives `model`, of one input, another input."""
    made = input_code(shape, dtype, name)
    if is_sequential(model):
        return f"keras.Sequential([{made}, *model.layers])"
    return f"keras.Model(x := {made}, model(x))"


def input_code(shape: Sequence[int | None], dtype: str, name: str) -> str:
    """Returns the code of a `keras.Input`; `shape` begins with the batch."""
    batch, *rest = shape
    first = f"{(*rest,)}" if batch is None else f"batch_shape={(*shape,)}"
    return f"keras.Input({first}, dtype='{dtype}', name='{name}')"


def in_code(
    shapes: Mapping[str, Mapping[str, Any]],
    dtypes: Mapping[str, str] | None = None,
) -> str:
    """Returns the `signatures` of a model called `model`, and as options.

    Args:
        shapes: Shapes by the name of the input, by the name of the signature.
        dtypes: Dtypes of the inputs, for a model that does not know them.
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
    """Returns the spec with the given shape, if the model's own admits it."""
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
