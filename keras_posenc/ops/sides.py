"""One side of attention: its queries, or its keys."""

import dataclasses
from typing import Any

from keras import ops


@dataclasses.dataclass(frozen=True)
class Side:
    """What attention knows of the tokens on one of its two sides.

    Self-attention has the same side twice. Two sides differ where one sequence
    attends to another, or a few tokens to those kept from before.

    Attributes:
        length: How many tokens, an integer or a scalar tensor.
        tokens: Bool `(batch, length)`: which are no padding; None for all.
        positions: Where they stand, `(1, length)` or `(batch, length)`, or
            None where nothing asks for positions.
        segment_ids: Integers `(batch, length)`, or None.
        index: Integers `(length,)`: when they come, in the order that both
            sides share; by default 0, 1, 2 ... Causality goes by it, and not
            by positions, which may begin anew in each row.
    """

    length: Any
    tokens: Any = None
    positions: Any = None
    segment_ids: Any = None
    index: Any = None

    def some(self, rows: Any) -> "Side":
        """Some of the tokens: integers `(rows,)`."""

        def some(x: Any) -> Any:
            return None if x is None else ops.take(x, rows, axis=1)

        return Side(
            length=ops.shape(rows)[0],
            tokens=some(self.tokens),
            positions=some(self.positions),
            segment_ids=some(self.segment_ids),
            index=rows if self.index is None else ops.take(self.index, rows),
        )
