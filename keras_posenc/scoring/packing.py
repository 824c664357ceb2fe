"""Batches of rows of similar length."""

from collections.abc import Iterator, Sequence


def pack(
    costs: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    *,
    budget: int,
    most: int,
) -> Iterator[list[int]]:
    """Yields the indices of each batch; in a group, the shortest rows first.

    A batch costs as much as its longest row, times its rows: at most `budget`,
    or it is a single row. It has at most `most` rows, of equal groups.

    Example:
    >>> [*pack([9, 2, 3, 2], [()] * 4, budget=9, most=8)]
    [[1, 3, 2], [0]]
    """
    batch: list[int] = []
    order = sorted(zip(groups, costs, range(len(costs)), strict=True))
    for group, cost, index in order:
        if batch and (
            max(cost, 1) * (len(batch) + 1) > budget
            or len(batch) == most
            or group != groups[batch[-1]]
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
