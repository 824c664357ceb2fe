"""Samples given by callers, as inputs of signatures."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.signature import Signature

Inputs = dict[str, np.ndarray]


def describe_example(inputs: Inputs, output: np.ndarray, index: Any) -> str:
    """Returns the example of a batch that a number of an output belongs to.

    Args:
        inputs: The batch.
        output: An output of the model.
        index: The number's index in it.
    """
    found = [
        f"{name}={reprlib.repr(value[index[0] :][:1].tolist()[0])}"
        for name, value in inputs.items()
        if output.ndim and value.shape[:1] == output.shape[:1]
    ]
    return ", ".join(found) or describe(inputs)


def describe(inputs: Inputs) -> str:
    """Returns inputs as text."""
    return ", ".join(
        f"{name} of shape {value.shape}" for name, value in inputs.items()
    )


def as_list(samples: Any) -> Sequence[Any]:
    """Returns samples as a list of arrays, or of dicts of them."""
    if samples is None:
        return []
    return samples if isinstance(samples, list | tuple) else [samples]


def split_texts(samples: Any) -> tuple[list[str], list[Any]]:
    """Returns the texts among samples one by one, and the other samples."""
    texts: list[str] = []
    others = []
    for sample in as_list(samples):
        found = _as_texts(sample)
        if found is None:
            others.append(sample)
        else:
            texts.extend(found)
    return texts, others


def _as_texts(sample: Any) -> np.ndarray | None:
    if isinstance(sample, Mapping):
        if len(sample) != 1:
            return None
        (sample,) = sample.values()
    try:
        array = np.asarray(
            sample.numpy() if hasattr(sample, "numpy") else sample
        )
    except Exception:  # ragged, or of no array's kind
        return None
    if array.dtype.kind not in "OSU" or not array.size:
        return None
    texts = [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in array.ravel().tolist()
    ]
    if not all(isinstance(text, str) for text in texts):
        return None
    return np.array(texts, dtype=object)


def _own_samples(signature: Signature, samples: Any) -> list[Inputs]:
    """Returns the given samples that are inputs of this signature itself."""
    oracle = signature.oracle
    if oracle is not None and oracle.base.specs is signature.specs:
        return []  # samples of strings are those of the uncut signature
    return [
        inputs
        for sample in as_list(samples)
        if not isinstance(inputs := _fit(sample, signature), str)
    ]


def fitting_samples(signature: Signature, samples: Any) -> list[Inputs]:
    """Returns samples that fit the signature, or the one that it is made of."""
    fitting = _own_samples(signature, samples)
    if signature.oracle is not None:
        fitting += map(
            signature.oracle.widen,
            fitting_samples(signature.oracle.base, samples),
        )
    return fitting


def fit_samples(
    signatures: Sequence[Signature], samples: Any, argument: str = "samples"
) -> dict[str, list[Inputs]]:
    """Returns samples as inputs of each signature, by its name.

    Args:
        signatures: The signatures.
        samples: None, an array, a dict of arrays by input name, a text, or a
            list of these.
        argument: The name of the argument in messages.

    Raises:
        ValueError: A sample fits none of the signatures.
    """
    fitted: dict[str, list[Inputs]] = {each.name: [] for each in signatures}
    for sample in as_list(samples):
        found = {
            signature.name: fitting_samples(signature, [sample])
            for signature in signatures
        }
        if not any(found.values()):
            raise ValueError(_fit(sample, signatures[0], argument))
        if argument == "samples" and _is_empty(sample):
            raise ValueError(
                "`samples` must hold at least one example each. Received: one "
                "with none"
            )
        for name, inputs in found.items():
            fitted[name] += inputs
    return fitted


def _fit(
    sample: Any, signature: Signature, argument: str = "samples"
) -> Inputs | str:
    """Returns a sample as inputs of a signature, or why it does not fit."""
    names = ", ".join(signature.specs)
    if signature.strings is not None:
        whole = _fit(sample, signature.strings.signature, argument)
        if not isinstance(whole, str):
            sample = signature.strings.cut(whole)
        elif _has_texts(sample):
            return whole
    if not isinstance(sample, Mapping):
        if len(signature.specs) != 1:
            return (
                f"Signature '{signature.name}' has the inputs {names}: "
                f"`{argument}` must be dicts by these names, such as "
                f"`{argument}=[{{{_arrays(signature)}}}]`"
            )
        sample = {next(iter(signature.specs)): sample}
    if set(sample) != set(signature.specs):
        return (
            f"`{argument}` must be dicts with the inputs {names}. Received: "
            f"{', '.join(map(str, sample))}"
        )
    inputs = {}
    for name, spec in signature.specs.items():
        try:
            array = _as_array(sample[name], spec.dtype)
        except (TypeError, ValueError) as error:
            return (
                f"`{argument}`: input '{name}' of signature '{signature.name}' "
                f"(dtype {spec.dtype}) {error}"
            )
        if array.dtype == object and array.ndim == 0:
            array = array.reshape([1] * len(spec.shape))  # a text alone
        elif array.ndim == 1 and tuple(spec.shape[1:]) == (1,):
            array = array[:, np.newaxis]  # as Keras does in a call
        if array.ndim != len(spec.shape) or any(
            known not in (None, size)
            for known, size in zip(spec.shape, array.shape, strict=True)
        ):
            return (
                f"`{argument}`: input '{name}' of signature '{signature.name}' "
                f"has shape {tuple(spec.shape)}. Received: {array.shape}"
            )
        inputs[name] = array
    return inputs


def _is_empty(sample: Any) -> bool:
    """Returns whether a sample has an array without an example."""
    values = sample.values() if isinstance(sample, Mapping) else [sample]
    return any(np.shape(each)[:1] == (0,) for each in values)


def _has_texts(sample: Any) -> bool:
    values = sample.values() if isinstance(sample, Mapping) else [sample]
    return any(_as_texts(each) is not None for each in values)


def _arrays(signature: Signature) -> str:
    """Returns an example of the signature's inputs, as items of a dict."""
    return ", ".join(
        f"'{name}': {'texts' if spec.dtype == 'string' else 'array'}"
        for name, spec in signature.specs.items()
    )


