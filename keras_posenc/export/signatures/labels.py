"""The names of a classifier's classes, as outputs next to its scores."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.from_model import named_outputs, output_of
from keras_posenc.export.signatures.signature import (
    Arrays,
    Oracle,
    Shape,
    Signature,
)
from keras_posenc.export.signatures.tracing import called, trace
from keras_posenc.keras_internals import layer_of

CLASSES = "classes"
LABEL = "label"


def is_labels(output: str) -> bool:
    """Returns whether an output's name is one of labels."""
    return output.rpartition("_")[2] in (CLASSES, LABEL)


def with_labels(
    signatures: Sequence[Signature], labels: Any
) -> list[Signature]:
    """Returns signatures with labels: see `export_saved_model`."""
    check_labels(labels)
    # The name "" is of the only output.
    by_output = dict(labels) if isinstance(labels, Mapping) else {"": labels}
    resolved, used, texts = [], set(), []
    for signature in signatures:
        shapes, added = outputs_of(signature), []
        texts += [f"{name} of shape {shape}" for name, shape in shapes.items()]
        for given, names in by_output.items():
            own = given or (next(iter(shapes)) if len(shapes) == 1 else "")
            shape = shapes.get(own, ())
            if len(shape) > 1 and (
                shape[-1] == len(names) or _is_probability(shape, names)
            ):
                used.add(given)
                prefix = f"{given}_" if given else ""
                _check_addition(signature, shapes, own, prefix)
                added.append((own, prefix, names))
        resolved.append(_labeled(signature, added) if added else signature)
    for given, names in by_output.items():
        if given not in used:
            of = f"'{given}'" if given else "the model's one output"
            raise ValueError(
                f"`labels` must name each score of {of}, of shape (batch, "
                f"..., scores). Received: {len(names)} labels for "
                f"{', '.join(dict.fromkeys(texts))}. Several outputs take, in "
                "Python, a dict of labels by output; leave out `labels` if the "
                "model gives vectors, not scores"
            )
    return resolved


def check_labels(labels: Any) -> None:
    """Raises `ValueError` unless it is a list of labels, or a dict of them."""
    lists = labels if isinstance(labels, Mapping) else {"": labels}
    if not lists:
        raise ValueError("`labels` must name at least one output")
    for output, names in lists.items():
        of = f" of '{output}'" * bool(output)
        if (
            isinstance(names, str | bytes)
            or not isinstance(names, Sequence)
            or not names
            or not all(isinstance(name, str) and name for name in names)
            or len({*names}) < len(names)
        ):
            raise ValueError(
                f"`labels`{of} must be a list of strings, none of them empty "
                "or given twice, or a dict of such by output. Received: "
                f"{names!r:.300}"
            )


def outputs_of(signature: Signature) -> dict[str, Shape]:
    """Returns the shapes of a signature's outputs by name."""
    model = signature.model
    if getattr(model, "inputs", None):
        tensors = named_outputs(model, output_of(model))
    else:
        tensors = trace(signature).structured_outputs
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _is_probability(shape: Shape, labels: Sequence[str]) -> bool:
    """Returns whether the one score is the probability of the second label."""
    return shape[-1] == 1 and len(labels) == 2


def _check_addition(
    signature: Signature, shapes: Mapping[str, Shape], scores: str, prefix: str
) -> None:
    """Raises `ValueError` for a name that is taken, or a logit."""
    for name in {f"{prefix}{CLASSES}", f"{prefix}{LABEL}"} & {*shapes}:
        raise ValueError(
            f"`labels` would add the output '{name}', which the model has "
            "already"
        )
    model = signature.model
    if shapes[scores][-1] != 1 or not getattr(model, "inputs", None):
        return
    layer = layer_of(named_outputs(model, output_of(model))[scores])
    if getattr(layer, "activation", None) is keras.activations.linear:
        raise ValueError(
            f"`labels` of '{scores}': one number with two labels must be a "
            f"probability, and layer '{layer.name}' has no activation: add "
            "one by `keras.Model(model.inputs, "
            "keras.layers.Activation('sigmoid')(model.output))`"
        )


def in_tensorflow(scores: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """Returns the class of each score, and that of the highest."""
    import tensorflow as tf

    labels = tf.constant(names)
    if _is_probability(scores.shape, names):
        winners = tf.where(scores[..., 0] >= 0.5, labels[1], labels[0])
        labels = labels[1:]
    else:
        winners = tf.gather(labels, tf.argmax(scores, axis=-1))
    return tf.broadcast_to(labels, keras.ops.shape(scores)), winners


def in_numpy(
    scores: np.ndarray, names: Sequence[str], own: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same in NumPy; `own` winners of a file where one is NaN."""
    labels = np.array([name.encode() for name in names], object)
    places = np.argmax(scores, axis=-1)
    if _is_probability(scores.shape, names):
        places = (scores[..., 0] >= 0.5).astype("int64")
    winners = labels[places]
    if own is not None:
        is_nan = np.isnan(scores.astype("float64")).any(axis=-1)
        winners = np.where(is_nan, own, winners)
    classes = np.broadcast_to(labels[-scores.shape[-1] :], scores.shape)
    return classes.copy(), winners


def _labeled(
    signature: Signature, added: Sequence[tuple[str, str, Sequence[str]]]
) -> Signature:
    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        outputs = called(signature, tensors)
        for scores, prefix, names in added:
            found = in_tensorflow(outputs[scores], names)
            outputs[f"{prefix}{CLASSES}"], outputs[f"{prefix}{LABEL}"] = found
        return outputs

    def labels(outputs: Arrays) -> Arrays:
        found: Arrays = {}
        for scores, prefix, names in added:
            label = f"{prefix}{LABEL}"
            pair = in_numpy(outputs[scores], names, outputs.get(label))
            found[f"{prefix}{CLASSES}"], found[label] = pair
        return found

    oracle = Oracle(signature, from_base=lambda found: found | labels(found))
    return dataclasses.replace(
        signature, call=call, oracle=oracle, labels=labels
    )
