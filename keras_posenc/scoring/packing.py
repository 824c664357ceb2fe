"""Rows of a table as batches of about one length."""

from collections.abc import Iterator, Sequence


def pack(
    costs: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    *,
    budget: int,
    most: int,
) -> Iterator[list[int]]:
    """Yields the indices of each batch, of a group the shortest rows first.

    A batch costs what its longest row does, for each of its rows. One row
    alone may cost more than the budget.

    Args:
        costs: What each row costs.
        groups: Rows of one batch must be equal in this.
        budget: What a batch may cost.
        most: How many rows it may have.

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
