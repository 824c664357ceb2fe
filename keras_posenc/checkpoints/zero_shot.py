"""Classes given as words, by a model of entailment.

A model that was trained to say whether one text follows from another also says
whether "This example is about sport." follows from a text.
"""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

TEMPLATE = "This example is {}."


def entailment_of(labels: Sequence[str] | None, name: str) -> tuple[int, int]:
    """Returns the places of entailment, and of its opposite, among labels.

    As in transformers, the opposite is the first label, or the last one if
    entailment is the first.
    """
    found = [
        place
        for place, label in enumerate(labels or ())
        if label.lower().startswith("entail")
    ]
    if len(found) != 1 or len(labels or ()) < 2:
        raise ValueError(
            f"Model '{name}' must have a label 'entailment', and another one, "
            "to classify texts by words: load a model of natural language "
            f"inference (NLI). Its labels: {labels}"
        )
    return found[0], -1 if found[0] == 0 else 0


def pairs_of(
    texts: Sequence[Any], labels: Any, template: Any
) -> list[list[str]]:
    """Returns each text with each hypothesis: texts first, then labels."""
    if (
        isinstance(labels, str)
        or not isinstance(labels, Sequence)
        or not labels
        or not all(isinstance(each, str) for each in labels)
        or len(set(labels)) < len(labels)
    ):
        raise ValueError(
            "`labels` must be a list of different strings, such as ['sport', "
            f"'politics']. Received: labels={labels!r}"
        )
    if not _is_template(template):
        raise ValueError(
            "`template` must be a string with one '{}', where the label goes, "
            f"such as {TEMPLATE!r}. Received: template={template!r}"
        )
    hypotheses = [template.format(label) for label in labels]
    return [
        [text.decode() if isinstance(text, bytes) else text, hypothesis]
        for text in texts
        for hypothesis in hypotheses
    ]


def scores_of(
    logits: np.ndarray, places: tuple[int, int], *, several: bool
) -> np.ndarray:
    """Returns the scores of labels, `(texts, labels)`, from logits of pairs.

    `places` are those of entailment and its opposite in the last axis; with
    `several`, each label is judged alone, against its opposite.
    """
    entailed, opposite = (logits[..., place] for place in places)
    if several or logits.shape[1] == 1:
        return np.exp(entailed - np.logaddexp(entailed, opposite))
    return np.exp(
        entailed - np.logaddexp.reduce(entailed, axis=1, keepdims=True)
    )


def _is_template(template: Any) -> bool:
    """Returns whether it is a string with one place for a label."""
    if not isinstance(template, str):
        return False
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(template)]
    except ValueError:
        return False
    return [name for name in names if name is not None] == [""]
