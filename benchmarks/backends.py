"""Times the encoder beside its backend's own: `make bench-backends`.

Forward passes and training steps on JAX beside flax.nnx, or on PyTorch beside
torch.nn, whichever `KERAS_BACKEND` names. All have the same weights to train,
no dropout, and the same optimizer. A whole run is kept in `RESULTS.md` and
`results.json`.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent))
from _command import facts, parse
from _contest import SEQ, US, Contest, Work, judge, take_turns
from _report import report

PACKAGES = {"jax": ("jax", "flax", "optax"), "torch": ("torch",)}
MOST = 1.05


def main() -> None:
    works: dict[str, Callable[[ModuleType, int], dict[str, Work]]] = {
        "forward": lambda backend, layers: backend.forward(layers),
        "a training step": lambda backend, layers: backend.training(layers),
    }
    options = parse(__doc__, works, rounds=15, peers=())
    name = os.environ.get("KERAS_BACKEND")
    if name == "jax":
        import _on_jax as backend
    elif name == "torch":
        import _on_torch as backend
    else:
        sys.exit(f"KERAS_BACKEND must be 'jax' or 'torch'. Received: {name}")
    from rich.progress import Progress

    contests = []
    with Progress() as progress:
        for layers, words in ((1, "one block"), (6, "six blocks")):
            for work, prepare in works.items():
                if options.only not in work:
                    continue
                contestants = prepare(backend, layers)
                contest = Contest(
                    f"{work}, {words}, 8 × {SEQ}",
                    contestants,
                    {(US, peer): MOST for peer in contestants if peer != US},
                )
                track = functools.partial(
                    progress.track, description=contest.work
                )
                times = take_turns(contestants, options.rounds, track=track)
                contests.append(judge(contest, times))
    machine = facts(options, ("keras", *PACKAGES[name]))
    found = {"machine": machine, "contests": contests}
    report(name, found, options.to)


if __name__ == "__main__":
    main()
