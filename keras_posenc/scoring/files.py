"""An exported file over files of any size, by processes."""

import base64
import contextlib
import copy
import dataclasses
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from keras_posenc.checks import check_positive_int
from keras_posenc.export.errors import ExportError
from keras_posenc.export.worker_client import (
    Worker,
    WorkerError,
    threads_environment,
)
from keras_posenc.progress import counting
from keras_posenc.publish import as_path, staging_in, writing_to
from keras_posenc.scoring import worker
from keras_posenc.scoring.scorer import Scorer
from keras_posenc.scoring.writing import (
    Fragment,
    FragmentError,
    find_fragments,
    run_of,
    written,
)


class ScoringWorker(Worker):
    """A worker that scores one file after the other, without limits.

    By the scorer's threads, or its share of the processors.
    """

    def __init__(self, scorer: Scorer, workers: int) -> None:
        if scorer.threads is None:
            scorer = copy.copy(scorer)
            scorer.threads = max(1, _processors() // workers)
        super().__init__(
            worker.__name__,
            environment={
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **threads_environment(scorer.threads),
            },
        )
        self.call("prepare", base64.b64encode(pickle.dumps(scorer)).decode())

    def score(
        self, fragment: Fragment, out: Path, tell: Callable[[int], object]
    ) -> tuple[int, int]:
        """Runs `score_fragment` there."""
        self.call(
            *("score", str(fragment.path), fragment.name, fragment.format),
            str(out),
        )
        while True:
            response = self.response()
            if "rows" in response:
                tell(response["rows"])
            elif "failed" in response:
                raise FragmentError(response["failed"])
            elif "fatal" in response:
                kind = ImportError if response["is_import"] else ExportError
                raise kind(response["fatal"])
            else:
                return response["good"], response["bad"]


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_LOCK = ".scoring.lock"
_WAIT = 1.0  # seconds for the workers of a killed run to end


@dataclasses.dataclass
class ScoringReport:
    """The result of a run, and what is in its folder.

    Attributes:
        out: The folder of outputs.
        good: How many rows have outputs there, from this or an earlier run.
        bad: How many rows have none.
        files: How many files were scored.
        skipped: How many had been scored before.
        failed: Why files were not scored, or have no good row, by their paths.
        rows: How many rows this run scored.
        seconds: How long it took.
    """

    out: Path
    good: int = 0
    bad: int = 0
    files: int = 0
    skipped: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every file is scored now, with at least one good row."""
        return not self.failed

    def __str__(self) -> str:
        """Returns one line, and one more for each file that failed."""
        done = f"{_files(self.files)} scored"
        done += f", {self.skipped:,} before" * bool(self.skipped)
        done += f", {len(self.failed):,} failed" * bool(self.failed)
        line = f"{self.out}: {done}; {self.good:,} rows good, {self.bad:,} bad"
        if self.rows >= 100 and self.seconds >= 1:  # else it says little
            line += f"; {self.rows / self.seconds:,.0f} rows/s"
        lines = [f"{path}: {why}" for path, why in sorted(self.failed.items())]
        # Names of files and columns may be invalid Unicode.
        return (
            "\n".join([line, *lines]).encode(errors="backslashreplace").decode()
        )


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def score_files(
    scorer: Scorer,
    inputs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    workers: int = 1,
    verbose: bool = True,
) -> ScoringReport:
    """Writes the outputs for files of rows: a Parquet file for each of them.

    >>> import keras_posenc as kp
    >>> scorer = kp.Scorer("model.tflite")  # doctest: +SKIP
    >>> report = kp.score_files(scorer, "in", out="out")  # doctest: +SKIP

    `<name>.parquet` has the kept columns and the outputs.
    `_bad/<name>.parquet` has the rows without outputs, if there are any;
    readers of the folder as one table do not see it. Both files appear
    complete or not at all. Files that are there are not scored again: the next
    run continues one that was interrupted. Outputs of another exported file,
    signature, option or input raise an error. Each worker is a process with
    one window of rows in memory at a time.

    Args:
        scorer: The `Scorer`.
        inputs: Files or folders: Parquet, CSV or JSON lines.
        out: The folder of outputs; created if missing.
        workers: How many processes score.
        verbose: Whether to show progress.

    Returns:
        A `ScoringReport`: print it, or check `passed`.

    Raises:
        ValueError: There is no such file; or the outputs are of another run,
            or another run writes to the folder.
        ExportError: The outputs cannot be written, or the exported file cannot
            be loaded.
    """
    check_positive_int("workers", workers)
    out = as_path("out", out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"`out` must be a folder. Received: out='{out}'")
    given = [inputs] if isinstance(inputs, str | Path) else inputs
    fragments = find_fragments(given, out)
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    with _held(out):
        return _score_all(scorer, fragments, out, workers, verbose)


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Locks a folder against other runs."""
    lock = FileLock(out / _LOCK, timeout=_WAIT)
    with writing_to(out):
        try:
            lock.acquire()
        except Timeout as error:
            raise ValueError(
                f"another run writes to '{out}': wait, or choose another folder"
            ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)
        lock.release()


def _changed(
    scorer: Scorer, fragment: Fragment, record: Mapping[str, Any], out: Path
) -> str | None:
    """Returns what is wrong with a file that was scored, or None."""
    path = out / fragment.good
    for name, value in run_of(scorer).items():
        if record.get(name) != value:
            was = "another one" if name == "model" else record.get(name)
            raise ValueError(
                f"'{path}' was scored by another run: its {name} is {was}"
                + f", not {value}" * (name != "model")
                + ". Give another folder, or move the earlier outputs away"
            )
    try:
        now = fragment.state()
    except OSError:
        return "it does not exist any more"
    before = record["input"]
    if before["path"] != now["path"]:
        raise ValueError(
            f"'{path}' has the outputs for '{before['path']}', not for "
            f"'{now['path']}'. Give another folder, or move it away"
        )
    if before == now:
        return None
    return (
        f"its size or time has changed since it was scored. Move "
        f"'{path}' away to score it again"
    )


def _score_all(
    scorer: Scorer,
    fragments: Sequence[Fragment],
    out: Path,
    workers: int,
    verbose: bool,
) -> ScoringReport:
    """Scores what has no outputs, in threads with a process each."""
    began, report = time.monotonic(), ScoringReport(out)

    def count(fragment: Fragment, good: int, bad: int) -> None:
        report.good += good
        report.bad += bad
        if bad and not good:
            report.failed[str(fragment.path)] = (
                f"none of its rows is good: see {out / fragment.bad}"
            )

    left = []
    for fragment in fragments:
        record = written(fragment, out)
        if record is None:
            left.append(fragment)
        elif reason := _changed(scorer, fragment, record, out):
            report.failed[str(fragment.path)] = reason
        else:
            report.skipped += 1
            count(fragment, record["good"], record["bad"])
    workers = max(1, min(workers, len(left)))
    idle: queue.SimpleQueue[ScoringWorker] = queue.SimpleQueue()
    processes: list[ScoringWorker] = []
    is_over, starting = threading.Event(), threading.Lock()
    done = dict.fromkeys(left, 0)  # rows so far
    finished: list[Fragment] = []

    def start() -> ScoringWorker:
        with starting:
            process = ScoringWorker(scorer, workers)
            processes.append(process)
            if is_over.is_set():
                process.kill()
            return process

    def score(fragment: Fragment) -> tuple[int, int] | str:
        try:
            process = idle.get_nowait()
        except queue.Empty:
            process = start()

        def tell(rows: int) -> None:
            done[fragment] = rows
            show(sum(done.values()), len(finished))

        found: tuple[int, int] | str
        try:
            found = process.score(fragment, out, tell)
        except FragmentError as error:
            found = str(error)
        except WorkerError as error:  # the next file has another one
            return f"the process that scored it {error}"
        finished.append(fragment)
        idle.put(process)
        return found

    try:
        with (
            counting(verbose, len(left)) as show,
            ThreadPoolExecutor(workers) as pool,
        ):
            try:
                results = pool.map(score, left)
                for fragment, found in zip(left, results, strict=True):
                    if isinstance(found, str):
                        report.failed[str(fragment.path)] = found
                    else:
                        report.files += 1
                        report.rows += sum(found)
                        count(fragment, *found)
            except BaseException:
                is_over.set()
                pool.shutdown(wait=False, cancel_futures=True)
                with starting:
                    pass
                for process in processes:
                    process.kill()
                raise
    finally:
        for process in processes:
            process.end()
        # Partial files of processes that were killed.
        with contextlib.suppress(ExportError), staging_in(out):
            pass
    report.seconds = time.monotonic() - began
    return report
