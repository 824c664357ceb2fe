"""Answers that are choices, and how a choice between equals may fall."""

from collections.abc import Callable, Mapping

import numpy as np

from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.signatures.signature import Signature

Answers = Mapping[str, np.ndarray]

# `retrace(inputs, answers, tolerance)`: what the model answers where each of
# its choices that hangs on no more than the tolerance falls as in the answers.
Retrace = Callable[[Inputs, Answers, float], dict[str, np.ndarray]]

FORCED = 1e6  # a tolerance by which every choice falls so


def retrace_of(signature: Signature) -> Retrace | None:
    """How a model that chooses is asked again; None for one that computes.

    A model whose answers are choices, one hanging on another, such as the
    tokens of a sequence, has a method `retrace`, from dicts of tensors by the
    names of its inputs and outputs, and a tolerance, to a dict of its outputs.
    """
    origin = signature.origin
    if origin is not None:
        inner = retrace_of(origin.signature)
        if inner is None:
            return None
        return lambda inputs, answers, tolerance: origin.tell(
            inner(origin.ask(inputs), answers, tolerance)
        )
    method = getattr(signature.model, "retrace", None)
    if method is None:
        return None
    import tensorflow as tf

    call = tf.function(method, autograph=False, reduce_retracing=True)
    own = signature.own_names

    def retrace(
        inputs: Inputs, answers: Answers, tolerance: float
    ) -> dict[str, np.ndarray]:
        with tf.device("CPU:0"):
            found = call(
                {name: tf.constant(value) for name, value in inputs.items()},
                {
                    own.get(name, name): tf.constant(value)
                    for name, value in answers.items()
                },
                tf.constant(tolerance, "float32"),
            )
        named = {value: name for name, value in own.items()}
        return {
            named.get(name, name): value.numpy()
            for name, value in found.items()
        }

    return retrace


def settled(
    wanted: Answers,
    got: Answers,
    inputs: Inputs,
    retrace: Retrace | None,
    tolerance: float,
) -> tuple[Answers, int]:
    """The answers that some others are to be compared with.

    Those wanted, but for rows that chose otherwise, and as the model could
    have: there it is what the model says of that choice.

    Returns:
        Answers, and in how many rows they are not the wanted ones.
    """
    choices = [
        name
        for name, value in wanted.items()
        if "float" not in value.dtype.name
    ]
    if (
        retrace is None
        or not choices
        or any(got[name].shape != wanted[name].shape for name in wanted)
        or any(
            (got[name].dtype == object) != (wanted[name].dtype == object)
            for name in wanted
        )
    ):
        return wanted, 0

    def other_rows(answers: Answers) -> np.ndarray:
        return np.any(
            [
                _rows(_bytes(answers[name]) != _bytes(got[name]))
                for name in choices
            ],
            axis=0,
        )

    other = other_rows(wanted)
    if not np.any(other):
        return wanted, 0
    try:
        found = retrace(inputs, got, tolerance)
    except Exception:  # of the model's code, which may not take such answers
        return wanted, 0
    ties = other & ~other_rows(found)
    if not np.any(ties):
        return wanted, 0
    settled = {}
    for name, value in wanted.items():
        here = ties.reshape(-1, *[1] * (value.ndim - 1))
        settled[name] = np.where(here, found[name], value)
    return settled, int(np.sum(ties))


def _rows(values: np.ndarray) -> np.ndarray:
    """Which rows have a True anywhere."""
    return np.any(values, axis=tuple(range(1, values.ndim)))


def _bytes(values: np.ndarray) -> np.ndarray:
    """Strings as bytes, whatever they were."""
    if values.dtype != object:
        return values
    return np.array(
        [
            each.encode() if isinstance(each, str) else each
            for each in values.ravel()
        ],
        object,
    ).reshape(values.shape)
