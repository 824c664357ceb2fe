"""Times the layers beside their peers and their limits: `make bench`.

PyTorch, and who is asked for memory, run in processes of their own.
A whole run is kept in `RESULTS.md` and `results.json`.
"""

import argparse
import contextlib
import functools
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from _command import machine, parse
from _contest import Peer, judge, take_turns
from _report import report
from _works import WORKS, first_calls


def main() -> None:
    works = {work.__name__: work for work in WORKS}
    options = parse(
        __doc__, [*works, "first_calls"], rounds=15, add_options=keep
    )
    from rich.progress import Progress

    contests = []
    with contextlib.ExitStack() as stack:
        torch = None
        if options.torch:
            torch = stack.enter_context(Peer("PyTorch", options.torch))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        progress = stack.enter_context(Progress())
        for name, work in works.items():
            if options.only in name:
                for contest in work(torch, folder):
                    track = functools.partial(
                        progress.track, description=contest.work
                    )
                    rounds = options.rounds
                    if contest.rounds:
                        rounds = min(rounds, contest.rounds)
                    times = take_turns(contest.contestants, rounds, track=track)
                    contests.append(judge(contest, times))
    if options.only in "first_calls":
        contests += first_calls()
    found = {"machine": machine(options), "contests": contests}
    report("speed", found, options.to, is_whole=not options.only)


def keep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep what --only ran, beside what is kept of the rest",
    )


if __name__ == "__main__":
    main()
