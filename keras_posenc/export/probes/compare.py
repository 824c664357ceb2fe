"""Differences between two sets of outputs."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.quality import (
    BITS,
    CLASSES,
    INTEGERS,
    VECTORS,
    add_up_to_1,
)
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.from_model import named_outputs, output_of
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layer_of, sources_of
from keras_posenc_worker.cases import distances
from keras_posenc_worker.codec import to_bytes

# Layers that pass on their input.
_PASSING = (keras.layers.Dropout, keras.layers.Identity)


def maker_of(signature: Signature, name: str) -> Any:
    """Returns the layer or operation that makes an output, or None."""
    model = signature.model
    own_name = signature.own_names.get(name, name)
    if not getattr(model, "inputs", None):
        return model.layers[-1] if getattr(model, "layers", None) else None
    tensor = named_outputs(model, output_of(model)).get(own_name)
    while tensor is not None:
        maker = layer_of(tensor)
        if getattr(maker, "inputs", None) and len(maker.outputs) == 1:
            tensor = maker.outputs[0]  # the layer is a model itself
        elif isinstance(maker, _PASSING) or (
            isinstance(maker, keras.layers.Activation)
            and maker.activation is keras.activations.linear
        ):
            (tensor,) = sources_of(tensor)
        else:
            return maker
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """How far some outputs are from those wanted.

    Attributes:
        largest_difference: The largest difference, relative as for `verify`;
            infinite on an error, or if shapes differ.
        where: Name and index of the output with this difference.
    """

    largest_difference: float = 0.0
    where: str = ""


def difference(
    wanted: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    scales: Mapping[str, float],
    examples: Sequence[str] = (),
) -> Difference:
    """Compares outputs by their names."""
    worst, where = 0.0, ""
    for name, right in wanted.items():
        if right.shape != got[name].shape:
            return Difference(largest_difference=math.inf, where=name)
        apart = distances(right, got[name], scales[name])
        if apart.size == 0:
            continue
        index = np.unravel_index(np.argmax(apart), apart.shape)
        if apart[index] > worst or not where:
            worst = float(apart[index])
            where = f"{name}{[int(i) for i in index]}"
            if examples and index:
                where += f", where the inputs are {examples[int(index[0])]}"
    return Difference(largest_difference=worst, where=where)


def scales_of(outputs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the size of each output's numbers, from 0.01 to 1, by name."""
    scales: dict[str, float] = {}
    for each in outputs:
        for name, value in each.items():
            numbers = np.zeros(0)
            if "float" in value.dtype.name:
                numbers = np.abs(value.astype("float64"))
            largest = np.max(numbers[np.isfinite(numbers)], initial=0.01)
            scales[name] = min(1.0, max(scales.get(name, 0.01), largest))
    return scales


def _is_float(values: Any) -> bool:
    return "float" in values.dtype.name


def has_nan(outputs: Mapping[str, np.ndarray]) -> bool:
    """Returns whether some number is NaN."""
    return any(
        _is_float(value) and bool(np.any(np.isnan(value)))
        for value in outputs.values()
    )


Outputs = Mapping[str, np.ndarray]

# `retrace(inputs, outputs, tolerance)`: see `Offers.retrace`.
Retrace = Callable[[Inputs, Outputs, float], dict[str, np.ndarray]]


def retrace_of(signature: Signature) -> Retrace | None:
    """Returns how a model of choices is run again, or None.

    That is `Offers.retrace`, from arrays to arrays.
    """
    oracle = signature.oracle
    if oracle is not None:
        inner = retrace_of(oracle.base)
        if inner is None:
            return None
        return lambda inputs, outputs, tolerance: oracle.from_base(
            inner(oracle.to_base(inputs), outputs, tolerance)
        )
    method = Offers.of(signature.model).retrace or _rounded_again(signature)
    if method is None:
        return None
    import tensorflow as tf

    call = tf.function(method, autograph=False, reduce_retracing=True)
    own = signature.own_names

    def retrace(
        inputs: Inputs, outputs: Outputs, tolerance: float
    ) -> dict[str, np.ndarray]:
        with tf.device("CPU:0"):
            found = call(
                {name: tf.constant(value) for name, value in inputs.items()},
                {
                    own.get(name, name): tf.constant(value)
                    for name, value in outputs.items()
                },
                tf.constant(tolerance, "float32"),
            )
        named = {value: name for name, value in own.items()}
        return {
            named.get(name, name): value.numpy()
            for name, value in found.items()
        }

    return retrace


