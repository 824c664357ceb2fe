"""The signature of one model: names, shapes and dtypes of its inputs."""

import inspect
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checks import as_integer
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layer_of, layers_within


def signature_of(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    """Returns a model's signature; `shapes` narrow some inputs, by name.

    One without symbolic inputs needs specs, unless it was called on floats.
    """
    by_keyword = False
    returned: list[Any] = []  # the structure of the outputs of the last call
    if getattr(model, "inputs", None):
        specs = with_shapes(name, model, _specs(name, model), shapes)
        structure = model.inputs[0] if is_sequential(model) else model.input
        arguments = [keras.tree.pack_sequence_as(structure, list(specs))]
    else:
        specs = _specs_of_called(name, model, shapes)
        arguments, by_keyword = _arguments_of(model, list(specs))

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        given = keras.tree.map_structure(tensors.__getitem__, arguments)
        if by_keyword:
            named = dict(zip(arguments, given, strict=True))
            outputs = model(**named, training=False)
        else:
            outputs = model(*given, training=False)
        returned[:] = [keras.tree.map_structure(lambda _: 0, outputs)]
        return named_outputs(model, outputs)

    def pack(outputs: dict[str, Any]) -> Any:
        count = len(keras.tree.flatten(returned[-1]))
        if isinstance(returned[-1], Mapping) or len(outputs) != count:
            return dict(outputs)
        values = list(outputs.values())
        return values if count > 1 else values[0]  # as Keras returns them

    return Signature(name, model, specs, call, arguments=arguments, pack=pack)


def _specs(name: str, model: keras.Model) -> dict[str, keras.InputSpec]:
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
    """Returns the spec of a `Sequential` that was built from its first data."""
    # It took their batch size, and its first layer's dtype, which is of floats.
    if "int" in spec.dtype:
        return spec
    if "float" in spec.dtype and takes_ids(model, spec.shape):
        raise ValueError(
            f"Signature '{name}': model '{model.name}' takes only "
            f"{spec.dtype} of shape {tuple(spec.shape)}, because it was built "
            "from data. Add an input, which keeps the weights: `keras."
            "Sequential([keras.Input((None,), dtype='int32', name='ids'), "
            "*model.layers])`"
        )
    dtype = "float32" if spec.dtype.endswith("float16") else spec.dtype
    return keras.InputSpec(shape=(None, *spec.shape[1:]), dtype=dtype)


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
    for each, shape in shapes.items():
        if each not in specs:
            raise ValueError(
                f"Signature '{name}': model '{model.name}' has no input "
                f"'{each}'. Its inputs are: {', '.join(specs)}"
            )
        own, dtype = tuple(specs[each].shape), specs[each].dtype
        if isinstance(shape, keras.InputSpec):
            if shape.dtype not in (None, dtype):
                raise ValueError(
                    f"Signature '{name}': input '{each}' of the model is of "
                    f"dtype {dtype}. Received: dtype {shape.dtype}"
                )
            shape = shape.shape
        if not (
            isinstance(shape, Sequence)
            and len(shape) == len(own)
            and all(
                (size is None or (as_integer(size) or 0) > 0)
                and known in (None, size)
                for known, size in zip(own, shape, strict=True)
            )
        ):
            raise ValueError(
                f"Signature '{name}': input '{each}' of the model has shape "
                f"{own}, of which each None may stay, or become an integer "
                f"above 0. Received: shape {shape}"
            )
        sizes = tuple(None if size is None else int(size) for size in shape)
        specs[each] = keras.InputSpec(shape=sizes, dtype=dtype)
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
    known = _recorded(model)
    if shapes and all(
        isinstance(spec, keras.InputSpec) for spec in shapes.values()
    ):
        specs = dict(shapes)
    elif (
        known
        and len(_parameters(model)) == 1
        and not any(takes_ids(model, shape) for shape in known.values())
    ):
        floats = {
            each: keras.InputSpec(shape=(None, *sizes), dtype="float32")
            for each, (_, *sizes) in known.items()
        }
        specs = with_shapes(name, model, floats, shapes)
    else:
        raise ValueError(
            f"Model '{model.name}' does not know its inputs: build it with "
            "keras.Input, or give a keras.InputSpec of the shape and dtype of "
            f"your data for each input, as `signatures={{'{name}': (model, "
            "{'ids': keras.InputSpec(shape=(None, None), dtype='int32')})}`"
        )
    for input_name, spec in specs.items():
        if spec.shape is None or spec.dtype is None:
            raise ValueError(
                f"Signature '{name}': the keras.InputSpec of '{input_name}' "
                f"must have a shape and dtype. Received: {spec}"
            )
    check_names(name, list(specs))
    return specs


def _arguments_of(
    model: keras.Model, names: list[str]
) -> tuple[list[Any], bool]:
    """Returns the arguments of a call by names, and whether by keyword."""
    structure = _first_call(model)
    keys = set(structure) if isinstance(structure, Mapping) else None
    parameters = inspect.signature(model.call).parameters
    if set(names) <= set(parameters) and set(names) != keys:
        return names, True
    if isinstance(structure, list | tuple) and not _is_shape(structure):
        return [names], False
    if keys is not None or len(names) > 1:
        return [{name: name for name in names}], False
    return list(names), False


def _parameters(model: keras.Model) -> list[str]:
    parameters = inspect.signature(model.call).parameters
    return [name for name in parameters if name not in ("mask", "training")]


def _first_call(model: keras.Model) -> Any:
    return (model.get_build_config() or {}).get("input_shape")


def _recorded(model: keras.Model) -> dict[str, tuple[int | None, ...]]:
    """Returns the shapes of the first argument of its first call, by name."""
    structure = _first_call(model)
    name = next(iter(_parameters(model)), "inputs")
    if _is_shape(structure):
        found = {name: structure}
    elif isinstance(structure, Mapping):
        found = dict(structure)
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
            "names each output. Make them one dict of tensors: `keras.Model("
            "model.input, {f'output_{n}': x for n, x in "
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
    """Returns a ragged or sparse tensor with zeros where it has no number."""
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


def is_sequential(model: keras.Model) -> bool:
    """Returns whether a model is `Sequential`, which keeps no output names."""
    return isinstance(model, keras.Sequential)


def check_names(
    signature: str, names: list[str], model: keras.Model | None = None
) -> None:
    """Raises `ValueError` for names that exported inputs cannot have.

    With `model`, whose inputs they are, the message says how to rename them.
    """
    # TensorFlow's signatures have names in lower case inside.
    lower = [name.lower() for name in names]
    if len({*lower}) == len(names) and all(
        re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
        and not keyword.iskeyword(name)
        and name != "self"
        for name in names
    ):
        return
    how = ""
    if model is not None:
        outputs = "outputs" if is_sequential(model) else "output"
        new = [f"in_{n}" for n in range(len(names))]
        how = (
            " To rename inputs, export `keras.models.clone_model(keras.Model("
            f"model.inputs, model.{outputs}), [keras.Input(batch_shape=x.shape,"
            f" dtype=x.dtype, name=n) for x, n in zip(model.inputs, {new})], "
            "clone_function=lambda layer: layer)`."
        )
    raise ValueError(
        f"Signature '{signature}': the name of an input must be of ASCII "
        "letters, digits and underscores, begin with a letter, be no keyword "
        "of Python and not 'self', and differ from the others in more than "
        f"upper case.{how} Received: {', '.join(names)}"
    )
