"""What a model is asked, and then its artifact."""

import dataclasses
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from keras_posenc.artifacts.expectations.expectations import Case
from keras_posenc.artifacts.expectations.id_ranges import can_be_asked
from keras_posenc.artifacts.expectations.samples import Inputs, fit_samples
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.artifacts.signatures.strings import longest_text

# Of a sequence, where nothing says what the model takes.
LONGEST = 512


@dataclasses.dataclass(frozen=True)
class Question:
    """One batch of inputs for a signature.

    Attributes:
        inputs: Arrays by the names of its inputs.
        is_required: Whether the model must take them.
        is_sample: Whether they were given, and not invented.
        extremes: What numbers each example has, where they are extreme ones.
    """

    inputs: Inputs
    is_required: bool = True
    is_sample: bool = True
    extremes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Questions:
    """What is asked, with the samples fitted to each signature.

    Attributes:
        signatures: Those that are asked.
        given: The samples that are inputs of each, by its name.
        max_length: The longest sequence.
        tolerance: The largest difference that passes, or None.
        agreement: In what share of decided rows a quantized file must have the
            model's largest score, or None.
        extra: Batches whose answers are known otherwise; they are gone through
            once, when the model is asked.
    """

    signatures: list[Signature]
    given: Mapping[str, Sequence[Inputs]]
    max_length: int = LONGEST
    tolerance: float | None = None
    agreement: float | None = None
    extra: Iterable[Case] = ()

    @classmethod
    def fit(
        cls,
        signatures: Sequence[Signature],
        samples: Any = None,
        max_length: int | None = None,
        tolerance: float | None = None,
        agreement: float | None = None,
        *,
        fitted: Mapping[str, Sequence[Inputs]] | None = None,
        are_default: bool = False,
        extra: Iterable[Case] = (),
    ) -> Self:
        """Checks what `verify` and the exports are given, and fits samples.

        Args:
            signatures: Those to ask.
            samples: See `verify`.
            max_length: See `verify`.
            tolerance: See `verify`.
            agreement: See `verify`.
            fitted: Further samples, by the signature that they were fitted to.
            are_default: Whether nobody chose the signatures. Those behind the
                first are left out then where nothing says which ids they take.
            extra: See above.

        Raises:
            ValueError: Arguments that nobody can be asked with.
        """
        if max_length is None:
            limits = map(longest_text, signatures)
            known = [limit for limit in limits if limit is not None]
            max_length = min([*known, LONGEST])
        if (
            isinstance(max_length, bool)
            or not isinstance(max_length, numbers.Integral)
            or max_length < 1
        ):
            raise ValueError(
                "`max_length` must be an integer above 0. "
                f"Received: max_length={max_length!r}"
            )
        if tolerance is not None and (
            isinstance(tolerance, bool)
            or not isinstance(tolerance, numbers.Real)
            or not 0 <= tolerance < math.inf
        ):
            raise ValueError(
                "`tolerance` must be a finite number of at least 0, or None. "
                f"Received: tolerance={tolerance!r}"
            )
        if agreement is not None and (
            isinstance(agreement, bool)
            or not isinstance(agreement, numbers.Real)
            or not 0 <= agreement <= 1
        ):
            raise ValueError(
                "`agreement` must be a number from 0 to 1, or None. "
                f"Received: agreement={agreement!r}"
            )
        given: dict[str, Sequence[Inputs]] = {
            name: [*inputs, *(fitted or {}).get(name, [])]
            for name, inputs in fit_samples(signatures, samples).items()
        }
        if are_default:
            default, *more = signatures
            signatures = [
                default,
                *(
                    each
                    for each in more
                    if given[each.name] or can_be_asked(each)
                ),
            ]
        return cls(
            [*signatures], given, int(max_length), tolerance, agreement, extra
        )
