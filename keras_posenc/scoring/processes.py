"""The processes that score files."""

import base64
import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path

from keras_posenc.export.errors import ExportError
from keras_posenc.export.worker_client import (
    Worker,
    threads_environment,
)
from keras_posenc.scoring import worker
from keras_posenc.scoring.fragments import Fragment
from keras_posenc.scoring.scorer import Scorer
from keras_posenc.scoring.writing import FragmentError


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
        """Runs `score_fragment` there.

        Raises:
            WorkerError: The process ended, whatever ended it.
        """
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
