"""Runs packages in LiteRT-LM's engine, and the cases kept with them."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litertlm_package import MISSING
from keras_posenc.export.worker_client import (
    MEMORY,
    MIB,
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.publish import working_folder
from keras_posenc_worker import run_litertlm
from keras_posenc_worker.cases import make_case

# Of cases of a language model: the part of a request to the engine, the name of
# the output and its dtype.
_KINDS = {
    "tokenize": ("texts", "ids", "int64"),
    "score": ("targets", "log_likelihoods", "float64"),
}


def require_engine() -> None:
    """Raises `ImportError` if the engine is not installed."""
    if util.find_spec("litert_lm") is None:
        raise ImportError(MISSING.format("litert-lm-api"))


def limits_of_engine(path: Path, tokens: int) -> Limits:
    """Returns the limits of a process that generates some tokens."""
    size = path.stat().st_size
    # Weights are packed again for the processor, those of "int8-weights" in
    # float32, and apart for each length of a chunk; threads have stacks.
    seconds = 120 + tokens * size // (50 * MIB)
    return Limits(
        memory=2 * MEMORY + 48 * size, seconds=seconds, timeout=10 * seconds
    )


@contextlib.contextmanager
def named_package(path: Path) -> Iterator[Path]:
    """Yields a path of a package that ends as the engine demands."""
    with working_folder() as folder:
        link = folder / "model.litertlm"
        link.symlink_to(path.resolve())
        yield link


def run_in_engine(
    path: Path, request: Mapping[str, Any], tokens: int = 0
) -> dict[str, Any]:
    """Runs a request on a package that reads and writes some tokens."""
    limits = limits_of_engine(path, 500 + tokens)
    try:
        with named_package(path) as package:
            found: dict[str, Any] = run_in_worker(
                run_litertlm.__name__, str(package), request, limits=limits
            )
    except WorkerError as error:
        raise ExportVerificationError(
            f"LiteRT-LM's engine {error} while it ran '{path}'"
        ) from error
    if "error" in found:
        raise ExportVerificationError(
            f"LiteRT-LM's engine does not load '{path}': {found['error']}"
        )
    return found


def vectors(path: Path, batches: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a package's vectors of texts, as `run_model` returns outputs."""
    rows = [_strings(texts) for _, texts in batches]
    known = [*dict.fromkeys(itertools.chain(*rows))]
    response = run_in_engine(path, {"vectors": known}, len(known))
    by_text = dict(zip(known, response["cases"], strict=True))
    cases: list[dict[str, Any]] = []
    for (name, _), own in zip(batches, rows, strict=True):
        found = [by_text[text] for text in own]
        errors = [each["error"] for each in found if "error" in each]
        if errors:
            cases.append({"outputs": {}, "error": errors[0]})
            continue
        outputs = np.array([each["vector"] for each in found], "float32")
        times = [each["milliseconds"] for each in found]
        case = {"outputs": {name: outputs}, "milliseconds": np.median(times)}
        cases.append(case)
    return {"cases": cases}


def _strings(array: Any) -> list[str]:
    return [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in array.ravel()
    ]


def tokenize_case(text: str, ids: Sequence[int]) -> dict[str, Any]:
    """Returns the case of a text and its ids."""
    outputs = {"ids": np.array(ids, "int64")}
    inputs = {"text": np.array([text.encode()], object)}
    return make_case("tokenize", inputs, outputs, outputs, {}, 0.0)


def score_case(
    parts: Sequence[str],
    target: str,
    *outputs: np.ndarray,
    size: float,
    tolerance: float,
) -> dict[str, Any]:
    """Returns the case of a text's scores by the model and by the engine."""
    name = "log_likelihoods"
    inputs = {
        "parts": np.array([each.encode() for each in parts], object),
        "target": np.array([target.encode()], object),
    }
    wanted, got = ({name: each} for each in outputs)
    return make_case("score", inputs, wanted, got, {name: size}, tolerance)


def run_litertlm_cases(
    path: Path, cases: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Runs cases in the engine; returns `outputs` or `error` of each."""
    if not {each["signature"] for each in cases} <= {*_KINDS}:
        batches = [
            ([*case["outputs"], *case["not_compared"]][0], texts)
            for case in cases
            for texts in case["inputs"].values()
        ]
        found: list[dict[str, Any]] = vectors(path, batches)["cases"]
        return found
    request: dict[str, list[Any]] = {"texts": [], "targets": []}
    tokens = 0
    for case in cases:
        inputs = {key: _strings(x) for key, x in case["inputs"].items()}
        if case["signature"] == "tokenize":
            request["texts"] += inputs["text"]
        else:
            (target,) = inputs["target"]
            each = {"parts": inputs["parts"], "target": target}
            request["targets"].append(each)
            tokens += sum(map(len, inputs["parts"]))
    response = run_in_engine(path, request, tokens)
    rows = {part: iter(response[part]) for part in request}
    outputs = []
    for case in cases:
        part, name, dtype = _KINDS[case["signature"]]
        got = next(rows[part])
        if not isinstance(got, dict):
            got = {"outputs": {name: np.array(got, dtype)}}
        outputs.append(got)
    return outputs
