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

    A batch costs as much as its longest row, times its rows. A single row may
    cost more than the budget.

    Args:
        costs: The cost of each row.
        groups: Rows of one batch must have equal groups.
        budget: The most that a batch may cost.
        most: The most rows that it may have.

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
