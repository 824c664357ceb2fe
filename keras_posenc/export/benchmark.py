"""Times a LiteRT file or a LiteRT-LM package on this machine."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc.checks import as_integer, check_positive_int
from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litertlm_run import (
    named_package,
    require_engine,
)
from keras_posenc.export.inspect import Inspection, inspect_export, locate
from keras_posenc.export.worker_client import (
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.progress import printable, progress
from keras_posenc_worker import benchmark, benchmark_package

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
        peak_bytes: Most memory that this process used, over all lengths.
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
        notes: Of a package, which texts were cut, or which prompts left out.
    """

    path: Path
    size_bytes: int
    timings: list[Timing]
    notes: list[str] = dataclasses.field(default_factory=list)

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
        return "\n".join([size, capture.get().rstrip("\n"), *self.notes])


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
            prompts for which the cache has no room are left out.
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
    locate(path)  # else the argument is wrong, not the file
    try:
        inspection = inspect_export(path)
    except ValueError as error:
        raise ExportVerificationError(str(error)) from error
    if inspection.kind not in ("litert", "litertlm"):
        raise ValueError(
            "`path` must be a LiteRT file or a LiteRT-LM package. Received: "
            f"{inspection.kind} at '{inspection.path}'"
        )
    if threads is None:
        threads = sorted({1, min(4, os.cpu_count() or 1)})
    _check_counts("lengths", lengths)
    _check_counts("threads", threads)
    repeats = check_positive_int("repeats", repeats)
    if inspection.kind == "litertlm":
        if signatures is not None:
            raise ValueError(
                "`signatures` must be None for a LiteRT-LM package, whose "
                f"engine chooses them. Received: signatures={signatures!r}"
            )
        return _of_package(inspection, lengths, threads, repeats, verbose)
    if not inspection.signatures:
        raise ValueError(
            "`path` must be a LiteRT file with signatures, as export_litert "
            f"writes them. Received: none in '{inspection.path}'"
        )
    names = list(inspection.signatures) if signatures is None else signatures
    if isinstance(names, str) or not names:
        raise ValueError(
            "`signatures` must be a list of names, or None. "
            f"Received: signatures={signatures!r}"
        )
    for name in names:
        if name not in inspection.signatures:
            raise ValueError(
                "`signatures` must be names of the file's own: "
                f"{', '.join(inspection.signatures)}. Received: {name!r}"
            )
    timings = []
    with progress(verbose) as step:
        for name in names:
            inputs = inspection.signatures[name]["inputs"].values()
            is_static = all(
                None not in (tensor.shape or (None,))[1:] for tensor in inputs
            )
            for count in map(int, threads):
                step(f"Timing {name} on {count} thread{'s' * (count > 1)}")
                found = _run(
                    benchmark.__name__,
                    f"signature '{name}'",
                    str(inspection.path.resolve()),
                    name,
                    count,
                    [1] if is_static else [*map(int, lengths)],
                    int(repeats),
                )
                timings += _timings(found, count)
    return Benchmark(inspection.path, inspection.size_bytes, timings)


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


def _of_package(
    found: Inspection,
    lengths: Sequence[int],
    threads: Sequence[int],
    repeats: int,
    verbose: int,
) -> Benchmark:
    """Times a package in LiteRT-LM's engine.

    Raises:
        ValueError: It has no room for any of the prompts.
    """
    require_engine()
    package = found.package or {}
    is_embedder = "text_encoder" in package.get("models", [])
    kept = [*map(int, lengths)]
    notes = []
    if not is_embedder:
        most = package.get("max_tokens", 0) - benchmark_package.DECODED
        kept = [each for each in kept if each <= most]
        left = [str(each) for each in lengths if each > most]
        if left:
            notes = [
                f"left out: prompts of {', '.join(left)} tokens. With "
                f"{benchmark_package.DECODED} more, the package's cache has "
                f"room for {most}"
            ]
        if not kept:
            raise ValueError(
                f"`lengths` must have one of at most {most}, so that "
                f"{benchmark_package.DECODED} more tokens fit into the "
                f"package's cache. Received: lengths={[*lengths]}"
            )
    timings = []
    with progress(verbose) as step, named_package(found.path) as link:
        for count in map(int, threads):
            step(f"Timing it on {count} thread{'s' * (count > 1)}")
            response = _run(
                benchmark_package.__name__,
                f"'{found.path}'",
                *(str(link), count, kept, repeats, is_embedder),
            )
            timings += _timings(response, count)
    if cut := ", ".join(map(str, response["cut"])):
        notes = [
            f"cut: texts of {cut} words, which have more tokens than the "
            "package takes. Their times are those of its longest text"
        ]
    return Benchmark(found.path, found.size_bytes, timings, notes)


def _timings(response: dict[str, Any], threads: int) -> list[Timing]:
    load_seconds, peak_bytes = response["load_seconds"], response["peak_bytes"]
    return [
        Timing(
            threads=threads,
            load_seconds=load_seconds,
            peak_bytes=peak_bytes,
            **run,
        )
        for run in response["runs"]
    ]


def _run(module: str, what: str, *arguments: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = run_in_worker(
            module, *arguments, limits=_LIMITS
        )
    except WorkerError as error:
        raise RuntimeError(f"The runtime {error} while it ran {what}") from (
            error
        )
    if "error" in found:
        raise RuntimeError(f"The runtime does not run {what}: {found['error']}")
    return found
