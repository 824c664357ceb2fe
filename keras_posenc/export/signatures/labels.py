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
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import layer_of

CLASSES = "classes"
LABEL = "label"


def is_labels(output: str) -> bool:
    """Returns whether an output's name is one of labels."""
    return output.rpartition("_")[2] in (CLASSES, LABEL)


def with_labels(
    signatures: Sequence[Signature], labels: Any
) -> list[Signature]:
    """Returns signatures with outputs that name the classes of their scores.

    See `labels` of `export_saved_model`. Of several equal scores the first
    one's class is the `label`.
    """
    check_labels(labels)
    outputs = [outputs_of(signature) for signature in signatures]
    # The name "" is of the only output.
    by_output = dict(labels) if isinstance(labels, Mapping) else {"": labels}
    resolved, used = [], set()
    for signature, shapes in zip(signatures, outputs, strict=True):
        added = []
        for given, names in by_output.items():
            own = given or (next(iter(shapes)) if len(shapes) == 1 else "")
            shape = shapes.get(own, ())
            if len(shape) > 1 and (
                shape[-1] == len(names) or _is_probability(shape, names)
            ):
                used.add(given)
                prefix = f"{given}_" if given else ""
                _check_addition(signature, shapes, own, prefix)
                added.append(_Labels(own, prefix, names))
        resolved.append(_labelled(signature, added) if added else signature)
    for given, names in by_output.items():
        if given not in used:
            texts = [
                f"{name} of shape {shape}"
                for shapes in outputs
                for name, shape in shapes.items()
            ]
            of = f"'{given}'" if given else "the model's one output"
            raise ValueError(
                f"`labels` must name each score of {of}, of shape (batch, "
                f"..., scores). Received: {len(names)} labels for "
                f"{', '.join(dict.fromkeys(texts))}. Give several outputs a "
                "dict of labels by output; leave out `labels` (--labels) if "
                "the model gives vectors, not scores"
            )
    return resolved


def meaning_of(labels: Any, output: str) -> str | None:
    """Returns what an output of labels means, as text, or None."""
    scores, _, kind = output.rpartition("_")
    names = labels.get(scores) if isinstance(labels, Mapping) else labels
    if not names or bool(scores) != isinstance(labels, Mapping):
        return None
    is_two = len(names) == 2
    return {
        CLASSES: f"the class of each score, in their order: {', '.join(names)}"
        + f"; of one score: {names[-1]}" * is_two,
        LABEL: "the class of the highest score"
        + f"; of one score: {names[-1]} from 0.5 on" * is_two,
    }.get(kind)


def check_labels(labels: Any) -> None:
    """Raises `ValueError` unless it is a list of labels, or a dict of them."""
    lists = labels.items() if isinstance(labels, Mapping) else [("", labels)]
    if isinstance(labels, Mapping) and not labels:
        raise ValueError("`labels` must name at least one output")
    for output, names in lists:
        of = f" of '{output}'" * bool(output)
        if (
            isinstance(names, str | bytes)
            or not isinstance(names, Sequence)
            or not names
            or not all(isinstance(name, str) and name for name in names)
        ):
            raise ValueError(
                f"`labels`{of} must be a list of strings, none of them empty, "
                f"or a dict of such by output. Received: {names!r}"
            )
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(
                f"`labels`{of} must differ from one another. Received twice: "
                f"{', '.join(map(repr, repeated))}"
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
    """Returns whether one number is the probability of the second label."""
    return shape[-1] == 1 and len(labels) == 2


def _check_addition(
    signature: Signature, shapes: Mapping[str, Shape], scores: str, prefix: str
) -> None:
    """Raises `ValueError` for a name that is taken, or a logit."""
    for name in (f"{prefix}{CLASSES}", f"{prefix}{LABEL}"):
        if name in shapes:
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


@dataclasses.dataclass(frozen=True)
class _Labels:
    """The labels of one output: its name, the new outputs' prefix, labels."""

    scores: str
    prefix: str
    labels: Sequence[str]

    def in_tensorflow(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        scores = outputs[self.scores]
        labels = tf.constant(self.labels)
        if _is_probability(scores.shape, self.labels):
            winners = tf.where(scores[..., 0] >= 0.5, labels[1], labels[0])
            labels = labels[1:]
        else:
            winners = tf.gather(labels, tf.argmax(scores, axis=-1))
        return {
            f"{self.prefix}{CLASSES}": tf.broadcast_to(
                labels, keras.ops.shape(scores)
            ),
            f"{self.prefix}{LABEL}": winners,
        }

    def in_numpy(self, outputs: Arrays) -> Arrays:
        """Returns the labels; of a file's own outputs, as it must have them.

        Where a score is NaN, its own label is returned: comparisons with NaN
        are the runtime's to define.
        """
        scores = outputs[self.scores]
        labels = np.array([label.encode() for label in self.labels], object)
        places = np.argmax(scores, axis=-1)
        if _is_probability(scores.shape, self.labels):
            places = (scores[..., 0] >= 0.5).astype("int64")
        winners = labels[places]
        name = f"{self.prefix}{LABEL}"
        if name in outputs:
            is_nan = np.isnan(scores.astype("float64")).any(axis=-1)
            winners = np.where(is_nan, outputs[name], winners)
        classes = np.empty(scores.shape, object)
        classes[...] = labels[-scores.shape[-1] :]
        return {f"{self.prefix}{CLASSES}": classes, name: winners}


def _labelled(signature: Signature, added: Sequence[_Labels]) -> Signature:
    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        outputs = signature.call(tensors)
        for each in added:
            outputs.update(each.in_tensorflow(outputs))
        return outputs

    def labels(outputs: Arrays) -> Arrays:
        found: Arrays = {}
        for each in added:
            found |= each.in_numpy(outputs)
        return found

    return dataclasses.replace(
        signature,
        call=call,
        oracle=Oracle(
            signature, from_base=lambda outputs: {**outputs, **labels(outputs)}
        ),
        labels=labels,
    )
