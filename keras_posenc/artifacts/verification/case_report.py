"""What came of one batch, and of all of a quantized file."""

import dataclasses
import math
from typing import Any

from keras_posenc.artifacts.expectations.differences import Loss
from keras_posenc.artifacts.ground import units


@dataclasses.dataclass(frozen=True)
class CaseReport:
    """How one batch of inputs went.

    Attributes:
        signature: Name of the signature.
        inputs: What the batch was, in words.
        worst_difference: Largest difference from the model, relative as for
            `verify`; infinite on an error.
        worst_output: Where it is: the output's name and index.
        milliseconds: Median time of a call in the runtime.
        error: What the runtime raised, or None.
        is_nan: Whether the model's answer has no finite number.
        is_sample: Whether the batch was given, and not invented.
        mean_difference: The mean of all differences.
        agreeing: In how many rows of scores the largest is the model's,
        rows: of how many.
        kept: The same of the decided rows alone, in which the largest score
        decided: leads by more than the report's `lead`.
        near_ties: In how many rows something else was chosen, such as a token,
            that the model holds for all but as good. What was chosen is
            compared with what the model says of it.
        is_extreme: Whether the inputs were zeros, large, tiny and the like.
        examples: How many examples the batch has.
        lost: Of a quantized file, what its logits and vectors have lost.
    """

    signature: str
    inputs: str
    worst_difference: float
    worst_output: str
    milliseconds: float
    error: str | None = None
    is_nan: bool = False
    is_sample: bool = False
    mean_difference: float = 0.0
    agreeing: int = 0
    rows: int = 0
    kept: int = 0
    decided: int = 0
    near_ties: int = 0
    is_extreme: bool = False
    examples: int = 1
    lost: dict[str, Loss] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.signature}, {self.inputs}: " + (
            self.error
            or f"{self.worst_difference:.2g}, "
            f"{units.time(self.milliseconds / 1e3)}"
        )
        if self.near_ties:
            text += f", near-ties in {units.count(self.near_ties, 'example')}"
        return text


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """What a quantized file loses, on the samples that were given if any.

    Attributes:
        worst_difference: The largest difference from the model itself.
        mean_difference: The mean of all differences.
        agreement: The share of rows of scores or logits whose largest is the
            model's, or None without such.
        rows: How many of these rows there were.
        on_samples: Whether samples were given.
    """

    worst_difference: float
    mean_difference: float
    agreement: float | None
    rows: int
    on_samples: bool


def as_jsonable(record: Any) -> dict[str, Any]:
    """A record as what JSON can hold."""
    return {
        key: jsonable(value) if isinstance(value, float) else value
        for key, value in dataclasses.asdict(record).items()
    }


def jsonable(number: float) -> float | None:
    """A number, or None for one that JSON has not."""
    return number if math.isfinite(number) else None
