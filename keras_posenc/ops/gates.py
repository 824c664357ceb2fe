"""Logarithms of gates."""

from typing import Any

from keras import ops

# 2 / (2 n + 1) of the series of log1p(e) in e / (2 + e), which is at most 1/3:
# what follows is below 2**-26 of the sum.
_TERMS = (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3, 2.0)


def log_gates(x: Any) -> Any:
    """Returns log(sigmoid(x)), to float32 accuracy also where it is near 0.

    `log(1 + e)` would round what a gate near 1 forgets, and sums of many such
    gates would be wrong; mobile runtimes have no `log1p`.
    """
    positive = x > 0
    below = ops.where(positive, ops.zeros_like(x), x)
    share = ops.exp(ops.where(positive, -x, x))
    y = share / (2 + share)
    square = y * y
    series = _TERMS[0] * square + _TERMS[1]
    for term in _TERMS[2:]:
        series = series * square + term
    return below - y * series
