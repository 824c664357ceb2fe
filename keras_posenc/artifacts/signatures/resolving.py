"""From a model, and what its caller says, to the signatures of an artifact."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.signatures.called import (
    signature_of_called,
    takes_ids,
    with_shapes,
)
from keras_posenc.artifacts.signatures.naming import (
    as_served,
    begun_by,
    check_names,
    check_outputs,
    input_code,
    input_names,
    is_sequential,
    named_outputs,
    output_of,
)
from keras_posenc.artifacts.signatures.signature import (
    DEFAULT,
    Signature,
    offered,
    offered_in_numbers,
)
from keras_posenc.artifacts.signatures.strings import cut_strings, from_ids

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
        if getattr(model, "is_drawn", False):
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
    shape = _longest(model, tensor.shape)
    begin = input_code(shape, "int32", "ids")
    sizes = "x".join("?" if size is None else f"{size}" for size in shape)
    raise ValueError(
        f"Signature '{name}': model '{model.name}' takes only "
        f"{tensor.dtype} of shape {tuple(tensor.shape)}, as one does that "
        "was built from data. Begin it with what it is to take, which keeps "
        f"the weights: `{begun_by(begin)}` (--input ids:int32:{sizes})"
    )


def _longest(
    model: keras.Model, shape: Sequence[int | None]
) -> tuple[int | None, ...]:
    """Any batch, and any length if the layers take it."""
    begin = keras.Input((None,), dtype="int32")
    other = np.zeros((1, (shape[-1] or 1) + 1), "int32")
    try:
        keras.Sequential([begin, *model.layers])(other)
    except Exception:  # whatever a layer raises that wants a known length
        return (None, *shape[1:])
    return None, None


def _is_guess(model: keras.Model) -> bool:
    """Whether it is a `Sequential` whose input the first data made."""
    return is_sequential(model) and bool(
        re.fullmatch(r"input_layer(_\d+)?", input_names(model)[0])
    )
