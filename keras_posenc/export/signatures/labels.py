"""The names of a classifier's classes, as outputs next to its scores."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_posenc.export.signatures.from_model import named_outputs, output_of
from keras_posenc.export.signatures.signature import (
    Arrays,
    Oracle,
    Signature,
)
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import layer_of

CLASSES = "classes"
LABEL = "label"

# Scores that differ by less may be ordered either way by rounding.
_NEAR = 1e-4


def is_labels(output: str) -> bool:
    """Returns whether an output's name is one of labels."""
    return output.rpartition("_")[2] in (CLASSES, LABEL)


def with_labels(
    signatures: Sequence[Signature], labels: Any
) -> list[Signature]:
    """Returns signatures with outputs that name the classes of their scores.

    Scores `(batch, classes)`, or `(batch, seq, classes)` for tokens, get two
    outputs of strings: `classes`, of the scores' shape and order, as in
    TensorFlow's Classify signatures; and `label`, without the last dimension:
    the class of the highest score, the first of several equal ones. If `labels`
    is a dict they are `<output>_classes` and `<output>_label`.

    One probability, such as a sigmoid's, takes two labels: it is that of the
    second, which is in `classes`, and `label` is the second where it is at
    least 0.5.

    Args:
        signatures: The signatures of one exported model.
        labels: The names, or a dict of names by output.

    Returns:
        The signatures, in order; those without scores unchanged.

    Raises:
        ValueError: Labels that are no distinct strings, or that fit no
            signature's scores.
    """
    check_labels(labels)
    outputs = [outputs_of(signature) for signature in signatures]
    by_output = dict(labels) if isinstance(labels, Mapping) else None
    if by_output is None:
        found = {
            name
            for names in outputs
            for name, shape in names.items()
            if len(names) == 1 and _has_scores(shape, labels)
        }
        if not found:
            raise ValueError(
                f"`labels` must name each score of the model's one output, of "
                f"shape (batch, ..., labels). Received: {len(labels)} labels "
                f"for {_describe(outputs)}. {_advice(outputs, labels)}"
            )
        by_output = dict.fromkeys(found, labels)
    for name, names in by_output.items():
        if not any(_has_scores(shapes.get(name), names) for shapes in outputs):
            raise ValueError(
                f"`labels` of '{name}' must name each score of an output "
                f"'{name}' of shape (batch, ..., labels). Received: "
                f"{len(names)} labels for {_describe(outputs)}"
            )
    is_one = not isinstance(labels, Mapping)
    resolved = []
    for signature, shapes in zip(signatures, outputs, strict=True):
        added = [
            _Labels(name, "" if is_one else f"{name}_", names)
            for name, names in by_output.items()
            if _has_scores(shapes.get(name), names)
            and not (is_one and len(shapes) > 1)
        ]
        for each in added:
            _check_probability(signature.model, each.scores, shapes)
        for name in (name for each in added for name in each.outputs):
            if name in shapes:
                raise ValueError(
                    f"`labels` would add the output '{name}', which the model "
                    "has already"
                )
        resolved.append(_labelled(signature, added) if added else signature)
    return resolved


def meaning_of(labels: Any, output: str) -> str | None:
    """Returns what an output of labels means, as text, or None."""
    scores, _, kind = output.rpartition("_")
    if isinstance(labels, Mapping):
        labels = labels.get(scores)
    elif scores:
        return None
    if labels and kind == CLASSES:
        text = f"the class of each score, in their order: {', '.join(labels)}"
        return text + f"; of one score: {labels[-1]}" * (len(labels) == 2)
    if labels and kind == LABEL:
        text = "the class of the highest score"
        return text + f"; of one score: {labels[-1]} from 0.5 on" * (
            len(labels) == 2
        )
    return None


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
        for name in names:
            try:
                name.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"`labels`{of} must be text. Received: {name!r}"
                ) from error


def outputs_of(signature: Signature) -> dict[str, tuple[int | None, ...]]:
    """Returns the shapes of a signature's outputs by name."""
    model = signature.model
    if getattr(model, "inputs", None):
        tensors = named_outputs(model, output_of(model))
    else:
        tensors = trace(signature).structured_outputs
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _describe(outputs: Sequence[Mapping[str, tuple[int | None, ...]]]) -> str:
    texts = [
        f"{name} of shape {shape}"
        for shapes in outputs
        for name, shape in shapes.items()
    ]
    return ", ".join(dict.fromkeys(texts))


