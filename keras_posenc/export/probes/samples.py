"""Samples given by callers, as inputs of signatures."""

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.signature import Signature

Inputs = dict[str, np.ndarray]


def describe_example(inputs: Inputs, output: np.ndarray, index: Any) -> str:
    """Returns the example of a batch that a number of an output belongs to."""
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
    texts = [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in array.ravel().tolist()
    ]
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    return np.array(texts, dtype=object)


def _fitting(signature: Signature, sample: Any) -> list[Inputs]:
    """Returns a sample as inputs of a signature, or of what it is made of."""
    found, oracle = [], signature.oracle
    # Samples of strings are those of the uncut signature.
    if oracle is None or oracle.base.specs is not signature.specs:
        inputs = _fit(sample, signature)
        if not isinstance(inputs, str):
            found.append(inputs)
    if oracle is not None:
        found += map(oracle.widen, _fitting(oracle.base, sample))
    return found


def fit_samples(
    signatures: Sequence[Signature], samples: Any, argument: str = "samples"
) -> dict[str, list[Inputs]]:
    """Returns samples as inputs of each signature, by its name."""
    fitted: dict[str, list[Inputs]] = {each.name: [] for each in signatures}
    for sample in as_list(samples):
        found = {each.name: _fitting(each, sample) for each in signatures}
        if not any(found.values()):
            raise ValueError(_fit(sample, signatures[0], argument))
        empty = (np.shape(each)[:1] == (0,) for each in _values(sample))
        if argument == "samples" and any(empty):
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
        elif any(_as_texts(each) is not None for each in _values(sample)):
            return whole
    given = sample if isinstance(sample, Mapping) else {}
    if not isinstance(sample, Mapping) and len(signature.specs) == 1:
        given = {next(iter(signature.specs)): sample}
    if set(given) != set(signature.specs):
        received = ", ".join(map(str, given)) or type(sample).__name__
        flag = f" (--samples FILE.npz with the arrays {names})"
        return (
            f"`{argument}` must have an array for each of the inputs {names}: "
            f"`{argument}=[{{{_arrays(signature)}}}]`"
            + flag * (argument == "samples")
            + f". Received: {received}"
        )
    inputs = {}
    for name, spec in signature.specs.items():
        try:
            array = _as_array(given[name], spec.dtype)
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


def _values(sample: Any) -> Iterable[Any]:
    return sample.values() if isinstance(sample, Mapping) else [sample]


def _arrays(signature: Signature) -> str:
    return ", ".join(
        f"'{name}': {'texts' if spec.dtype == 'string' else 'array'}"
        for name, spec in signature.specs.items()
    )


def _as_array(value: Any, dtype: str) -> np.ndarray:
    """Returns an array of a dtype; raises `ValueError`."""
    if hasattr(value, "row_splits"):  # NumPy would pad it silently
        raise ValueError(
            "takes examples of one length. Received: a RaggedTensor. Pad it "
            "with its .to_tensor(), ids with the id of padding, and give a "
            "mask if the model takes one"
        )
    if dtype == "string":
        value = value.numpy() if hasattr(value, "numpy") else value
        array = np.asarray(value, dtype=object)
        if not all(isinstance(each, str | bytes) for each in array.flat):
            raise ValueError(f"must be strings. Received: {value!r:.80}")
        return array
    try:
        array = np.asarray(keras.ops.convert_to_numpy(value))
    except Exception:  # any class may be given, and raises its own errors
        array = np.asarray(None)
    if array.dtype.kind in "OSUc":
        kind = "whole numbers" if "int" in dtype else "numbers"
        raise ValueError(f"must be {kind} in an array. Received: {value!r:.80}")
    if "int" in dtype:
        limits = np.iinfo(dtype)
        is_right = (array == np.floor(array)) & (
            (limits.min <= array) & (array <= limits.max)
        )
        if not np.all(is_right):
            raise ValueError(
                f"must be whole numbers from {limits.min} to {limits.max}. "
                f"Received: {array[~is_right].flat[0]}"
            )
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    if "float" in dtype and np.isinf(converted).sum() > np.isinf(array).sum():
        largest = np.nanmax(np.abs(array))
        raise ValueError(f"must be numbers of {dtype}. Received: {largest:.3g}")
    return converted
