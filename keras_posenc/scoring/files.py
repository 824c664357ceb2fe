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
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from keras_posenc.checks import check_positive_int
from keras_posenc.export.errors import ExportError
from keras_posenc.export.worker_client import (
    Worker,
    WorkerError,
    threads_environment,
)
from keras_posenc.progress import counting, printable
from keras_posenc.publish import as_path, staging_in, writing_to
from keras_posenc.scoring import worker
from keras_posenc.scoring.reading import ColumnError
from keras_posenc.scoring.scorer import Scorer
from keras_posenc.scoring.writing import (
    Fragment,
    FragmentError,
    find_fragments,
    first_reason,
    rows_of,
    run_of,
    written,
)


class ScoringWorker(Worker):
    """A worker that scores one file after the other, without limits.

    By the scorer's threads, or its share of the processors. It holds the lock
    as long as it lives, should its caller be killed.
    """

    def __init__(
        self, scorer: Scorer, workers: int, lock: int | None = None
    ) -> None:
        if scorer.threads is None:
            scorer = copy.copy(scorer)
            scorer.threads = max(1, _processors() // workers)
        super().__init__(
            worker.__name__,
            passed=[] if lock is None or os.name == "nt" else [lock],
            environment={
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **threads_environment(scorer.threads),
            },
        )
        self.call("prepare", base64.b64encode(pickle.dumps(scorer)).decode())

    def score(
        self, fragment: Fragment, out: Path, tell: Callable[[int, int], object]
    ) -> tuple[int, int]:
        """Runs `score_fragment` there."""
        self.call(
            *("score", str(fragment.path), fragment.name, fragment.format),
            str(out),
        )
        while True:
            response = self.response()
            if "done" in response:
                tell(response["rows"], response["done"])
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


_ATTEMPTS = 2  # for a file whose process is killed from outside
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
        failed: Why files were not scored, by their paths.
        unanswered: Why files that are scored have no good row, by their paths:
            the reason of the first row, and the file of the others.
        left_out: How many files of the folders have no known format.
        rows: How many rows this run scored.
        seconds: How long it took.
    """

    out: Path
    good: int = 0
    bad: int = 0
    files: int = 0
    skipped: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    unanswered: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out: int = 0
    rows: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every file is scored now, with at least one good row."""
        return not self.failed and not self.unanswered

    def __str__(self) -> str:
        """Returns one line, and one more for each file without outputs."""
        if self.skipped and not self.files and not self.failed:
            were = "was" if self.skipped == 1 else "were"
            done = f"{_files(self.skipped)} {were} scored before: nothing to do"
        else:
            done = f"{_files(self.files)} scored"
            done += f", {self.skipped:,} before" * bool(self.skipped)
            done += f", {len(self.failed):,} failed" * bool(self.failed)
        done += f", {_files(self.left_out)} of other formats left out" * bool(
            self.left_out
        )
        line = f"{self.out}: {done}; {self.good:,} rows good, {self.bad:,} bad"
        if self.rows >= 100 and self.seconds >= 1:  # else it says little
            line += f"; {self.rows / self.seconds:,.0f} rows/s"
        lines = [f"{path}: {why}" for path, why in sorted(self.failed.items())]
        lines += [
            f"{path}: none of its rows is good: {why}"
            for path, why in sorted(self.unanswered.items())
        ]
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

    `<name>.parquet` has the kept columns and the outputs.
    `_bad/<name>.parquet` has the rows without outputs, if there are any;
    readers of the folder as one table do not see it. Both files appear
    complete or not at all. Files that are there are not scored again: the next
    run continues one that was interrupted. Outputs of another exported file,
    signature, option or input raise an error. Each worker is a process with
    one window of rows in memory at a time.

    Args:
        scorer: The `Scorer`.
        inputs: Files, folders or patterns: Parquet, CSV or JSON lines.
        out: The folder of outputs; created if missing.
        workers: How many processes score.
        verbose: Whether to show progress.

    Returns:
        A `ScoringReport`: print it, or check `passed`.

    Raises:
        ValueError: There is no such file, or none has the columns; or the
            outputs are of another run, or another run writes to the folder.
        ExportError: The outputs cannot be written, or the exported file cannot
            be loaded.
    """
    check_positive_int("workers", workers)
    out = as_path("out", out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"`out` must be a folder. Received: out='{out}'")
    given = [inputs] if isinstance(inputs, str | Path) else inputs
    fragments, left_out = find_fragments(given, out)
    _check_columns(scorer, fragments)
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
    report = ScoringReport(out, left_out=left_out)
    with _held(out) as lock:
        _Run(scorer, fragments, report, workers, lock).work(verbose)
    return report


def _check_columns(scorer: Scorer, fragments: Sequence[Fragment]) -> None:
    """Raises `ValueError`, before work begins, if columns are missing."""
    first = None
    for fragment in fragments:
        try:
            next(rows_of(fragment, scorer))
        except ColumnError as error:
            first = first or f"'{fragment.path}': {error}"
            continue
        except Exception:  # any error of a reader
            pass
        return
    raise ValueError(first)


@contextlib.contextmanager
def _held(out: Path) -> Iterator[int]:
    """Locks a folder against other runs; yields the lock for the workers.

    They inherit it: if this process is killed, the folder is free when the
    last of them has ended.
    """
    path, began = out / _LOCK, time.monotonic()
    while True:
        with writing_to(out):
            lock = os.open(path, os.O_RDWR | os.O_CREAT)
        # The run that held it may have removed the file meanwhile.
        if lock_descriptor(lock, blocking=False) and os.fstat(lock).st_nlink:
            break
        os.close(lock)
        if time.monotonic() - began > _WAIT:
            raise ValueError(
                f"another run writes to '{out}': wait, or choose another folder"
            )
        time.sleep(0.05)
    try:
        yield lock
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(lock)


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


class _Run:
    """Threads with a process each, which score one file after another."""

    def __init__(
        self,
        scorer: Scorer,
        fragments: Sequence[Fragment],
        report: ScoringReport,
        workers: int,
        lock: int,
    ) -> None:
        self._began = time.monotonic()
        self._report, self._out = report, report.out
        self._scorer, self._held = scorer, lock
        self._fragments: list[Fragment] = []
        self._waiting: queue.SimpleQueue[Fragment] = queue.SimpleQueue()
        for fragment in fragments:
            record = written(fragment, self._out)
            if record is None:
                self._fragments.append(fragment)
                self._waiting.put(fragment)
            elif reason := _changed(scorer, fragment, record, self._out):
                report.failed[str(fragment.path)] = reason
            else:
                report.skipped += 1
                self._count(fragment, record["good"], record["bad"])
        self._workers = min(workers, len(self._fragments))
        self._processes: list[ScoringWorker] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._fatal: BaseException | None = None
        # Rows and bytes of each file so far.
        self._done: dict[str, tuple[int, int]] = {}

    def work(self, verbose: bool) -> None:
        """Scores all files that can be scored."""
        threads = [
            threading.Thread(target=self._serve, daemon=True)
            for _ in range(self._workers)
        ]
        if not threads:
            return
        total = 0
        for fragment in self._fragments:
            with contextlib.suppress(OSError):  # reported when it is scored
                total += fragment.path.stat().st_size
        try:
            with counting(verbose, total) as show:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    while thread.is_alive():
                        thread.join(0.2)
                        rows, done = zip(
                            (0, 0), *self._done.copy().values(), strict=True
                        )
                        show(sum(rows), sum(done))
        finally:
            # In a thread: a second Ctrl-C does not interrupt it.
            cleaning = threading.Thread(target=self._clean, args=(threads,))
            cleaning.start()
            cleaning.join()
            self._report.seconds = time.monotonic() - self._began
        if self._fatal is not None:
            raise self._fatal

    def _clean(self, threads: Sequence[threading.Thread]) -> None:
        self._end()
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        # Partial files of processes that were killed, whose locks may outlive
        # them by a moment.
        for _ in range(20):
            with contextlib.suppress(ExportError), staging_in(self._out):
                pass
            if not any(self._out.glob(".*.partial")):
                break
            time.sleep(0.05)

    def _serve(self) -> None:
        """What a thread does."""
        process: ScoringWorker | None = None
        try:
            while not self._is_over:
                fragment = self._waiting.get_nowait()
                for attempt in range(_ATTEMPTS):
                    process = process or self._start()
                    if process is None:
                        return
                    try:
                        self._score(process, fragment)
                        break
                    except WorkerError as error:
                        process.end()
                        process = None
                        if attempt + 1 == _ATTEMPTS and not self._is_over:
                            self._report.failed[str(fragment.path)] = (
                                f"the process that scored it {error}"
                            )
        except queue.Empty:
            pass
        except BaseException as error:
            if not self._is_over:
                self._fatal = error
            self._is_over = True
            self._end()
        finally:
            if process is not None:
                process.end()

    def _score(self, process: ScoringWorker, fragment: Fragment) -> None:
        def tell(rows: int, done: int) -> None:
            self._done[fragment.name] = rows, done

        try:
            good, bad = process.score(fragment, self._out, tell)
        except FragmentError as error:
            self._report.failed[str(fragment.path)] = str(error)
            return
        with self._lock:
            self._report.files += 1
            self._report.rows += good + bad
            self._count(fragment, good, bad)

    def _count(self, fragment: Fragment, good: int, bad: int) -> None:
        self._report.good += good
        self._report.bad += bad
        if bad and not good:
            path = self._out / fragment.bad
            self._report.unanswered[str(fragment.path)] = (
                f"{printable(first_reason(path))} (the first; all: {path})"
            )

    def _start(self) -> ScoringWorker | None:
        with self._lock:
            if self._is_over:
                return None
            process = ScoringWorker(self._scorer, self._workers, self._held)
            self._processes.append(process)
            return process

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.kill()
