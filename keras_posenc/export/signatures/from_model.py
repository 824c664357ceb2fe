"""The signature of one model: names, shapes and dtypes of its inputs."""

import dataclasses
import functools
import inspect
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.checks import as_integer
from keras_posenc.export.errors import in_words
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layer_of, layers_within


def signature_of(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    """Returns a model's signature.

    Args:
        name: Name of the signature.
        model: The model.
        shapes: Shapes, or `keras.InputSpec`s, of some inputs by name.

    Raises:
        ValueError: A model that is not built, or names or shapes that do not
            fit it.
    """
    inputs = getattr(model, "inputs", None)
    if not inputs:
        return signature_of_called(name, model, shapes)
    _check_inputs(name, model)
    names = input_names(model)
    for input_name, tensor in zip(names, inputs, strict=True):
        if getattr(tensor, "ragged", False) or getattr(tensor, "sparse", False):
            raise ValueError(
                f"Signature '{name}': the input '{input_name}' is ragged or "
                "sparse, and exported models take dense tensors: pad it, and "
                "leave `ragged` and `sparse` out of its keras.Input"
            )
    check_names(name, names, model)
    specs = {
        input_name: keras.InputSpec(shape=tensor.shape, dtype=tensor.dtype)
        for input_name, tensor in zip(names, inputs, strict=True)
    }
    if _is_guess(model) and "int" not in inputs[0].dtype:
        # Its input has the batch size of the first data, and the compute dtype
        # of the first layer.
        dtype = inputs[0].dtype
        specs[names[0]] = keras.InputSpec(
            shape=(None, *inputs[0].shape[1:]),
            dtype="float32" if dtype.endswith("float16") else dtype,
        )
    if not is_sequential(model):
        check_outputs(model, model.output)
    specs = with_shapes(name, model, specs, shapes)
    structure = inputs[0] if is_sequential(model) else model.input
    return Signature(
        name,
        model,
        specs,
        _Call(model, tuple(names), structure),
        arguments=[keras.tree.pack_sequence_as(structure, names)],
        pack=functools.partial(as_served, output_of(model)),
    )


def _check_inputs(name: str, model: keras.Model) -> None:
    """Raises `ValueError` for a `Sequential` built from data of ids.

    Without `keras.Input` it takes the shape of its first data for its own, and
    float32 for their dtype.
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
        f"{tensor.dtype} of shape {tuple(tensor.shape)}, because it was built "
        "from data. Add an input, which keeps the weights: "
        f"`{begun_by(begin)}` (--input ids:int32:{sizes}){why}"
    )


def _longest(
    model: keras.Model, shape: Sequence[int | None]
) -> tuple[tuple[int | None, ...], str]:
    """Returns a shape of any batch, and of any length if all layers allow it.

    Also returns which layer does not, and the error that it raises, as text.
    """
    x = keras.Input((None,), dtype="int32")
    longer = np.zeros((1, (shape[-1] or 1) + 1), "int32")
    for layer in model.layers:
        try:
            x, longer = layer(x), layer(longer)
        except Exception as error:  # layers of users raise anything
            reason = next(iter(in_words(error).splitlines()), "")
            return (None, *shape[1:]), (
                f". Its length is fixed, since layer '{layer.name}' takes no "
                f"other: {reason or type(error).__name__}"
            )
    return (None, None), ""


def _is_guess(model: keras.Model) -> bool:
    """Returns whether a `Sequential`'s input was made from its first data."""
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


def signature_of_called(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    """Returns the signature of a subclassed model.

    Args:
        name: Name of the signature.
        model: The model, which was called on data.
        shapes: A `keras.InputSpec` for each of its inputs by name. Not needed
            if `call` takes only floats: then the inputs have the shapes that
            the model was called with, with any batch, and plain shapes narrow
            these.

    Raises:
        ValueError: The model was not called, or the dtypes of its inputs are
            not known.
    """
    if not model.built and type(model).call is keras.Model.call:
        inner = [
            f"`model.{each}`"
            for each, value in vars(model).items()
            if isinstance(value, keras.Model)
        ]
        raise ValueError(
            f"Model '{model.name}' has no `call`, so that there is nothing to "
            "run. Export the model inside it that makes its outputs, as the "
            f"generator of a GAN: {' or '.join(inner) or 'it has none'}"
        )
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
            f"{_remedy(name, model, recorded)}. Give each the dtype of your "
            "data"
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
    if by_argument:
        how = "arguments"
    else:
        how = "list" if is_list else "dict" if by_key else "one"
    call = _CallOfCalled(model, tuple(specs), how)
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
        pack=lambda outputs: as_served(call.returned[-1], outputs),
    )


@dataclasses.dataclass(frozen=True)
class _Call:
    """Calls a model on tensors by name; equal for equal names."""

    model: keras.Model
    names: tuple[str, ...]
    structure: Any = dataclasses.field(compare=False)

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        packed = keras.tree.pack_sequence_as(
            self.structure, [tensors[name] for name in self.names]
        )
        return named_outputs(self.model, self.model(packed, training=False))


@dataclasses.dataclass(frozen=True)
class _CallOfCalled:
    """Calls a subclassed model, which takes its inputs in its own way."""

    model: keras.Model
    names: tuple[str, ...]
    how: str
    # The output's structure, known after a call.
    returned: list[Any] = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        tensors = {name: tensors[name] for name in self.names}
        if self.how == "arguments":
            outputs = self.model(**tensors, training=False)
        elif self.how == "list":
            outputs = self.model([*tensors.values()], training=False)
        elif self.how == "dict":
            outputs = self.model(tensors, training=False)
        else:
            outputs = self.model(*tensors.values(), training=False)
        self.returned[:] = [keras.tree.map_structure(lambda _: 0, outputs)]
        return named_outputs(self.model, outputs)


def _arguments(model: keras.Model) -> list[str]:
    """Returns the model's own arguments of `call`."""
    return [
        name
        for name in inspect.signature(model.call).parameters
        if name not in _OPTIONS
    ]


def _recorded(model: keras.Model) -> dict[str, tuple[int | None, ...]]:
    """Returns the input shapes of the model's first call, by name.

    Keras keeps only those of the first argument, unless the model has a `build`
    that takes more.
    """
    config = model.get_build_config() or {}
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


def _remedy(
    name: str,
    model: keras.Model,
    recorded: Mapping[str, tuple[int | None, ...]],
) -> str:
    """Returns the `signatures` argument to suggest, by what is known."""
    shapes, dtypes = {}, {}
    for each, shape in (recorded or {"ids": (None, None)}).items():
        are_ids = takes_ids(model, shape) or not recorded
        dtypes[each] = "int32" if are_ids else "float32"
        shapes[each] = (None, *(None if are_ids else n for n in shape[1:]))
    return in_code({name: shapes}, dtypes)


def of_one_example(signatures: Sequence[Signature]) -> str:
    """Returns the `signatures` of a batch of one, as Python and as options."""
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
    if not isinstance(outputs, Mapping | Sequence):
        outputs = [outputs]
    if isinstance(outputs, Mapping):
        return {name: as_dense(output) for name, output in outputs.items()}
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
        structure: The model's symbolic output.
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
    remedy = "give it one by keras.Input(..., name='ids')"
    if model is not None:
        plain = [
            name
            if _is_plain(name)
            else re.sub("[^A-Za-z0-9]+", "_", f"x_{name}")
            for name in names
        ]
        lower = [name.lower() for name in plain]
        unique = [
            f"{name}_{index}" if lower.count(name.lower()) > 1 else name
            for index, name in enumerate(plain)
        ]
        remedy = f"give it one by `{_renamed(model, unique)}`"
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


def _renamed(model: keras.Model, names: Sequence[str]) -> str:
    made = [
        input_code(tensor.shape, tensor.dtype, name)
        for tensor, name in zip(model.inputs, names, strict=True)
    ]
    if is_sequential(model):
        return begun_by(made[0])
    if not keras.tree.is_nested(model.input):
        return f"keras.Model(x := {made[0]}, model(x))"
    packed = keras.tree.pack_sequence_as(model.input, made)
    inputs = str(packed).replace('"', "")  # they are code, not strings
    # Flat, since Keras warns of dicts whose keys are not the input names.
    return f"keras.Model(keras.tree.flatten(x := {inputs}), model(x))"


def begun_by(inputs: str) -> str:
    """Returns Python code that gives a `Sequential` called `model` an input."""
    return f"keras.Sequential([{inputs}, *model.layers])"


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