def _advice(
    outputs: Sequence[Mapping[str, tuple[int | None, ...]]], labels: Any
) -> str:
    if all(len(names) > 1 for names in outputs):
        fitting = {
            name: [*labels]
            for names in outputs
            for name, shape in names.items()
            if _has_scores(shape, labels)
        }
        return (
            "There are several outputs: give a dict of labels by output"
            + f", as in `labels={fitting}`" * bool(fitting)
        )
    shapes = [shape for names in outputs for shape in names.values()]
    counts = {shape[-1] for shape in shapes}
    vector = "a vector for each token" if len(shapes[0]) > 2 else "a vector"
    return (
        "Give as many labels as there are scores: "
        f"{', '.join(sorted(map(str, counts)))}. If the model gives {vector}, "
        "not scores, leave out `labels` (--labels)"
    )


def _has_scores(shape: Sequence[int | None] | None, labels: Any) -> bool:
    if shape is None or len(shape) < 2:
        return False
    return shape[-1] == len(labels) or _is_probability(shape, labels)


def _is_probability(shape: Sequence[int | None], labels: Any) -> bool:
    """Returns whether one number is the probability of the second label."""
    return shape[-1] == 1 and len(labels) == 2


def _check_probability(
    model: keras.Model, output: str, shapes: Mapping[str, Any]
) -> None:
    """Raises `ValueError` for one number of a layer without a sigmoid."""
    if shapes[output][-1] != 1 or not getattr(model, "inputs", None):
        return
    tensor = named_outputs(model, output_of(model))[output]
    layer = layer_of(tensor)
    if getattr(layer, "activation", None) is keras.activations.linear:
        raise ValueError(
            f"`labels` of '{output}': one number with two labels must be a "
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

    @property
    def outputs(self) -> tuple[str, str]:
        return f"{self.prefix}{CLASSES}", f"{self.prefix}{LABEL}"

    def in_tensorflow(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        scores = outputs[self.scores]
        labels = tf.constant(self.labels)
        if _is_probability(scores.shape, self.labels):
            winners = tf.where(scores[..., 0] >= 0.5, labels[1], labels[0])
            labels = labels[1:]
        else:
            winners = tf.gather(labels, tf.argmax(scores, axis=-1))
        classes = tf.broadcast_to(labels, keras.ops.shape(scores))
        return dict(zip(self.outputs, (classes, winners), strict=True))

    def in_numpy(self, outputs: Arrays) -> Arrays:
        scores = outputs[self.scores]
        labels = np.array([label.encode() for label in self.labels], object)
        classes = np.empty(scores.shape, object)
        scores = scores.astype("float64")
        if _is_probability(scores.shape, labels):
            classes[...] = labels[1]
            # The second label first: of two equal ones, the first is taken.
            scores = np.concatenate([scores, 1 - scores], axis=-1)
            labels = labels[::-1]
        else:
            classes[...] = labels
        winners = labels[np.argmax(scores, axis=-1)]
        best = np.max(scores, axis=-1, keepdims=True)
        # Negated, so that NaN is near too: it is not less than any score.
        near = ~(best - scores > _NEAR * np.maximum(1, np.abs(best)))
        for index in zip(*np.nonzero(np.sum(near, -1) > 1), strict=True):
            winners[index] = _Winner(winners[index], labels[near[index]])
        return dict(zip(self.outputs, (classes, winners), strict=True))


class _Winner(bytes):
    """The label of the highest score, or of one equal to rounding.

    It equals the label of each score that rounding could make the highest: the
    model and the exported model may round differently.
    """

    def __new__(cls, label: bytes, near: Iterable[bytes]) -> Self:
        winner = super().__new__(cls, label)
        winner.near = frozenset(near)
        return winner

    near: frozenset[bytes]

    def __eq__(self, other: object) -> bool:
        return other in self.near

    def __ne__(self, other: object) -> bool:
        return other not in self.near

    __hash__ = bytes.__hash__


def _labelled(signature: Signature, added: Sequence[_Labels]) -> Signature:
    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        outputs = signature.call(tensors)
        for each in added:
            outputs.update(each.in_tensorflow(outputs))
        return outputs

    def from_base(outputs: Arrays) -> Arrays:
        for each in added:
            outputs = {**outputs, **each.in_numpy(outputs)}
        return outputs

    return dataclasses.replace(
        signature, call=call, oracle=Oracle(signature, from_base=from_base)
    )
