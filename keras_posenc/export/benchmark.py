"""Times a LiteRT file or a LiteRT-LM package on this machine."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc.checks import as_integer, check_positive_int
from keras_posenc.export import units
from keras_posenc.export.formats.litertlm_run import (
    named_package,
    require_engine,
)
from keras_posenc.export.inspect import Inspection, inspect_safe, locate
from keras_posenc.export.worker_client import (
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.progress import printable, progress
from keras_posenc_worker import benchmark

# No limits: the needs of runs of any length are not known.
_LIMITS = Limits(memory=None, seconds=None, timeout=600)


@dataclasses.dataclass(frozen=True)
class Timing:
    """Times of one signature at one length, with one number of threads.

    Attributes:
        signature: Name of the signature; of a package `"text"`, or `"prefill"`
            or `"decode"`.
        shapes: The shape of each input by name; of a package the number of
            `words` of a text, or of tokens of a `prompt`.
        threads: Number of threads that the runtime may use.
        load_seconds: Time from the path to a runner, in a fresh process.
        peak_bytes: Most memory that this process used, over all lengths; 0
            where that is not known, which is anywhere but on Linux.
        median_milliseconds: Median time of a run.
        p95_milliseconds: 95th percentile of the times.
        tokens: Of a language model's package, the tokens that a run reads or
            generates.
    """

    signature: str
    shapes: dict[str, list[int]]
    threads: int
    load_seconds: float
    peak_bytes: int
    median_milliseconds: float
    p95_milliseconds: float
    tokens: int | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Of a language model's package, from the median."""
        if self.tokens is None:
            return None
        return self.tokens * 1e3 / self.median_milliseconds


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Times and memory of a LiteRT file.

    Attributes:
        path: The file.
        size_bytes: Its size.
        timings: A `Timing` for each signature, number of threads and length.
    """

    path: Path
    size_bytes: int
    timings: list[Timing]

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a dict that JSON can hold."""
        return {**dataclasses.asdict(self), "path": str(self.path)}

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Column, Table
        from rich.text import Text

        headings = ["shape", "threads", "median, ms", "95%, ms", "load, ms"]
        headings += ["memory, MB"]
        if has_tokens := any(each.tokens for each in self.timings):
            headings += ["tokens/s"]
        table = Table(
            Column("signature", overflow="fold"),
            *(Column(heading, justify="right") for heading in headings),
        )
        for timing in self.timings:
            numbers = [
                timing.median_milliseconds,
                timing.p95_milliseconds,
                1e3 * timing.load_seconds,
                timing.peak_bytes / 1e6,
                *([timing.tokens_per_second] if has_tokens else []),
            ]
            table.add_row(
                Text(printable(timing.signature)),  # from a file: no markup
                str(tuple(next(iter(timing.shapes.values()), ()))),
                str(timing.threads),
                *(f"{number:.3g}" for number in numbers),
            )
        console = Console(width=None if sys.stdout.isatty() else 100)
        with console.capture() as capture:
            console.print(table, end="")
        size = f"{self.path}: {units.size(self.size_bytes)}"
        return "\n".join([size, capture.get().rstrip("\n")])


