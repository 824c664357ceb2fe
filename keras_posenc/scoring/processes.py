"""The processes that score files."""

import base64
import contextlib
import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from keras_posenc.export.errors import ExportError
from keras_posenc.export.processes import worker_path
from keras_posenc.scoring import worker
from keras_posenc.scoring.fragments import Fragment
from keras_posenc.scoring.scorer import Scorer
from keras_posenc.scoring.writing import FragmentError


class Died(Exception):
    """A process ended by itself; the message says how."""


class Worker:
    """A process that scores one file after the other.

    Args:
        scorer: What answers, in so many threads as there are processors for
            each of the workers, if it does not say how many.
        workers: How many there are.
        lock: The descriptor of a lock that is held as long as it lives, should
            who started it be killed.
    """

    def __init__(
        self, scorer: Scorer, workers: int, lock: int | None = None
    ) -> None:
        if scorer.threads is None:
            scorer = copy.copy(scorer)
            scorer.threads = max(1, _processors() // workers)
        threads = str(scorer.threads)
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            env={
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **os.environ,
                **worker_path(),
                "OMP_NUM_THREADS": threads,
            },
            pass_fds=[] if lock is None or os.name == "nt" else [lock],
            # A terminal's signals are for who started it, who ends it.
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._write(base64.b64encode(pickle.dumps(scorer)).decode())

    def score(
        self, fragment: Fragment, out: Path, tell: Callable[[int, int], object]
    ) -> tuple[int, int]:
        """`score_fragment`, there.

        Raises:
            Died: The process ended, whatever ended it.
        """
        self._write(
            json.dumps(
                [str(fragment.path), fragment.name, fragment.format, str(out)]
            )
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "done" in message:
                tell(message["rows"], message["done"])
            elif "failed" in message:
                raise FragmentError(message["failed"])
            elif "fatal" in message:
                kind = ImportError if message["is_import"] else ExportError
                raise kind(message["fatal"])
            else:
                return message["good"], message["bad"]
        status = self._process.wait()
        if status < 0:
            name = signal.Signals(-status).name
            raise Died(f"the process that scored it was ended by {name}")
        self._errors.seek(0)
        *_, last = [b"without a word", *self._errors.read().splitlines()]
        raise Died(
            "the process that scored it has failed: "
            + last.decode(errors="replace")
        )

    def kill(self) -> None:
        """Ends it, whatever it does; from any thread."""
        self._process.kill()

    def end(self) -> None:
        """The same, once nobody waits for it."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, as is seen then
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def _processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
