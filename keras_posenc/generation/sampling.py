"""Sampling one token from a restricted distribution."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.checks import check_positive_int, is_number
from keras_posenc.generation.generated import IMPOSSIBLE
from keras_posenc.ops.reductions import largest

# Logits that are divided by less exceed float32.
LEAST_TEMPERATURE = 1e-30


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Restricts a distribution, and samples a token from it with given noise.

    Restrictions are applied in this order, each to what is left: temperature,
    the `top_k` most likely tokens, the fewest of these with a probability of
    `top_p` together, and those at least `min_p` times as likely as the most
    likely one.

    The token is the one whose interval of the cumulative probabilities contains
    a number from [0, 1). That takes one number for a token, not one for each
    id, and the same number gives the same token on every backend.

    References:
        - Fan et al. 2018, [Hierarchical Neural Story Generation](
          https://arxiv.org/abs/1805.04833): top-k
        - Holtzman et al. 2020, [The Curious Case of Neural Text Degeneration](
          https://arxiv.org/abs/1904.09751): top-p
        - Nguyen et al. 2024, [Turning Up the Heat](
          https://arxiv.org/abs/2407.01082): min-p
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if self.top_k is not None:
            check_positive_int("top_k", self.top_k)
        _check_share("top_p", self.top_p, "(0, 1]", self.top_p != 0)
        _check_share("min_p", self.min_p, "[0, 1)", self.min_p != 1)

    @property
    def numbers(self) -> tuple[float, float, float]:
        """`temperature`, `top_p` and `min_p`."""
        return self.temperature, self.top_p, self.min_p

    def __call__(
        self, logits: Any, noise: Any, *, numbers: Sequence[Any] = ()
    ) -> Any:
        """Samples a token for each row, int32 `(batch,)`; 0 if none is left.

        `numbers` are tensors `(batch, 1)` in place of the own ones, for one
        graph of all values; graphs leave out a `top_p` of 1 and a `min_p` of 0.
        """
        heap, ids = self._heap(logits, numbers)
        total = largest(heap, axis=-1, keepdims=True)
        level = ops.expand_dims(ops.cast(noise, heap.dtype), 1) * total
        # Below the total, to which the product may round: no token is there.
        below = ops.logical_and(
            ops.less_equal(heap, level), ops.less(heap, total)
        )
        place = ops.sum(ops.cast(below, "int32"), axis=-1)  # (batch,)
        if ids is None:
            return place
        drawn = ops.take_along_axis(ids, ops.expand_dims(place, 1), axis=1)
        # Backends order equal candidates differently: 0 if none is possible.
        drawn = ops.where(total > 0, ops.cast(drawn, "int32"), 0)
        return ops.squeeze(drawn, 1)

    def _heap(
        self, logits: Any, numbers: Sequence[Any] = ()
    ) -> tuple[Any, Any]:
        """Returns cumulative probabilities, and their ids; None if in order."""
        temperature, top_p, min_p = numbers or self.numbers
        # Compared before the division, which would raise forbidden logits.
        lowest = ops.cast(IMPOSSIBLE, logits.dtype)
        scores, ids = (
            ops.where(logits > lowest, logits / temperature, lowest),
            None,
        )
        vocabulary = logits.shape[-1]
        if self.top_k is not None or self.top_p < 1:
            scores, ids = ops.top_k(
                scores, min(self.top_k or vocabulary, vocabulary)
            )
        probabilities = ops.softmax(scores, axis=-1)  # (batch, candidates)
        # Exactly 0 for forbidden ids, without a rounding error.
        kept = ops.greater(scores, IMPOSSIBLE)
        if self.top_p < 1:
            before = ops.cumsum(probabilities, axis=-1) - probabilities
            kept = ops.logical_and(kept, ops.less(before, top_p))
        if self.min_p > 0:
            most = largest(probabilities, axis=-1, keepdims=True)
            kept = ops.logical_and(
                kept, ops.greater_equal(probabilities, min_p * most)
            )
        kept = ops.where(kept, probabilities, ops.zeros_like(probabilities))
        return ops.cumsum(kept, axis=-1), ids


def made_noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns noise to test an export with, float32 in [0, 1).

    The first example has the least and the largest number, the second has only
    the least one, and the third only the largest.
    """
    largest_below_1 = np.float32(1 - 2.0**-24)
    noise = rng.random(shape, "float32")
    noise[..., 0], noise[..., -1] = 0, largest_below_1
    noise[1:2], noise[2:3] = 0, largest_below_1
    return noise


def check_temperature(value: Any, zero: str = "") -> None:
    """Raises `ValueError` for what logits cannot be divided by."""
    if not (is_number(value) and LEAST_TEMPERATURE <= value < math.inf):
        raise ValueError(
            f"`temperature` must be {zero}a finite number of at least "
            f"{LEAST_TEMPERATURE}. Received: temperature={value!r}"
        )


def _check_share(name: str, value: Any, wanted: str, fits: bool) -> None:
    if not (is_number(value) and 0 <= value <= 1 and fits):
        raise ValueError(
            f"`{name}` must be a number in {wanted}. Received: {name}={value!r}"
        )
