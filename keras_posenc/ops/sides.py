"""One side of attention: its queries, or its keys."""

import dataclasses
from typing import Any

from keras import ops


@dataclasses.dataclass(frozen=True)
class Side:
    """What attention knows about the tokens on one of its two sides.

    In self-attention both sides are the same. They differ where one sequence
    attends to another, or new tokens to cached ones.

    Attributes:
        length: How many tokens, an integer or a scalar tensor.
        tokens: Bool `(batch, length)`: which are not padding; None for all.
        positions: Their positions, `(1, length)` or `(batch, length)`, with a
            third axis where they are vectors; None where nothing uses them.
        segment_ids: Integers `(batch, length)`, or None.
        index: Integers `(length,)`: the order of the tokens, common to both
            sides; by default 0, 1, 2 ... Causality depends on it, not on
            positions, which may start again in each row.
        places: Integers `(batch, length)`: the place of each token among those
            of its row, which windows count in; by default the `index`.
        known: What attention positions keep for the blocks that follow: see
            `AttentionPosition.turned`.
    """

    length: Any
    tokens: Any = None
    positions: Any = None
    segment_ids: Any = None
    index: Any = None
    places: Any = None
    # Not copied: tensors of a function that is traced must stay within it.
    known: dict[Any, Any] = dataclasses.field(
        default_factory=dict, init=False, compare=False
    )

    def some(self, rows: Any) -> "Side":
        """Returns the side of some of the tokens: integers `(rows,)`."""

        def some(x: Any) -> Any:
            return None if x is None else ops.take(x, rows, axis=1)

        return Side(
            length=ops.shape(rows)[0],
            tokens=some(self.tokens),
            positions=some(self.positions),
            segment_ids=some(self.segment_ids),
            places=some(self.places),
            index=rows if self.index is None else ops.take(self.index, rows),
        )
