"""Runs packages in LiteRT-LM's engine, and the cases that are kept with them.

The engine does not run single signatures. So a package of a language model has
cases of three kinds: `tokenize`, `score` and `continue`. That of an embedder
has cases of texts and their vectors.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from keras_posenc.progress import counted
from keras_posenc.publish import working_folder
from keras_posenc_worker import run_embedding_engine, run_litertlm
from keras_posenc_worker.cases import make_case

Inputs = Sequence[tuple[str, Mapping[str, Any]]]


def require_engine() -> None:
    """Raises `ImportError` if the engine is not installed."""
    from importlib import util

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


def threads() -> int:
    """Returns how many threads the engine may use."""
    return min(os.cpu_count() or 1, 4)


@contextlib.contextmanager
def named_package(path: Path) -> Iterator[Path]:
    """Yields a path of a package that ends as the engine demands.

    It tells its formats by the ending of the name.
    """
    with working_folder() as folder:
        link = folder / "model.litertlm"
        link.symlink_to(path.resolve())
        yield link


def run_in_engine(
    path: Path,
    request: Mapping[str, Any],
    tokens: int = 0,
    step: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Runs `keras_posenc_worker.run_litertlm` on a package.

    Args:
        path: The package.
        request: See `run_litertlm.main`.
        tokens: How many tokens it reads, except some hundred.
        step: Shows the progress, or None.

    Raises:
        ExportVerificationError: The package does not load, or its process
            crashes or meets a limit.
    """
    request = {
        "threads": threads(),
        "counts": step is not None,
        **{name: [] for name in ("texts", "prompts", "targets", "chats")},
        **request,
    }
    show = None
    if step is not None:
        name = "Running it in LiteRT-LM's engine"
        total = sum(len(request[x]) for x in ("prompts", "targets", "chats"))
        step(name)
        show = counted(step, name, total, "prompts")
    tokens += 500 + sum(
        each["count"] for each in (*request["prompts"], *request["chats"])
    )
    try:
        with named_package(path) as package:
            found: dict[str, Any] = run_in_worker(
                run_litertlm.__name__,
                str(package),
                request,
                limits=limits_of_engine(path, tokens),
                show=show,
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


def run_in_embedding_engine(
    package: Path, texts: Sequence[str]
) -> dict[str, Any]:
    """Runs `keras_posenc_worker.run_embedding_engine` on a package.

    Raises:
        ExportVerificationError: Its process crashes or meets a limit.
    """
    try:
        with named_package(package) as link:
            found: dict[str, Any] = run_in_worker(
                run_embedding_engine.__name__,
                str(link),
                list(texts),
                limits=Limits(
                    memory=2 * MEMORY + 4 * package.stat().st_size,
                    seconds=300,
                    timeout=600,
                ),
            )
    except WorkerError as error:
        raise ExportVerificationError(
            f"LiteRT-LM's engine {error} while it ran '{package}'"
        ) from error
    return found


def vectors_of(
    rows: Sequence[Mapping[str, Any]], output: str
) -> dict[str, Any]:
    """Returns the engine's vectors of a batch as the outputs of a case."""
    for each in rows:
        if "error" in each:
            return {"outputs": {}, "error": each["error"]}
    vectors = np.array([each["vector"] for each in rows], "float32")
    times = [each["milliseconds"] for each in rows]
    return {
        "outputs": {output: vectors},
        "milliseconds": float(np.median(times)),
    }


def _texts(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], object)


def _strings(array: Any) -> list[str]:
    return [
        text.decode() if isinstance(text, bytes) else text
        for text in array.ravel()
    ]


def tokenize_case(text: str, ids: Sequence[int]) -> dict[str, Any]:
    """Returns the case of a text and its ids."""
    outputs = {"ids": np.array(ids, "int64")}
    return make_case(
        "tokenize", {"text": _texts([text])}, outputs, outputs, {}, 0.0
    )


def score_case(
    parts: Sequence[str],
    target: str,
    wanted: np.ndarray,
    got: np.ndarray,
    size: float,
    tolerance: float,
) -> dict[str, Any]:
    """Returns the case of a text's log-likelihoods, token by token."""
    return make_case(
        "score",
        {"parts": _texts(parts), "target": _texts([target])},
        {"log_likelihoods": wanted},
        {"log_likelihoods": got},
        {"log_likelihoods": size},
        tolerance,
    )


def continue_case(
    parts: Sequence[str], count: int, text: str
) -> dict[str, Any]:
    """Returns the case of a prompt and its continuation."""
    outputs = {"text": _texts([text])}
    return make_case(
        "continue",
        {"parts": _texts(parts), "count": np.array([count], "int32")},
        outputs,
        outputs,
        {},
        0.0,
    )


def run_litertlm_cases(
    path: Path, cases: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Runs cases in LiteRT-LM's engine; returns `outputs` or `error` of each.

    Raises:
        ExportVerificationError: The package cannot be run.
    """
    if not {each["signature"] for each in cases} <= {*_KINDS}:
        rows = [_strings(*each["inputs"].values()) for each in cases]
        texts = [*dict.fromkeys(text for each in rows for text in each)]
        found = run_in_embedding_engine(path, texts)["cases"]
        by_text = dict(zip(texts, found, strict=True))
        return [
            vectors_of([by_text[text] for text in own], *case["outputs"])
            for case, own in zip(cases, rows, strict=True)
        ]
    request: dict[str, list[Any]] = {name: [] for name in _KINDS.values()}
    order = []
    for case in cases:
        kind, inputs = _KINDS[case["signature"]], case["inputs"]
        each: Any = {
            key: value.item()
            if key == "count"
            else _strings(value)
            if key == "parts"
            else _strings(value)[0]
            for key, value in inputs.items()
        }
        order.append((kind, len(request[kind])))
        request[kind].append(each["text"] if kind == "texts" else each)
    tokens = sum(len("".join(x["parts"])) for x in request["targets"])
    response = run_in_engine(path, request, tokens)
    found = [response[kind][index] for kind, index in order]
    return [
        got
        if isinstance(got, dict)
        else {"outputs": _output(next(iter(case["outputs"])), got)}
        for case, got in zip(cases, found, strict=True)
    ]


# The parts of a request to the engine, by the signature of a case.
_KINDS = {"tokenize": "texts", "score": "targets", "continue": "prompts"}


def _output(name: str, got: Any) -> dict[str, np.ndarray]:
    if isinstance(got, str):
        return {name: _texts([got])}
    return {name: np.array(got, "int64" if name == "ids" else "float64")}
