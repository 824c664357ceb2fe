"""What the model itself answers, before any artifact is asked."""

import dataclasses
import math
import numbers
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.artifacts.differences import difference
from keras_posenc.artifacts.errors import in_words
from keras_posenc.artifacts.lengths import IDS, LENGTHS
from keras_posenc.artifacts.quantization import (
    DEVIATIONS,
    allowed_difference,
)
from keras_posenc.artifacts.samples import (
    TEXTS,
    Inputs,
    fit_samples,
    make_cases,
    split_texts,
)
from keras_posenc.artifacts.signatures import (
    Signature,
    flatten_layers,
    trace,
)
from keras_posenc.artifacts.text_tasks import TextTask

TOLERANCE = 1e-5  # of artifacts that compute in float32
AGREEMENT = 0.99  # of a quantized file's largest scores
_PADDING = 8  # zeros, to see whether they matter


@dataclasses.dataclass(frozen=True)
class Case:
    """One batch of inputs and the model's own answers.

    Attributes:
        signature: Name of the signature.
        inputs: Arrays by the names of its inputs.
        answers: Arrays by the names of its outputs.
        is_sample: Whether the inputs were given, and not invented.
        text: What the inputs were made of, for a MediaPipe task.
    """

    signature: str
    inputs: Inputs
    answers: dict[str, Any]
    is_sample: bool = False
    text: str | None = None

    def __str__(self) -> str:
        return describe(self.inputs)


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
        agreement: In what share of these rows it must not.
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

    @property
    def scales(self) -> dict[str, dict[str, float]]:
        """For each signature the size of each output's numbers."""
        return {
            signature.name: _scales(
                [
                    case.answers
                    for case in self.cases
                    if case.signature == signature.name
                ]
            )
            for signature in self.signatures
        }

    @property
    def constant(self) -> list[str]:
        """Outputs whose rows hardly differ, whatever comes in."""
        tolerance = TOLERANCE if self.quantization else self.tolerance
        return [n for n, most in self._spreads() if most < 10 * tolerance]

    @property
    def blurred(self) -> list[str]:
        """Outputs whose rows differ by no more than quantization may do."""
        if self.quantization is None:
            return []
        return [n for n, most in self._spreads() if most <= self.tolerance]

    def _spreads(self) -> Iterator[tuple[str, float]]:
        """Each output, and how far its rows are apart, as differences are."""
        rows: dict[tuple[str, str], list[np.ndarray]] = {}
        samples = [case for case in self.cases if case.is_sample]
        is_held = self.quantization is not None and samples
        for case in samples if is_held else self.cases:
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


def expect(
    signatures: Sequence[Signature],
    samples: Any = None,
    max_length: int = 512,
    tolerance: float | None = None,
    in_float32: bool = False,
    quantization: str | None = None,
    task: TextTask | None = None,
    agreement: float | None = None,
) -> Expectations:
    """Asks the model itself; an artifact is asked the same later.

    Args:
        signatures: The signatures to ask.
        samples: See `verify`.
        max_length: The longest sequence.
        tolerance: The largest difference that passes; by default `TOLERANCE`,
            and what the artifact's mode of quantization may add to it.
        in_float32: Whether the model stands in float32 instead of its own
            mixed precision.
        quantization: The artifact's mode of quantization, or None.
        task: The MediaPipe task that the artifact is for. Texts are then put
            to the model as they are, and to the artifact as MediaPipe does.
        agreement: In what share of decided rows a quantized file must have the
            model's largest score; `AGREEMENT` by default.

    Raises:
        ValueError: An argument that is none of these, or inputs that the model
            itself does not take.
    """
    texts: list[str] = []
    if task is not None:
        texts, samples = split_texts(samples)
    given = check_questions(
        signatures, samples, max_length, tolerance, agreement
    )
    if agreement is not None and quantization is None:
        raise ValueError(
            "`agreement` (--agreement) is of quantized files, and this one is "
            f"not. Received: agreement={agreement!r}"
        )
    expectations = Expectations(
        signatures,
        [],
        [],
        TOLERANCE if tolerance is None else float(tolerance),
        in_float32,
        quantization,
    )
    began = time.process_time()
    for signature in signatures:
        _ask(signature, given[signature.name], int(max_length), expectations)
    if task is not None:
        answer = _model_of(task.text)
        for is_sample, group in ((False, TEXTS), (True, texts)):
            expectations.cases.extend(
                Case(
                    task.signature.name,
                    inputs,
                    answer(as_given),
                    is_sample,
                    text,
                )
                for text, inputs, as_given in task.cases(group)
            )
    seconds = time.process_time() - began
    matters = any(
        _padding_matters(signature, expectations) for signature in signatures
    )
    allowed, lead = expectations.tolerance, math.inf
    if quantization is not None:
        more = allowed_difference(
            signatures, quantization, _movement(expectations)
        )
        if tolerance is None:
            allowed += more
        # One score may fall as far as rounding usually moves it, and another
        # rise as far.
        lead = 2 * more / DEVIATIONS
    return dataclasses.replace(
        expectations,
        tolerance=allowed,
        seconds=seconds,
        padding_matters=matters,
        lead=lead,
        agreement=AGREEMENT if agreement is None else float(agreement),
    )


