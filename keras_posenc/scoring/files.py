"""An exported file over files of any size."""

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from keras_posenc.artifacts.ground.errors import ExportError
from keras_posenc.artifacts.ground.staging import (
    as_path,
    staging_beside,
    writing_to,
)
from keras_posenc.progress import counting
from keras_posenc.scoring.fragments import Fragment, find_fragments
from keras_posenc.scoring.processes import Died, Worker
from keras_posenc.scoring.scorer import Scorer, check_count
from keras_posenc.scoring.writing import FragmentError, run_of, written

_ATTEMPTS = 2  # at a file whose process is ended by others
_LOCK = ".scoring.lock"


@dataclasses.dataclass(frozen=True)
class ScoringReport:
    """What a run did.

    Attributes:
        out: The folder of outputs.
        good: How many rows were answered.
        bad: How many were not.
        files: How many files were scored.
        skipped: How many had been scored before.
        failed: Why files were not scored, by their paths.
        seconds: How long it took.
    """

    out: Path
    good: int
    bad: int
    files: int
    skipped: int
    failed: Mapping[str, str]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every file is scored now."""
        return not self.failed

    def __str__(self) -> str:
        """One line, and one more for each file that was not scored."""
        rows = self.good + self.bad
        skipped = f", {self.skipped} there before" * bool(self.skipped)
        line = (
            f"{self.out}: {self.good} rows good, {self.bad} bad, of "
            f"{self.files} files{skipped}; {len(self.failed)} files failed; "
            f"{rows / max(self.seconds, 1e-9):.0f} rows/s"
        )
        told = [f"{path}: {reason}" for path, reason in self.failed.items()]
        return "\n".join([line, *told])


def score_files(
    scorer: Scorer,
    inputs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    workers: int = 1,
    verbose: bool = True,
) -> ScoringReport:
    """Writes the answers to files of rows: a Parquet file for each of them.

    `<name>.parquet` has the kept columns and the outputs, and
    `<name>.bad.parquet` the rows that have no answer, if there are any. Both
    appear whole or not at all, and a file that is there is not scored again:
    a run that was ended, however, is taken up by the next one. One that is by
    another artifact, signature or option is refused. Each worker is a process,
    which has one window of rows in memory at a time.

    Args:
        scorer: What answers.
        inputs: Files, folders or patterns: Parquet, CSV, JSON lines, or
            TFRecord files of `tf.train.Example`.
        out: The folder of outputs; made if need be.
        workers: How many processes score.
        verbose: Whether to show progress.

    Returns:
        A `ScoringReport`; print it, or ask `passed`.

    Raises:
        ValueError: There is no such file, or the outputs are of another run.
        ExportError: The outputs cannot be written, or the artifact cannot be
            loaded, or another run writes to the folder.
    """
    check_count("workers", workers)
    out = as_path("out", out)
    given = [inputs] if isinstance(inputs, str | Path) else inputs
    fragments = find_fragments(given, out)
    with writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / _LOCK).touch()  # which fails where filelock waits
    lock = FileLock(out / _LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise ValueError(f"another run writes to '{out}'") from error
    try:
        return _run(scorer, fragments, out, workers, verbose)
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def _run(
    scorer: Scorer,
    fragments: Sequence[Fragment],
    out: Path,
    workers: int,
    verbose: bool,
) -> ScoringReport:
    began = time.monotonic()
    failed: dict[str, str] = {}
    waiting, skipped = [], 0
    for fragment in fragments:
        state = _state(scorer, fragment, out)
        if state is None:
            waiting.append(fragment)
        elif state:
            failed[str(fragment.path)] = state
        else:
            skipped += 1
    run = _Run(scorer, waiting, out, min(workers, len(waiting)), verbose)
    run.work()
    return ScoringReport(
        out=out,
        good=run.good,
        bad=run.bad,
        files=run.files,
        skipped=skipped,
        failed=dict(sorted({**failed, **run.failed}.items())),
        seconds=time.monotonic() - began,
    )


def _state(scorer: Scorer, fragment: Fragment, out: Path) -> str | None:
    """None for a file to score, `""` for one that is; else what is wrong.

    Raises:
        ValueError: It was scored by another run.
    """
    record = written(fragment, out)
    if record is None:
        return None
    for name, value in run_of(scorer).items():
        if record.get(name) != value:
            was = "another one" if name == "artifact" else record.get(name)
            raise ValueError(
                f"'{out / fragment.good}' was scored by another run: its "
                f"{name} is {was}"
                + f", and not {value}" * (name != "artifact")
                + ". Give another folder, or take the earlier outputs away"
            )
    try:
        now = fragment.state()
    except OSError:
        return "it does not exist any more"
    if record.get("input") == now:
        return ""
    return (
        f"it was changed since it was scored. Take '{out / fragment.good}' "
        "away to score it again"
    )


class _Run:
    """Threads that have a process each, and take one file after the other."""

    def __init__(
        self,
        scorer: Scorer,
        fragments: Sequence[Fragment],
        out: Path,
        workers: int,
        verbose: bool,
    ) -> None:
        self.good = self.bad = self.files = 0
        self.failed: dict[str, str] = {}
        self._scorer, self._out, self._workers = scorer, out, workers
        self._verbose = verbose
        self._fragments = fragments
        self._waiting: queue.SimpleQueue[Fragment] = queue.SimpleQueue()
        for fragment in fragments:
            self._waiting.put(fragment)
        self._processes: list[Worker] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._fatal: BaseException | None = None
        # Rows and bytes of each file so far.
        self._done: dict[str, tuple[int, int]] = {}

    def work(self) -> None:
        """Scores all files that can be scored."""
        threads = [
            threading.Thread(target=self._serve, daemon=True)
            for _ in range(self._workers)
        ]
        total = sum(map(_size, self._fragments))
        try:
            with counting(self._verbose, total) as show:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    while thread.is_alive():
                        thread.join(0.2)
                        show(*self._so_far())
        finally:
            self._end()
            for thread in threads:
                thread.join()
            # What was begun when a process was ended.
            for folder in {
                (self._out / each.good).parent for each in self._fragments
            }:
                with contextlib.suppress(ExportError), staging_beside(folder):
                    pass
        if self._fatal is not None:
            raise self._fatal

    def _serve(self) -> None:
        """What a thread does."""
        process: Worker | None = None
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
                    except Died as error:
                        process.end()
                        process = None
                        if attempt + 1 == _ATTEMPTS and not self._is_over:
                            self.failed[str(fragment.path)] = str(error)
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

    def _score(self, process: Worker, fragment: Fragment) -> None:
        def tell(rows: int, done: int) -> None:
            self._done[fragment.name] = rows, done

        try:
            good, bad = process.score(fragment, self._out, tell)
        except FragmentError as error:
            self.failed[str(fragment.path)] = str(error)
            return
        with self._lock:
            self.good += good
            self.bad += bad
            self.files += 1

    def _start(self) -> Worker | None:
        with self._lock:
            if self._is_over:
                return None
            process = Worker(self._scorer, self._workers)
            self._processes.append(process)
            return process

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.kill()

    def _so_far(self) -> tuple[int, int]:
        found = [*self._done.values()]
        return sum(r for r, _ in found), sum(d for _, d in found)


def _size(fragment: Fragment) -> int:
    try:
        return fragment.path.stat().st_size
    except OSError:  # which is told when its turn comes
        return 0
