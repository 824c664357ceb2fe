"""Proof that MediaPipe itself takes a text task's file, and answers rightly."""

import json
from pathlib import Path

import numpy as np

from keras_posenc.artifacts.expectations.differences import difference
from keras_posenc.artifacts.expectations.expectations import Expectations
from keras_posenc.artifacts.ground.errors import ExportVerificationError
from keras_posenc.artifacts.isolated.asking import mediapipe_worker
from keras_posenc.artifacts.mediapipe.text_tasks import TextTask
from keras_posenc.artifacts.processes.isolation import (
    MEMORY,
    IsolationError,
    Limits,
    run_isolated,
)

_ROUNDING = 0.01  # of a sum of scores, in bfloat16 too


def verify_in_mediapipe(
    task: TextTask, file: Path, expectations: Expectations
) -> tuple[int, list[str]]:
    """Asks a file in MediaPipe from raw text.

    Texts of ASCII, which are cut alike there and here; where ranges were fixed
    by batches, what is far from these is only asked, as it is in LiteRT.

    Returns:
        How many texts it was asked, and what to note of its answers.

    Raises:
        ExportVerificationError: MediaPipe does not take the file, or finds
            other labels in it, or its answers are not the model's.
    """
    cases = [
        case
        for case in expectations.cases
        if case.text is not None and case.text.isascii()
    ]
    is_static = expectations.quantization == "int8-static"
    request = {
        "path": str(file.resolve()),
        "task": task.name,
        "texts": [case.text for case in cases],
    }
    try:
        found = json.loads(
            run_isolated(
                mediapipe_worker.__file__,
                json.dumps(request),
                # It loads TensorFlow, too, where there is one.
                limits=Limits(
                    memory=2 * MEMORY + 4 * file.stat().st_size,
                    seconds=60,
                    timeout=300,
                ),
                prepared=[],
                TF_CPP_MIN_LOG_LEVEL="3",
                CUDA_VISIBLE_DEVICES="-1",
            )
        )
    except IsolationError as error:
        raise ExportVerificationError(
            f"MediaPipe {error} while it ran '{file}'"
        ) from error
    if task.labels is not None and found["labels"] != task.labels:
        raise ExportVerificationError(
            f"MediaPipe finds the labels {found['labels']} in '{file}', and "
            f"they should be {task.labels}"
        )
    scales = expectations.scales[task.signature.name]
    for case, answer in zip(cases, found["answers"], strict=True):
        ((name, right),) = case.answers.items()
        differs = difference(
            case.answers, {name: np.array([answer], right.dtype)}, scales
        )
        is_judged = case.is_sample or not is_static
        if is_judged and not differs.worst <= expectations.tolerance:
            raise ExportVerificationError(
                f"MediaPipe's answers are not the model's: {differs.worst:.3g} "
                f"in {differs.where} for {case.text!r}, and "
                f"{expectations.tolerance:.3g} is allowed"
            )
    return len(cases), [*task.notes, *_scores(task, expectations)]


def _scores(task: TextTask, expectations: Expectations) -> list[str]:
    """That a classifier's scores are no probabilities, if so."""
    if task.name != "text_classifier":
        return []
    rows = np.concatenate(
        [each for case in expectations.cases for each in case.answers.values()]
    ).astype("float64")
    rows = rows[np.isfinite(rows).all(axis=-1)]
    if np.any((rows < -_ROUNDING) | (rows > 1 + _ROUNDING)):
        return [
            "its scores go beyond 0 to 1, and an application takes them for "
            "probabilities: let the model end in softmax"
        ]
    if np.any(np.abs(rows.sum(axis=-1) - 1) > _ROUNDING):
        return [
            "its scores do not add up to 1: right where several labels may "
            "hold at once; else let the model end in softmax"
        ]
    return []
