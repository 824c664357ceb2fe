"""Compares a LiteRT file with the one that its model becomes.

Self-contained, in a process of its own: the file may come from anywhere. It is
parsed here, and not run. Both files' operators are walked at once, from what a
signature answers to what it takes, and into every graph that they call: names
and the order of operators do not matter, and nothing that no answer needs.
"""

from typing import Any

from keras_posenc_worker.comparing.litert_graph import File, OtherGraph
from keras_posenc_worker.comparing.litert_walk import Walk
from keras_posenc_worker.formats import litert_schema

_SHOWN = 300  # characters

_PREFIX = "weights/"


def prepare() -> None:
    """Imports what knows the format ahead of time."""
    import numpy  # noqa: F401

    litert_schema()


def main(
    reference: str,
    artifact: str,
    names: list[str],
    weights: str | None,
    is_static: bool,
) -> dict[str, Any]:
    """Returns in what an artifact differs from a reference.

    That is `weights`, the names of those that are not in it as the
    reference has them; of `constants`, other numbers and settings that differ,
    in words; of `unsure`, those that may for a good reason, in words; and of
    `graph`, what is another operator, in words, or None. Of another graph
    nothing is compared but the weights; `folded` are the names of those that
    the reference does not have as they are, and that so nobody looked for.

    Args:
        reference: The path of the file that the model becomes here.
        artifact: The path of the file to judge.
        names: The names of the reference's signatures.
        weights: The path of an npz file of the model's weights, by their names
            behind "weights/", or None to learn only whether anything differs.
        is_static: Whether the ranges of what comes in were measured on inputs
            that are known to the artifact's maker alone.
    """
    import numpy as np

    one, other = File(reference), File(artifact)
    values = {}
    if weights:
        with np.load(weights, allow_pickle=False) as found:
            values = {
                name.removeprefix(_PREFIX): value
                for name, value in found.items()
            }
    walk = Walk(one, other, values, is_static)
    try:
        walk.run(names)
    except OtherGraph as difference:
        walk.graph = str(difference)[:_SHOWN]
        walk.constants.clear()
        walk.unsure.clear()
        walk.compare_weights(names)
    return {
        "weights": sorted(walk.weights),
        "constants": sorted(walk.constants),
        "unsure": sorted(walk.unsure),
        "folded": sorted(walk.folded),
        "graph": walk.graph,
    }