def _as_array(value: Any, dtype: str) -> np.ndarray:
    """Returns an array of a dtype; raises `TypeError` or `ValueError`."""
    if hasattr(value, "row_splits"):  # NumPy would pad it silently
        raise ValueError(
            "takes examples of one length. Received: a RaggedTensor. Pad it "
            "with its .to_tensor(), ids with the id of padding, and give a "
            "mask if the model takes one"
        )
    if dtype == "string":
        value = value.numpy() if hasattr(value, "numpy") else value
        array = np.asarray(value, dtype=object)
        others = [
            each for each in array.ravel() if not isinstance(each, str | bytes)
        ]
        if others:
            raise ValueError(
                f"must be strings. Received: {type(value).__name__} with "
                f"{others[0]!r:.40}"
            )
        return array
    kind = "whole numbers" if "int" in dtype else "numbers"
    try:
        array = np.asarray(keras.ops.convert_to_numpy(value))
        reason = ""
    except Exception:  # any class may be given, and raises its own errors
        array = np.asarray(None)
        reason = ", which is no array of such"
    if array.dtype.kind in "OSU":
        text = _first_text(value)
        if text is not None:
            reason = f" with the string {text!r:.40}"
        raise ValueError(
            f"must be {kind}. Received: {type(value).__name__}{reason}"
        )
    if "int" in dtype:
        whole = array == np.floor(array)
        if not np.all(whole):
            raise ValueError(
                f"must be {kind}. Received: {array[~whole].flat[0]}"
            )
        limits = np.iinfo(dtype)
        if array.size and not (
            limits.min <= np.min(array) and np.max(array) <= limits.max
        ):
            raise ValueError(
                f"must be from {limits.min} to {limits.max}. Received: numbers "
                f"from {np.min(array)} to {np.max(array)}"
            )
    return array.astype(dtype)


def _first_text(value: Any) -> str | bytes | None:
    """Returns the first string among values that should be numbers, or None."""
    if isinstance(value, list | tuple):
        found = map(_first_text, value)
        return next((each for each in found if each is not None), None)
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, np.ndarray):
        texts = (each for each in value.flat if isinstance(each, str | bytes))
        text = next(texts, None)
        return str(text) if isinstance(text, str) else text
    return None
