"""Whether an artifact may be run at all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground.errors import (
    ExportVerificationError,
)
from keras_posenc.artifacts.inspection.inspection import Inspection, inspect
from keras_posenc.artifacts.inspection.operators import check_known


def check_operators(allow_operators: Any) -> None:
    """Raises `ValueError` unless they are names of operators."""
    if isinstance(allow_operators, str) or not (
        isinstance(allow_operators, Sequence)
        and all(isinstance(name, str) for name in allow_operators)
    ):
        raise ValueError(
            "`allow_operators` must be a list of operator names. "
            f"Received: allow_operators={allow_operators!r}"
        )


def inspect_safe(
    artifact: Path, allow_operators: Sequence[str] = ()
) -> Inspection:
    """`inspect`; refuses an artifact that must not be run or published.

    Raises:
        ValueError: `allow_operators` names no operator.
        ExportVerificationError: It cannot be read, or does more than compute.
    """
    try:
        inspection = inspect(artifact)
    except ValueError as error:  # it is there, and cannot be read
        raise ExportVerificationError(str(error)) from error
    check_known(allow_operators, inspection.operators)
    unsafe = set(inspection.unsafe_operators).difference(allow_operators)
    if unsafe:
        names = sorted(unsafe)
        raise ExportVerificationError(
            "An artifact may only compute, and not run Python, read or write "
            "files, or talk to others. This one has the operators "
            f"{', '.join(names)}. If you know what they do, and trust it: "
            f"`allow_operators={names}` "
            f"(--allow-op {' --allow-op '.join(names)})"
        )
    return inspection
