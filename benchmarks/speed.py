"""Times the layers beside their peers and their limits: `make bench`.

PyTorch, and who is asked for memory, run in processes of their own.
A whole run is kept in `RESULTS.md` and `results.json`; one that was interrupted
goes on with the work that it had begun.
"""

import contextlib
import tempfile
from pathlib import Path

from _command import Kept, machine, parse
from _contest import Peer
from _report import report
from _works import WORKS, first_calls


def main() -> None:
    works = {work.__name__: work for work in WORKS}
    options = parse(__doc__, [*works, "first_calls"], rounds=15)
    kept = Kept("speed", options)
    with contextlib.ExitStack() as stack:
        torch = None
        if options.torch:
            torch = stack.enter_context(Peer("PyTorch", options.torch))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(kept.progress)
        contests = kept.contests(works, torch, folder)
    if options.only in "first_calls":
        contests += kept.once("first_calls", first_calls)
    found = {"machine": machine(options), "contests": contests}
    report("speed", found, options.to)


if __name__ == "__main__":
    main()
