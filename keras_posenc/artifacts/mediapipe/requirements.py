"""What a text task of MediaPipe needs of a model."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_posenc.artifacts.signatures.labels import check_labels, outputs_of
from keras_posenc.artifacts.signatures.signature import (
    Signature,
)

TASKS = ("text_classifier", "text_embedder")

_PAD, _UNK, _CLS, _SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def check_task(task: Any, labels: Any) -> None:
    """Raises `ValueError` for an unknown task, or labels without one."""
    if task is not None and task not in TASKS:
        raise ValueError(
            "`task` must be one of 'text_classifier', 'text_embedder', or "
            f"None. Received: task={task!r}"
        )
    if labels is not None:
        if task != "text_classifier":
            raise ValueError(
                "`labels` name the scores of task='text_classifier'. Received: "
                f"labels, task={task!r}"
            )
        if isinstance(labels, Mapping):
            raise ValueError("`labels` of a task must be a list of strings")
        check_labels(labels)
        for label in labels:
            if len(label.splitlines()) > 1 or label != label.strip("\r\n"):
                raise ValueError(
                    f"`labels` must each be one line. Received: {label!r}"
                )


def is_tokenizer(layer: Any) -> bool:
    """Whether a layer cuts texts as a WordPiece tokenizer does."""
    return all(
        hasattr(layer, name)
        for name in ("get_vocabulary", "lowercase", "sequence_length")
    )


def check_tokenizer(layer: Any) -> None:
    """Raises `ValueError` where MediaPipe would give other ids."""
    if getattr(layer, "num_separators", None) is not None:
        raise ValueError(
            f"MediaPipe's tasks take single texts, and '{layer.name}' pairs of "
            "them. A file of ids, without `task`, takes both"
        )
    vocabulary = list(layer.get_vocabulary())
    counts = collections.Counter(vocabulary)
    repeated = sorted(token for token, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(
            f"The vocabulary of '{layer.name}' must hold each token once. "
            f"Received twice: {', '.join(map(repr, repeated))}"
        )
    broken = [token for token in vocabulary if "\n" in token or "\r" in token]
    if broken:
        raise ValueError(
            f"The vocabulary of '{layer.name}' must hold one line per token. "
            f"Received: {broken[0]!r}"
        )
    missing = [t for t in (_UNK, _CLS, _SEP) if t not in vocabulary]
    if missing or vocabulary[0] != _PAD:
        raise ValueError(
            f"The vocabulary of '{layer.name}' must begin with [PAD], and hold "
            "[UNK], [CLS] and [SEP], which MediaPipe writes. Received: "
            + (f"no {', '.join(missing)}" if missing else f"{vocabulary[:1]}")
        )
    if not layer.lowercase:
        raise ValueError(
            f"MediaPipe lowercases each text first, and '{layer.name}' does "
            "not. Train with lowercase=True"
        )


def check_tokens(layer: Any, tokenize: Callable[[str], np.ndarray]) -> None:
    """Raises `ValueError` where no [CLS] and [SEP] stand around a text."""
    vocabulary = list(layer.get_vocabulary())
    found = [vocabulary[index] for index in tokenize("")]
    if found != [_CLS, _SEP]:
        raise ValueError(
            "MediaPipe puts [CLS] before a text and [SEP] after it, and "
            f"'{layer.name}' turns an empty text into {found}"
        )


def differing(layer: Any) -> list[str]:
    """Which texts beyond ASCII have other ids in MediaPipe than here."""
    keeps, others = " and keeps accents", "capitals or accents"
    if getattr(layer, "strip_accents", None) is False:  # as MediaPipe does
        keeps, others = "", "capitals"
    found = [
        f"MediaPipe lowers letters of ASCII alone{keeps}: a text with other "
        f"{others} gets other ids there, unless the application folds it first "
        "(docs/limits.md)"
    ]
    if getattr(layer, "split_on_cjk", None) is False:
        found.append(
            "MediaPipe makes a word of each Chinese character, and "
            f"'{layer.name}' does not: a text with some gets other ids there"
        )
    return found


def lengths(limit: int | None, length: int | None) -> list[str]:
    """What is said of long texts.

    Args:
        limit: How many ids the model takes of a text; None for all.
        length: How many the file takes; None for any.
    """
    if length is None and limit is None:
        return [
            "it reads texts of any length, and attention takes the square of "
            "it in memory: give the tokenizer `max_length`"
        ]
    if length is None or (limit is not None and limit <= length):
        return []
    return [
        f"texts beyond {length} ids are cut; the model reads {limit or 'all'}, "
        "and may answer otherwise"
    ]


def check_output(task: str, signature: Signature, labels: Any) -> None:
    """Raises `ValueError` for outputs that do not fit the task or labels."""
    outputs = outputs_of(signature)
    shapes = list(outputs.values())
    if len(shapes) != 1 or len(shapes[0]) != 2:
        found = ", ".join(f"{n} of shape {s}" for n, s in outputs.items())
        raise ValueError(
            f"task='{task}' needs one output, of shape (batch, "
            f"{'classes' if task == TASKS[0] else 'dim'}). Received: {found}"
        )
    if labels is not None and shapes[0][1] != len(labels):
        raise ValueError(
            f"`labels` must name each of the {shapes[0][1]} scores. Received: "
            f"{len(labels)} labels"
        )