def check_questions(
    signatures: Sequence[Signature],
    samples: Any,
    max_length: int,
    tolerance: float | None,
    agreement: float | None = None,
) -> dict[str, list[Inputs]]:
    """The samples of each signature; see `fit_samples`.

    Raises:
        ValueError: Arguments that nobody can be asked with.
    """
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
    return fit_samples(signatures, samples)


def _movement(expectations: Expectations) -> Callable[[], float]:
    """A function of how far the models are from their first answers then."""
    # Asked often: as graphs, which read the weights as they are then.
    models = {each.name: _graph_of(each) for each in expectations.signatures}
    scales = expectations.scales
    samples = [case for case in expectations.cases if case.is_sample]

    def moved_by() -> float:
        moved = 0.0
        for case in samples or expectations.cases:
            found = difference(
                case.answers,
                models[case.signature](case.inputs),
                scales[case.signature],
                rounded=True,
            )
            if math.isfinite(found.worst):
                moved = max(moved, found.worst)
        return moved

    return moved_by


def _ask(
    signature: Signature,
    given: Sequence[Inputs],
    max_length: int,
    expectations: Expectations,
) -> None:
    """Adds a signature's cases and refusals to the expectations."""
    call = _model_of(signature)

    def takes(inputs: Inputs) -> bool:
        try:
            call(inputs)
        except ValueError:
            return False
        return True

    error: ValueError | None = None
    taken = 0
    for question in make_cases(signature, given, max_length, takes):
        inputs = question.inputs
        try:
            answers = call(inputs)
        except ValueError as refusal:
            error = refusal
            if not question.is_sample:
                error = ValueError(
                    f"{refusal}\nThe longest that is asked is `max_length` "
                    f"(--max-length), here {max_length}: give what the model "
                    "takes at most"
                )
            if question.is_required:
                raise error from refusal
            expectations.refused.append(f"{signature.name}, {describe(inputs)}")
        else:
            expectations.cases.append(
                Case(signature.name, inputs, answers, question.is_sample)
            )
            taken += 1
    if error is not None and not taken:
        raise error


def _padding_matters(signature: Signature, expectations: Expectations) -> bool:
    """Whether rows of ids with lengths are answered alike, however padded."""
    if (
        not {IDS, LENGTHS} <= {*signature.specs}
        or signature.specs[IDS].shape[1]
    ):
        return False
    call = _model_of(signature)
    alone = [
        case
        for case in expectations.cases
        if case.signature == signature.name and len(case.inputs[IDS]) == 1
    ]
    scales = expectations.scales[signature.name]
    # To the shortest the same padding matters most.
    for case in sorted(alone, key=lambda case: case.inputs[IDS].size)[:3]:
        width = case.inputs[IDS].shape[1]
        ids = np.pad(case.inputs[IDS], [(0, 0), (0, _PADDING)])
        try:
            answers = call({**case.inputs, IDS: ids})
        except ValueError:  # it is too long for the model
            continue
        for name, answer in case.answers.items():
            if "float" not in answer.dtype.name:
                continue
            other = answers[name]
            # What there is for each token, or window or pair of tokens, counts
            # for the real ones alone.
            padded = width - min(max(int(case.inputs[LENGTHS][0]), 0), width)
            for axis in range(1, answer.ndim):
                if other.shape[axis] == answer.shape[axis] + _PADDING:
                    real = range(max(answer.shape[axis] - padded, 0))
                    answer = np.take(answer, real, axis)
                    other = np.take(other, real, axis)
            found = difference({name: answer}, {name: other}, scales)
            if found.worst > 10 * expectations.tolerance:
                return True
    return False


def _model_of(signature: Signature) -> Callable[[Inputs], dict[str, Any]]:
    """What answers for the model: its eager code, or its graph.

    What a signature adds to its model is done in NumPy; see `Origin`.
    """
    origin = signature.origin
    if origin is not None:
        answer = _model_of(origin.signature)
        return lambda inputs: origin.tell(answer(origin.ask(inputs)))
    if any(
        layer.compute_dtype in ("float16", "bfloat16")
        for layer in flatten_layers(signature.model)
    ):
        # Graphs round to low precision at other places than eager code does,
        # and what model.predict answers is the graph's.
        return _graph_of(signature)
    return lambda inputs: _answer(signature, signature.call, inputs)


def _graph_of(signature: Signature) -> Callable[[Inputs], dict[str, Any]]:
    graph = trace(signature)
    return lambda inputs: _answer(
        signature, lambda tensors: graph(**tensors), inputs
    )


def _scales(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
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


def _answer(signature: Signature, call: Any, inputs: Inputs) -> dict[str, Any]:
    import tensorflow as tf

    try:
        # Where the worker is, too: a GPU's products are another's.
        with tf.device("CPU:0"):
            outputs = call(
                {name: tf.constant(value) for name, value in inputs.items()}
            )
    except Exception as error:
        raise ValueError(
            f"The model itself does not take {describe(inputs)} in signature "
            f"'{signature.name}': {in_words(error)}"
        ) from error
    return {name: value.numpy() for name, value in outputs.items()}


def describe(inputs: Inputs) -> str:
    """Inputs in words."""
    return ", ".join(
        f"{name} of shape {value.shape}" for name, value in inputs.items()
    )
