"""Rows of a table as batches of about one length."""

from collections.abc import Iterator, Sequence


def pack(
    lengths: Sequence[int], *, budget: int, most: int, alike: bool = False
) -> Iterator[list[int]]:
    """Yields the indices of each batch, the shortest rows first.

    A batch costs what its longest row does, for each of its rows. One row
    alone may cost more than the budget.

    Args:
        lengths: What each row costs.
        budget: What a batch may cost.
        most: How many rows it may have.
        alike: Whether its rows must be of the same length.

    Example:
    >>> [*pack([9, 2, 3, 2], budget=9, most=8)]
    [[1, 3, 2], [0]]
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        cost = max(lengths[index], 1) * (len(batch) + 1)
        if batch and (
            cost > budget
            or len(batch) == most
            or (alike and lengths[index] != lengths[batch[-1]])
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
