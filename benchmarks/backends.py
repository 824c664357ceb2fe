"""Times the encoder beside its backend's own: `make bench-backends`.

Forward passes and training steps on JAX beside flax.nnx, or on PyTorch beside
torch.nn, whichever `KERAS_BACKEND` names. All have the same weights to train,
no dropout, and the same optimizer. A whole run is kept in `RESULTS.md` and
`results.json`.
"""

import functools
import os
import sys
from collections.abc import Iterator

from _command import Kept, facts, parse
from _contest import SEQ, US, Contest
from _report import report

PACKAGES = {"jax": ("jax", "flax", "optax"), "torch": ("torch",)}
MOST = 1.05


def main() -> None:
    options = parse(__doc__, ["forward", "training"], rounds=15, peers=())
    name = os.environ.get("KERAS_BACKEND")
    if name == "jax":
        import _on_jax as backend
    elif name == "torch":
        import _on_torch as backend
    else:
        sys.exit(f"KERAS_BACKEND must be 'jax' or 'torch'. Received: {name}")

    def contests(work: str, prepare: str) -> Iterator[Contest]:
        for layers, words in ((1, "one block"), (6, "six blocks")):
            contestants = getattr(backend, prepare)(layers)
            yield Contest(
                f"{work}, {words}, 8 × {SEQ}",
                contestants,
                {(US, peer): MOST for peer in contestants if peer != US},
            )

    works = {
        "forward": functools.partial(contests, "forward", "forward"),
        "training": functools.partial(contests, "a training step", "training"),
    }
    packages = "keras", *PACKAGES[name]
    kept = Kept(name, options)
    with kept.progress:
        found = kept.contests(works)
    report(
        name,
        {"machine": facts(options, packages), "contests": found},
        options.to,
    )


if __name__ == "__main__":
    main()
