"""A file beside the one that its model becomes when it is converted again.

Answers alone do not tell an embedding that nobody asked for, nor the last bits
of a weight.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground.errors import ExportVerificationError
from keras_posenc.artifacts.processes.isolation import (
    MEMORY,
    MIB,
    IsolationError,
    Limits,
    run_isolated,
)

_NAMED = 3  # of what differs


def compare_files(
    script: str,
    reference: Path,
    artifact: Path,
    *arguments: str,
    prepared: Sequence[Any] | None = None,
    more_bytes: int = 0,
) -> dict[str, Any]:
    """Lets an isolated script compare a file with another one.

    Args:
        script: A script of `isolated/comparing`. Its `main` takes the paths of
            both files, and prints what differs as JSON.
        reference: The file that the model becomes here.
        artifact: The file to judge.
        *arguments: What `main` takes besides.
        prepared: As for `Isolated`.
        more_bytes: Of what else the script reads, for its limits.

    Raises:
        ExportVerificationError: The files cannot be compared within limits.
    """
    size = artifact.stat().st_size + reference.stat().st_size + more_bytes
    try:
        found: dict[str, Any] = json.loads(
            run_isolated(
                script,
                str(reference),
                str(artifact.resolve()),
                *arguments,
                limits=Limits(
                    memory=MEMORY + 6 * size,
                    seconds=12 + size // (10 * MIB),
                    timeout=600,
                ),
                prepared=prepared,
            )
        )
    except IsolationError as error:
        raise ExportVerificationError(
            f"The comparison of '{artifact}' with its model {error}"
        ) from error
    return found


def altered_in(found: Mapping[str, Any]) -> list[str]:
    """What of a file is not the model's, in words.

    Of another graph, where nobody knows what stands where, only the weights.
    """
    altered = []
    if found["weights"]:
        altered.append(
            f"missing or different weights: {some(found['weights'])}"
        )
    if found["constants"] and found["graph"] is None:
        altered.append(f"different numbers: {some(found['constants'])}")
    return altered


def some(words: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + f", and {more} more" * (more > 0)