def rounding_layers(signature: Signature) -> dict[str, Any]:
    """Returns the layers that round outputs, by the signature's names.

    Such a layer has a method `unrounded()`, a context in which it returns
    floats, relative to the largest one of their vector, and a method
    `settled(floats, outputs, tolerance)`, which rounds them, but takes the
    other outputs where the floats are as near to them.
    """
    model = signature.model
    if not getattr(model, "inputs", None):
        return {}
    new = {own: name for name, own in signature.own_names.items()}
    names = [
        new.get(own, own) for own in named_outputs(model, output_of(model))
    ]
    makers = {name: maker_of(signature, name) for name in names}
    return {n: each for n, each in makers.items() if hasattr(each, "unrounded")}


def _rounded_again(signature: Signature) -> Callable[..., Any] | None:
    """Returns a `retrace` of a model whose last layers round, or None."""
    makers = rounding_layers(signature)
    if not makers:
        return None

    def retrace(
        inputs: Mapping[str, Any], outputs: Mapping[str, Any], tolerance: Any
    ) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            for maker in makers.values():
                stack.enter_context(maker.unrounded())
            floats = signature.call(inputs)
        found = {}
        for name, value in floats.items():
            own = signature.own_names.get(name, name)
            found[own] = value
            if name in makers:
                settle = makers[name].settled
                found[own] = settle(value, outputs[own], tolerance)
        return found

    return retrace


def kinds_of(
    signature: Signature, outputs: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Returns what each output holds: classes, vectors, integers or bits.

    Classes are probabilities: they add up to 1, or a softmax or sigmoid makes
    them. Other floats are vectors, and so are those that the model rounds to
    int8. Texts are left out.
    """
    kinds, rounded = {}, rounding_layers(signature)
    for name in outputs[0] if outputs else ():
        values = [each[name] for each in outputs]
        if values[0].dtype == object:
            continue
        if name in rounded:
            is_packed = rounded[name].rounded_dtype == "uint8"
            kinds[name] = BITS if is_packed else VECTORS
        elif "float" not in values[0].dtype.name:
            kinds[name] = INTEGERS
        else:
            activation = getattr(maker_of(signature, name), "activation", None)
            is_made = activation in (
                keras.activations.softmax,
                keras.activations.sigmoid,
            )
            is_class = is_made or add_up_to_1(values)
            kinds[name] = CLASSES if is_class else VECTORS
    return kinds


def resolve_ties(
    wanted: Outputs,
    got: Outputs,
    inputs: Inputs,
    retrace: Retrace | None,
    tolerance: float,
) -> tuple[Outputs, int]:
    """Returns the outputs to compare others with, and the number of near-ties.

    They are the wanted outputs, except for examples with another choice that
    the model rates equal: there they are the model's outputs for that choice.
    """
    choices = [n for n, value in wanted.items() if not _is_float(value)]
    if retrace is None or any(
        got[name].shape != value.shape for name, value in wanted.items()
    ):
        return wanted, 0

    def differing(outputs: Outputs) -> np.ndarray:
        """Returns in which examples some choice is not the given one."""
        found = [_bytes(outputs[n]) != _bytes(got[n]) for n in choices]
        rows = [each.any(axis=(*range(1, each.ndim),)) for each in found]
        return np.any(rows, axis=0)

    other = differing(wanted)
    if not np.any(other):
        return wanted, 0
    try:
        found = retrace(inputs, got, tolerance)
    except Exception:  # of the model's code, which may not take such outputs
        return wanted, 0
    # Ties are the other choices that the model now makes as well.
    ties = other & ~differing(found)
    resolved = {
        name: np.where(
            ties.reshape(-1, *[1] * (value.ndim - 1)), found[name], value
        )
        for name, value in wanted.items()
    }
    return resolved, int(np.sum(ties))


def _bytes(values: np.ndarray) -> Any:
    return (
        np.frompyfunc(to_bytes, 1, 1)(values)
        if values.dtype == object
        else values
    )
