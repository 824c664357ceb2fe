"""Contestants that take turns, so that a noisy minute is noisy for all."""

import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

US = "keras_posenc"

DIM, HEADS, FEED_FORWARD, SEQ = 512, 8, 2048, 128
VOCABULARY = 8000
START, END = 2, 3  # ids before and behind sentences
THREADS = os.cpu_count() or 1

# Threads of PyTorch and ONNX Runtime spin for a while after their work, and
# would take a core from whoever comes next.
PAUSE = 0.03
# Short work is repeated: the first calls wake the contestant's own threads.
LONG, CALLS = 0.1, 3

Work = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Size:
    """Blocks and the batch they are given, in words of any peer.

    Attributes:
        layers: How many encoder blocks, `DIM` wide.
        batch: How many texts.
        seq: How long they are.
        lengths: How much of each is no padding; None for all, without a mask.
        dtype: Of weights and inputs; only PyTorch is asked for another.
        steps: How many tokens as many decoder blocks write, greedily, of a
            source of `seq` ids; 0 for an encoder alone.
    """

    layers: int = 1
    batch: int = 8
    seq: int = SEQ
    lengths: tuple[int, ...] | None = None
    dtype: str = "float32"
    steps: int = 0


class Peer:
    """A contestant in a fresh process, maybe of another environment.

    Args:
        name: Which one; see `_peer.py`.
        python: The interpreter that runs it.

    Attributes:
        peak: Gigabytes that it took at most for the last size.
        rest: Those it held before the first, for its libraries.
    """

    def __init__(self, name: str, python: str = sys.executable) -> None:
        self.peak = self.rest = 0.0
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("_peer.py")), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # closes its input, at which it ends
        self._said.close()

    def run(self, size: Size) -> float:
        """Runs it once; returns its own milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps(dataclasses.asdict(size))
        print(line, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._said.seek(0)
            raise RuntimeError(f"{line} ended with:\n{self._said.read()}")
        took, self.peak, self.rest = json.loads(answer)
        return took


@dataclasses.dataclass
class Contest:
    """Some work, and who does it; the first of them is ours.

    Attributes:
        work: What is done.
        contestants: Functions by name.
        goals: The most that a ratio of two of them may be.
        peers: Those of the contestants whose memory is of interest.
        most_gb: The most gigabytes that ours may take.
        parts: Of how many equal parts the work is, one of which is told of.
        rounds: The most rounds that the work is worth; None for all.
        clock: What times them, in seconds.
    """

    work: str
    contestants: dict[str, Work]
    goals: dict[tuple[str, str], float]
    peers: dict[str, Peer] = dataclasses.field(default_factory=dict)
    most_gb: float | None = None
    parts: int = 1
    rounds: int | None = None
    clock: Callable[[], float] = time.perf_counter


def take_turns(
    contestants: dict[str, Work],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    track: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> dict[str, float]:
    """Median milliseconds of each; every round gives each of them a turn.

    Args:
        contestants: What to time, by name. One that returns a float says
            itself how many milliseconds it took, as a `Peer` does.
        rounds: How many count, after one that does not.
        clock: What to read, in seconds.
        track: Shows the progress of what it passes on.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for round_ in track(range(rounds + 1)):
        for name, run in contestants.items():
            time.sleep(PAUSE)
            taken = _turn(run, clock)
            if round_:
                times[name] += taken
    return {name: statistics.median(taken) for name, taken in times.items()}


def _turn(run: Work, clock: Callable[[], float]) -> list[float]:
    first = milliseconds(run, clock)
    if first > LONG * 1e3:
        return [first]
    for _ in range(CALLS - 1):
        run()
    return [milliseconds(run, clock) for _ in range(CALLS)]


def milliseconds(
    run: Work, clock: Callable[[], float] = time.perf_counter
) -> float:
    """What one call takes, by the clock or in its own words."""
    began = clock()
    said = run()
    return said if isinstance(said, float) else (clock() - began) * 1e3


def hold(contest: Contest, rounds: int, progress: Any) -> dict[str, Any]:
    """Has all of a contest take turns; returns what is kept of it."""
    times = take_turns(
        contest.contestants,
        min(rounds, contest.rounds or rounds),
        clock=contest.clock,
        track=functools.partial(progress.track, description=contest.work),
    )
    goals = [
        {
            "of": f"{name} / {other}",
            "found": times[name] / times[other],
            "at most": most,
        }
        for (name, other), most in contest.goals.items()
    ]
    peaks = {name: peer.peak for name, peer in contest.peers.items()}
    if contest.most_gb:
        goals.append(
            {
                "of": f"{US}, peak GB",
                "found": peaks[US],
                "at most": contest.most_gb,
            }
        )
    return {
        "work": contest.work,
        "milliseconds": {
            name: took / contest.parts for name, took in times.items()
        },
        "peaks": peaks,
        "goals": goals,
    }
