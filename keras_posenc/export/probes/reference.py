"""Computes the model's own outputs for each test case."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.probes.cases import (
    AGREEMENT,
    TOLERANCE,
    Case,
    Expectations,
    Questions,
    describe,
)
from keras_posenc.export.probes.compare import (
    FORCED,
    MOVED,
    SCORES,
    VECTORS,
    Loss,
    difference,
    movement,
    retrace_of,
    rounding,
)
from keras_posenc.export.probes.generate import extreme_case, make_questions
from keras_posenc.export.probes.run_model import (
    Memory,
    answers_of,
    check_repeatable,
    graph_of,
    restored,
)
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.probes.tolerance import (
    BY_KERAS,
    DEVIATIONS,
    allowed_difference,
)
from keras_posenc.export.signatures.lengths import IDS, LENGTHS
from keras_posenc.export.signatures.signature import Signature

_PADDING = 8  # zeros, to see whether they matter

# What to do where a mode rounds too much, by the mode.
_REMEDIES = {
    "float16": "Leave out `quantization` (--quantization)",
    BY_KERAS: "Export the model as it was before `quantize()`",
    **dict.fromkeys(
        ("int8", "int8-static"),
        "Use quantization='float16' (--quantization float16), which rounds "
        "less, or leave it out",
    ),
}


def expect(
    questions: Questions,
    in_float32: bool = False,
    quantization: str | None = None,
) -> Expectations:
    """Asks the model itself; an artifact is asked the same later.

    Args:
        questions: What to ask.
        in_float32: Whether the model stands in float32 instead of its own
            mixed precision.
        quantization: The artifact's mode of quantization, or None. It adds to
            the tolerance, where none was given.

    Raises:
        ValueError: An agreement for a file that is not quantized, or inputs
            that the model itself does not take.
        ExportVerificationError: The model's outputs change by being run, or its
            graph gives others than its code, or quantization may change them so
            far that a comparison would say nothing.
    """
    with restored(questions.signatures):
        return _expect(questions, in_float32, quantization)


def _expect(
    questions: Questions, in_float32: bool, quantization: str | None
) -> Expectations:
    """`expect`, which leaves the variables as the runs leave them."""
    signatures, tolerance = questions.signatures, questions.tolerance
    agreement = questions.agreement
    if agreement is not None and quantization is None:
        raise ValueError(
            "`agreement` (--agreement) applies to quantized files, and "
            f"this one is not. Received: agreement={agreement!r}"
        )
    expectations = Expectations(
        signatures,
        [],
        [],
        TOLERANCE if tolerance is None else float(tolerance),
        in_float32,
        quantization,
        retraces={
            signature.name: retrace
            for signature in signatures
            if (retrace := retrace_of(signature)) is not None
        },
    )
    memory = Memory()
    for signature in signatures:
        _ask(signature, questions, expectations, memory)
    check_repeatable(expectations, memory)
    began = time.process_time()
    expectations.cases.extend(questions.extra)
    seconds = memory.seconds + time.process_time() - began
    matters = any(
        _padding_matters(signature, expectations, memory)
        for signature in signatures
    )
    allowed, lead, losses = expectations.tolerance, math.inf, {}
    if quantization is not None:
        more, *moved = map(
            float,
            allowed_difference(
                signatures, quantization, _movement(expectations)
            ),
        )
        if tolerance is None:
            allowed += more
            losses = {
                kind: (further + least) ** 2 / 2
                for kind, further, least in zip(
                    MOVED, moved, _rounding(expectations), strict=True
                )
            }
            _check_allowed(expectations, allowed, losses)
        # One score may fall as far as rounding usually moves it, and another
        # rise as far.
        lead = 2 * more / DEVIATIONS
    return dataclasses.replace(
        expectations,
        tolerance=allowed,
        seconds=seconds,
        padding_matters=matters,
        lead=lead,
        allowed_losses=losses,
        agreement=AGREEMENT if agreement is None else float(agreement),
    )


def _check_allowed(
    expectations: Expectations, allowed: float, losses: Mapping[str, float]
) -> None:
    """Raises `ExportVerificationError` where any outputs would pass."""
    for signature, kinds in expectations.kinds.items():
        for name, kind in kinds.items():
            if kind.name == SCORES and allowed >= 1:
                limit = f"scores by up to {allowed:.3g}"
            elif kind.name == VECTORS and losses[VECTORS] >= 1:
                limit = (
                    "vectors down to a cosine of "
                    f"{max(1 - losses[VECTORS], -1):.2g}"
                )
            else:
                continue
            raise ExportVerificationError(
                f"Quantization ({expectations.quantization}) may change "
                f"{limit} in signature '{signature}', output '{name}', as "
                "measured by moving the model's weights as far as it rounds "
                "them: any file would pass. "
                + _REMEDIES.get(expectations.quantization or "", "")
                + (
                    ""
                    if any(case.is_sample for case in expectations.cases)
                    else ". Outputs of real inputs may change less than those "
                    "of invented ones: give some by `samples` (--samples)"
                )
            )


def _rounding(expectations: Expectations) -> list[float]:
    """How far float32 may move a row of each kind of `MOVED`."""
    return [
        max(
            (
                rounding(kind, case.answers[name], TOLERANCE)
                for case in expectations.held
                for name, found in expectations.kinds.get(
                    case.signature, {}
                ).items()
                if found.name == kind
            ),
            default=0.0,
        )
        for kind in MOVED
    ]


def _movement(expectations: Expectations) -> Callable[[], np.ndarray]:
    """A function that measures how far the models' outputs have moved.

    As the largest difference of a number, and as the movement of a row of each
    kind of `MOVED`.
    """
    # Asked often: as graphs, which read the weights as they are then.
    retraces = expectations.retraces
    models = {
        each.name: graph_of(each)
        for each in expectations.signatures
        if each.name not in retraces
    }

    def answers(case: Case) -> dict[str, Any]:
        retrace = retraces.get(case.signature)
        if retrace is None:
            return models[case.signature](case.inputs)
        # One other choice, and nothing that follows could be compared.
        return retrace(case.inputs, case.answers, FORCED)

    scales = expectations.scales
    kinds = expectations.kinds

    # From the graph's own: what else its outputs differ by is not the weights'.
    unmoved = [(case, answers(case)) for case in expectations.held]
    for case, found in unmoved:
        # Where Keras rounds to int8 itself, a sum that rounds otherwise in the
        # graph may fall to the other side of a half.
        if (
            case.signature not in retraces
            and expectations.quantization != BY_KERAS
        ):
            _check_graph(case, found, expectations)

    def moved_by() -> np.ndarray:
        moved = np.zeros(1 + len(MOVED))
        for case, first in unmoved:
            found = difference(
                first,
                answers(case),
                scales[case.signature],
                rounded=True,
                kinds=kinds.get(case.signature),
            )
            if math.isfinite(found.worst):
                rows = [found.lost.get(kind, Loss()).most for kind in MOVED]
                moved = np.maximum(moved, [found.worst, *map(movement, rows)])
        return moved

    return moved_by


def _check_graph(
    case: Case, found: Mapping[str, Any], expectations: Expectations
) -> None:
    """Raises `ExportVerificationError` where a graph is not its model."""
    numbers = {
        name: value
        for name, value in case.answers.items()
        if "float" in value.dtype.name  # of others, ties may fall otherwise
    }
    worst = difference(numbers, found, expectations.scales[case.signature])
    # Beyond what a deep model rounds otherwise in a graph. A tolerance of 0 is
    # for the file alone.
    if worst.worst > max(expectations.tolerance, 100 * TOLERANCE):
        raise ExportVerificationError(
            f"The graph of the model in signature '{case.signature}' does not "
            f"give the model's outputs, before any quantization: {case}: "
            f"{worst.where} differs by {worst.worst:.3g}. A layer computes "
            "otherwise in a graph, or, within `TimeDistributed`, depends on "
            "the other examples of its batch. If that is rounding, allow more "
            "by `tolerance` (--tolerance)"
        )


def _ask(
    signature: Signature,
    questions: Questions,
    expectations: Expectations,
    memory: Memory,
) -> None:
    """Adds a signature's cases and refusals to the expectations."""
    call = answers_of(signature, memory)
    max_length = questions.max_length

    def takes(inputs: Inputs) -> bool:
        try:
            call(inputs)
        except ValueError:
            return False
        return True

    error: ValueError | None = None
    taken = 0
    for question in make_questions(
        signature, questions.given[signature.name], max_length, takes
    ):
        inputs = question.inputs
        if question.extremes:
            case = extreme_case(signature, question, memory)
            if case is not None:
                expectations.cases.append(case)
            continue
        try:
            answers = call(inputs)
        except ValueError as refusal:
            error = refusal
            if question.is_required and not question.is_sample:
                longest = _longest_taken(signature, max_length, takes)
                if longest is not None:
                    error = ValueError(
                        f"{refusal}\nThe longest test input has "
                        f"{max_length} steps, and the model takes {longest}: "
                        f"give `max_length={longest}` (--max-length {longest})"
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


def _longest_taken(
    signature: Signature, most: int, takes: Callable[[Inputs], bool]
) -> int | None:
    """The longest test input below one that the model refuses, by halving."""

    def takes_length(length: int) -> bool:
        usual = [
            question
            for question in make_questions(signature, [], length, takes)
            if not question.extremes
        ]
        return takes(usual[-1].inputs)

    taken, refused = most // 2, most
    while taken and not takes_length(taken):
        taken, refused = taken // 2, taken
    while taken and refused - taken > 1:
        middle = (taken + refused) // 2
        if takes_length(middle):
            taken = middle
        else:
            refused = middle
    return taken or None


def _padding_matters(
    signature: Signature, expectations: Expectations, memory: Memory
) -> bool:
    """Whether rows of ids with lengths are answered alike, however padded."""
    if (
        not {IDS, LENGTHS} <= {*signature.specs}
        or signature.specs[IDS].shape[1]
    ):
        return False
    call = answers_of(signature, memory)
    alone = [
        case
        for case in expectations.usual
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