def benchmark_export(
    path: str | Path,
    *,
    signatures: Sequence[str] | None = None,
    lengths: Sequence[int] = (16, 64, 128, 512),
    threads: Sequence[int] | None = None,
    repeats: int = 50,
    verbose: int = True,
) -> Benchmark:
    """Times a LiteRT file or a LiteRT-LM package on this processor.

    Each signature and number of threads runs in a fresh process without Keras
    and TensorFlow. The runtime from PyPI does not time single operators;
    `inspect` counts them. A package runs in LiteRT-LM's engine, from texts to
    vectors, or from a prompt to 32 further tokens.

    Args:
        path: The file or package.
        signatures: Names of signatures of a file; all of them by default.
        lengths: Sizes of the dynamic dimensions of the inputs; a dynamic batch
            is 1. A signature of static shape runs at its own. Of a package
            numbers of words, of one letter each, or of tokens of a prompt;
            those for which the package has no room are left out.
        threads: Numbers of threads; by default 1, and the number of processors,
            at most 4.
        repeats: Number of timed runs, after three runs to warm up. Of a
            language model's package at most three, each of which loads it.
        verbose: Whether to show progress; 2 also shows native logs.

    Returns:
        A `Benchmark`; print it, or call `to_dict()`.

    Raises:
        ImportError: The extra `litertlm` is not installed, for a package.
        ValueError: There is no LiteRT file or package at the path, or an
            argument is none of the above.
        RuntimeError: The runtime does not run the file; if it is damaged,
            `ExportVerificationError`.

    Example:
    >>> import keras_posenc as kp
    >>> kp.benchmark_export("no_such_file.tflite")
    Traceback (most recent call last):
    ValueError: 'no_such_file.tflite' does not exist
    """
    found = inspect_safe(locate(path)[0])
    if found.kind not in ("litert", "litertlm"):
        raise ValueError(
            "`path` must be a LiteRT file or a LiteRT-LM package. Received: "
            f"{found.kind} at '{found.path}'"
        )
    if threads is None:
        threads = sorted({1, min(4, os.cpu_count() or 1)})
    _check_counts("lengths", lengths)
    _check_counts("threads", threads)
    repeats = check_positive_int("repeats", repeats)
    kind, known = "litert", [*found.signatures]
    if found.kind == "litertlm":
        require_engine()
        is_embedder = "text_encoder" in (found.package or {}).get("models", [])
        kind, known = "embedder" if is_embedder else "generator", ["text"]
    names = known if signatures is None else signatures
    if isinstance(names, str) or not names or not {*names} <= {*known}:
        raise ValueError(
            "`signatures` must be None, or a list of names of the file's own: "
            f"{', '.join(known) or 'it has none'}. "
            f"Received: signatures={signatures!r}"
        )
    if found.kind == "litertlm":
        lengths = _with_room(found, kind, lengths)
    timings = []
    with contextlib.ExitStack() as stack:
        step = stack.enter_context(progress(verbose))
        file = found.path.resolve()
        if found.kind == "litertlm":
            file = stack.enter_context(named_package(file))
        for name in names:
            for count in map(int, threads):
                step(f"Timing {name} on {units.count(count, 'thread')}")
                response = _run(
                    kind, file, name, count, [*map(int, lengths)], repeats
                )
                runs = response.pop("runs")
                timings += [
                    Timing(threads=count, **response, **run) for run in runs
                ]
    return Benchmark(found.path, found.size_bytes, timings)


def _check_counts(argument: str, values: Any) -> None:
    if (
        not isinstance(values, Sequence)
        or not values
        or not all((as_integer(value) or 0) > 0 for value in values)
    ):
        raise ValueError(
            f"`{argument}` must be a list of integers above 0. "
            f"Received: {argument}={values!r}"
        )


def _with_room(
    found: Inspection, kind: str, lengths: Sequence[int]
) -> list[int]:
    """Returns the lengths for which a package has room, if any."""
    most = (found.package or {}).get("max_tokens", 0)
    if not most:  # the package does not say
        return [*lengths]
    most -= benchmark.DECODED if kind == "generator" else 0
    kept = [length for length in lengths if length <= most]
    if not kept:
        raise ValueError(
            f"`lengths` must have one of at most {most}, for which the package "
            f"has room. Received: lengths={[*lengths]}"
        )
    return kept


def _run(kind: str, path: Path, signature: str, *arguments: Any) -> Any:
    try:
        found = run_in_worker(
            *(benchmark.__name__, kind, str(path), signature, *arguments),
            limits=_LIMITS,
        )
    except WorkerError as error:
        raise RuntimeError(
            f"The runtime {error} while it ran '{signature}'"
        ) from error
    if "error" in found:
        raise RuntimeError(
            f"The runtime does not run '{signature}': {found['error']}"
        )
    return found
