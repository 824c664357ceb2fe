"""Times a LiteRT file or a LiteRT-LM package, for `keras-posenc bench`."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export import units
from keras_posenc.export.formats.litertlm_run import (
    named_package,
    require_engine,
)
from keras_posenc.export.inspect import inspect_safe, locate
from keras_posenc.export.worker_client import (
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.progress import progress
from keras_posenc_worker import benchmark

# No limits: the needs of runs of any length are not known.
_LIMITS = Limits(memory=None, seconds=None, timeout=600)


def timings(
    path: str | Path,
    signatures: Sequence[str] | None,
    lengths: Sequence[int],
    threads: Sequence[int] | None,
    repeats: int,
) -> Iterator[dict[str, Any]]:
    """Yields the times of each signature, number of threads and length.

    Each signature and number of threads runs in a fresh process without Keras
    and TensorFlow; `keras_posenc_worker.benchmark` says what a dict has. Of a
    package, lengths are numbers of words, of one letter each, or of tokens of a
    prompt, as far as it has room for them. Threads are by default 1, and the
    number of processors, at most 4.
    """
    found = inspect_safe(locate(path)[0])
    if found.kind not in ("litert", "litertlm"):
        raise ValueError(
            "`path` must be a LiteRT file or a LiteRT-LM package. Received: "
            f"{found.kind} at '{found.path}'"
        )
    kind, known, file = "litert", [*found.signatures], found.path.resolve()
    package = found.package or {}
    if found.kind == "litertlm":
        require_engine()
        is_embedder = "text_encoder" in package.get("models", [])
        kind, known = "embedder" if is_embedder else "generator", ["text"]
    names = known if signatures is None else signatures
    if not {*names} <= {*known}:
        raise ValueError(
            "`signatures` must be names of the file's own: "
            f"{', '.join(known) or 'it has none'}. "
            f"Received: signatures={signatures!r}"
        )
    if most := package.get("max_tokens", 0):
        most -= benchmark.DECODED * (kind == "generator")
        lengths = [each for each in lengths if each <= most]
        if not lengths:
            raise ValueError(
                f"`lengths` must have one of at most {most}, for which the "
                "package has room"
            )
    with contextlib.ExitStack() as stack:
        step = stack.enter_context(progress(True))
        if found.kind == "litertlm":
            file = stack.enter_context(named_package(file))
        for name in names:
            for count in threads or sorted({1, min(4, os.cpu_count() or 1)}):
                step(f"Timing {name} on {units.count(count, 'thread')}")
                given = kind, str(file), name, count, [*lengths], repeats
                try:
                    response = run_in_worker(
                        benchmark.__name__, *given, limits=_LIMITS
                    )
                except WorkerError as error:
                    response = {"error": f"its process {error}"}
                if "error" in response:
                    raise RuntimeError(
                        f"The runtime does not run '{name}': "
                        f"{response['error']}"
                    )
                for run in response["runs"]:
                    yield {**run, "threads": count}
