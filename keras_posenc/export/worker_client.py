"""Runs an exported model in a process of its own."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportVerificationError, in_words
from keras_posenc.export.inspect import Inspection, inspect_safe
from keras_posenc.export.probes.cases import Case, Expectations
from keras_posenc.export.processes import (
    MEMORY,
    MIB,
    Isolated,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc.export.publish import working_folder, writing_to
from keras_posenc_worker import codec, run
from keras_posenc_worker.runtimes import op_libraries

_TIMEOUT = 600  # seconds by the clock, on a machine however busy
_PROGRAM_SECONDS = 60  # for XLA, to compile one

_TIMES = 5

_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # A GPU's memory is this process's already.
    "CUDA_VISIBLE_DEVICES": "-1",
    # Else TensorFlow keeps what it is done with, as much as it ever had.
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
}


def start_tensorflow() -> Isolated:
    """A runtime for SavedModels, which loads while the model is asked."""
    return Isolated(run.__name__, ["saved_model"], **_ENVIRONMENT)


def load_ahead(
    runtime: Isolated, artifact: Path, limits: Limits | None = None
) -> None:
    """Lets TensorFlow load a SavedModel before it is asked.

    Args:
        runtime: Where.
        artifact: The SavedModel.
        limits: None if it is one's own.
    """
    runtime.prepare(
        "saved_model",
        str(artifact.resolve()),
        op_libraries(),
        limits=limits,
    )


def check_loads(artifact: Path, allow_operators: Sequence[str]) -> None:
    """Loads a SavedModel, as a server would, and replays its warm-up.

    Raises:
        ExportVerificationError: It does not load, or does more than compute.
    """
    inspection = inspect_safe(artifact, allow_operators)
    limits = Limits(
        # What its warm-up needs, nobody knows here.
        memory=MEMORY + 4 * inspection.size_bytes + 4096 * MIB,
        seconds=_TIMEOUT,
        timeout=_TIMEOUT,
    )
    ask("saved_model", inspection.path, [], limits, None)


def limits_of(
    expectations: Expectations | None, inspection: Inspection
) -> Limits:
    """What its runtime may use, by what the model itself used.

    Without expectations, until there are some: to load it.
    """
    sizes = [
        value.nbytes
        for case in (expectations.cases if expectations else [])
        for value in (*case.inputs.values(), *case.answers.values())
    ]
    seconds = expectations.seconds if expectations else 0.0
    programs = sum(
        len(each.asked)
        for each in (expectations.signatures if expectations else [])
    )
    # A SavedModel is loaded twice: as servers do, and as Python does.
    is_twice = inspection.kind == "saved_model"
    return Limits(
        memory=MEMORY
        + 512 * MIB * is_twice
        + 4 * (inspection.size_bytes + sum(sizes))
        + 2 * max(0, _peak_memory() - 1024 * MIB),
        # The worker asks up to six times, and first loads TensorFlow.
        seconds=12
        + 6 * is_twice
        + inspection.size_bytes // (20 * MIB)
        + round(8 * seconds)
        + _PROGRAM_SECONDS * programs,
        file=64 * MIB + 4 * sum(sizes),
        timeout=_TIMEOUT,
    )


def _peak_memory() -> int:
    """The most memory that this process had, in bytes; 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def ask(
    kind: str,
    artifact: Path,
    cases: Sequence[Case],
    limits: Limits,
    runtime: Isolated | None,
    times: int = _TIMES,
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """What an artifact answers to each batch, and the arrays of its answers.

    Raises:
        ExportVerificationError: It does not load, crashes, comes upon a limit,
            or is one model for servers and another for Python.
    """
    with working_folder() as folder, writing_to(folder.parent):
        arrays: dict[str, Any] = {}
        request = {
            "kind": kind,
            "artifact": str(artifact.resolve()),
            "op_libraries": op_libraries(),
            "times": times,
            "cases": [
                {
                    "signature": case.signature,
                    "inputs": {
                        name: codec.encode(value, f"{index}/{name}", arrays)
                        for name, value in case.inputs.items()
                    },
                }
                for index, case in enumerate(cases)
            ],
        }
        codec.write(folder, "request", request, arrays)
        try:
            if runtime is None:
                run_isolated(
                    run.__name__,
                    str(folder),
                    limits=limits,
                    prepared=[kind],
                    **_ENVIRONMENT,
                )
            else:
                runtime.run(str(folder), limits=limits)
            if not (folder / "response.json").exists():
                raise IsolationError("failed (without an answer)")
        except IsolationError as error:
            raise ExportVerificationError(
                f"The runtime {error} while it ran '{artifact}'"
            ) from error
        response, outputs = codec.read(folder, "response")
        if "error" in response:
            kind, _, reason = response["error"].partition(": ")
            if kind == "Disagreement":
                raise ExportVerificationError(
                    f"'{artifact}' is not the same to servers and to Python: "
                    f"{reason}"
                )
            missing = re.search(r"Op type not registered '([^']+)'", reason)
            if missing and not op_libraries():
                raise ExportVerificationError(
                    f"'{artifact}' does not load: its operator {missing[1]} is "
                    "TensorFlow Text's or another package's, and TensorFlow "
                    "Text is not installed: pip install tensorflow-text, of "
                    "the same minor version as tensorflow"
                )
            raise ExportVerificationError(
                f"'{artifact}' does not load: {in_words(response['error'])}"
            )
        return response, outputs
