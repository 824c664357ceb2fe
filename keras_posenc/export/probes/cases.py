"""Test cases: inputs, and the outputs that the model itself has for them."""

import dataclasses
import functools
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_posenc.export.probes.compare import Kind, Retrace, kinds_of
from keras_posenc.export.probes.samples import Inputs, can_be_asked, fit_samples
from keras_posenc.export.signatures.cut_strings import longest_text
from keras_posenc.export.signatures.signature import Signature

TOLERANCE = 1e-5  # of artifacts that compute in float32

AGREEMENT = 0.99  # of a quantized file's largest scores


@dataclasses.dataclass(frozen=True)
class Case:
    """One batch of inputs and the model's own answers.

    Attributes:
        signature: Name of the signature.
        inputs: Arrays by the names of its inputs.
        answers: Arrays by the names of its outputs.
        is_sample: Whether the inputs were given, and not invented.
        text: What the inputs were made of, for a MediaPipe task.
        extremes: What numbers each example has, in words, where they are
            extreme ones; see `extreme_inputs`.
        rounding: For these, by the names of outputs, how far from the answers
            rounding may move others; infinite where it may choose otherwise.
    """

    signature: str
    inputs: Inputs
    answers: dict[str, Any]
    is_sample: bool = False
    text: str | None = None
    extremes: Sequence[str] = ()
    rounding: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        text = describe(self.inputs)
        if self.extremes:
            text += f", examples of {', '.join(dict.fromkeys(self.extremes))}"
        return text

    @property
    def examples(self) -> int:
        """How many examples the batch has."""
        first = next(iter(self.inputs.values()), np.zeros(()))
        return len(first) if first.ndim else 1


@dataclasses.dataclass(frozen=True)
class Expectations:
    """What an artifact must answer.

    Attributes:
        signatures: The signatures that are asked.
        cases: The batches of inputs with the model's own answers.
        refused: Batches, in words, that the model itself does not take.
        tolerance: The largest difference that passes.
        in_float32: Whether a model of mixed precision answered in float32.
        quantization: The artifact's mode of quantization, or None.
        seconds: How long the processor worked for the answers.
        padding_matters: Whether zeros behind the ids change the model's answer
            to them.
        lead: By how much the largest score of a row leads the others where a
            quantized file must not choose another; infinite without one.
        allowed_losses: What a row of a quantized file may lose, by the kind of
            its output: see `kinds.losses`.
        agreement: In what share of these rows it must not.
        retraces: How those models are asked again whose answers are choices,
            by the names of their signatures.
    """

    signatures: Sequence[Signature]
    cases: list[Case]
    refused: list[str]
    tolerance: float
    in_float32: bool = False
    quantization: str | None = None
    seconds: float = 0.0
    padding_matters: bool = False
    lead: float = math.inf
    agreement: float = AGREEMENT
    allowed_losses: Mapping[str, float] = dataclasses.field(
        default_factory=dict
    )
    retraces: Mapping[str, Retrace] = dataclasses.field(default_factory=dict)

    @property
    def usual(self) -> list[Case]:
        """The cases without those of extreme numbers.

        They alone say how large outputs are, and how far apart.
        """
        return [case for case in self.cases if not case.extremes]

    @functools.cached_property
    def scales(self) -> dict[str, dict[str, float]]:
        """For each signature the size of each output's numbers.

        It is not below what the model says in `answer_scales`, by the names of
        outputs: those whose numbers may all be next to nothing, and are made
        of larger ones, as log-likelihoods are. Asked once all cases are there.
        """
        scales = {}
        for signature in self.signatures:
            least = dict(getattr(signature.model, "answer_scales", {}))
            found = scales_of(
                [
                    case.answers
                    for case in self.usual
                    if case.signature == signature.name
                ]
            )
            own = signature.own_names
            scales[signature.name] = {
                name: max(scale, least.get(own.get(name, name), scale))
                for name, scale in found.items()
            }
        return scales

    @functools.cached_property
    def kinds(self) -> dict[str, dict[str, Kind]]:
        """For each signature the kinds of its outputs, in a quantized file.

        Not of choices: of their scores the largest says nothing. Asked once
        all cases are there.
        """
        return {
            signature.name: kinds_of(
                signature,
                [
                    case.answers
                    for case in self.held
                    if case.signature == signature.name
                ],
            )
            for signature in self.signatures
            if self.quantization is not None
            and signature.name not in self.retraces
        }

    @property
    def held(self) -> list[Case]:
        """The cases that a quantized file is held to: samples, if any."""
        return [case for case in self.cases if case.is_sample] or self.usual

    @property
    def constant(self) -> list[str]:
        """Outputs whose rows hardly differ, whatever the inputs are.

        Those that the model says are constant, in `constant_answers`, are left
        out.
        """
        tolerance = TOLERANCE if self.quantization else self.tolerance
        known = {
            f"{signature.name}/{name}"
            for signature in self.signatures
            for name in getattr(signature.model, "constant_answers", ())
        }
        return [
            name
            for name, most in self._spreads()
            if most < 10 * tolerance and name not in known
        ]

    @property
    def blurred(self) -> list[str]:
        """Outputs whose rows differ by no more than quantization may do."""
        if self.quantization is None:
            return []
        return [n for n, most in self._spreads() if most <= self.tolerance]

    def _spreads(self) -> Iterator[tuple[str, float]]:
        """Each output, and how far its rows are apart, as differences are."""
        rows: dict[tuple[str, str], list[np.ndarray]] = {}
        for case in self.usual if self.quantization is None else self.held:
            for name, value in case.answers.items():
                if "float" in value.dtype.name and value.ndim > 1:
                    rows.setdefault((case.signature, name), []).append(
                        value.astype("float64").reshape(-1, value.shape[-1])
                    )
        scales = self.scales
        for (signature, name), values in rows.items():
            if (
                len({value.shape[1] for value in values}) == 1
                and sum(map(len, values)) > 2
            ):
                all_rows = np.concatenate(values)
                sizes = np.max(np.abs(all_rows), axis=0)
                with np.errstate(invalid="ignore"):  # an infinity less itself
                    spreads = np.ptp(all_rows, axis=0) / np.maximum(
                        sizes, scales[signature][name]
                    )
                yield f"{signature}/{name}", float(np.max(spreads, initial=0))


def scales_of(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The size of each output's numbers, from 0.01 to 1, over all cases."""
    scales: dict[str, float] = {}
    for answer in answers:
        for name, value in answer.items():
            numbers = np.zeros(0)
            if "float" in value.dtype.name:
                numbers = np.abs(value.astype("float64"))
            largest = np.max(numbers[np.isfinite(numbers)], initial=0.01)
            scales[name] = min(1.0, max(scales.get(name, 0.01), largest))
    return scales


def describe(inputs: Inputs) -> str:
    """Inputs in words."""
    return ", ".join(
        f"{name} of shape {value.shape}" for name, value in inputs.items()
    )


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
