"""Compares one batch of an artifact's answers with the model's."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_posenc.artifacts.expectations.differences import Columns, difference
from keras_posenc.artifacts.expectations.expectations import Case, Expectations
from keras_posenc.artifacts.expectations.extremes import but_for_rounding
from keras_posenc.artifacts.expectations.ties import settled
from keras_posenc.artifacts.signatures.labels import is_labels
from keras_posenc.artifacts.verification.asking import output_of, to_bytes
from keras_posenc.artifacts.verification.case_report import CaseReport


def compare(
    case: Case,
    scales: Mapping[str, float],
    answer: Mapping[str, Any],
    outputs: Mapping[str, Any],
    expectations: Expectations,
    columns: Columns,
) -> CaseReport:
    """How far an artifact's answer to one batch is from the model's."""
    signature, description = case.signature, str(case)
    expected: Mapping[str, Any] = case.answers
    error = answer.get("error")
    names = {
        name
        for name in answer["outputs"]
        if name in expected or not is_labels(name)
    }
    if error is None and names != set(expected):
        error = (
            f"its outputs are {', '.join(sorted(answer['outputs']))}, the "
            f"model's {', '.join(expected)}"
        )
        if unnumbered(answer["outputs"]) == unnumbered(expected):
            error += (
                ". Keras numbers layers without a name in the order in which "
                "they are made: name those of the outputs, as in "
                "keras.layers.Dense(2, name='scores'), and export the model "
                "again"
            )
    if error is not None:
        return CaseReport(signature, description, math.inf, "", 0.0, error)
    got = {
        name: output_of(answer["outputs"][name], outputs) for name in expected
    }
    for name, value in expected.items():
        kinds = _kind(got[name]), _kind(value)
        if len({*kinds}) > 1:
            error = "{} is of {}, the model's of {}".format(name, *kinds)
            return CaseReport(signature, description, math.inf, "", 0.0, error)
    if case.extremes:
        got = but_for_rounding(case, got)
    retrace = expectations.retraces.get(signature)
    expected, ties = settled(
        expected, got, case.inputs, retrace, expectations.tolerance
    )
    for name in expected:
        where, error = unlike(name, got[name], expected[name])
        if error is not None:
            return CaseReport(
                signature, description, math.inf, where, 0.0, error
            )
        if not case.extremes:  # beside 1e4 everything is small
            columns.add(
                f"{signature}/{name}", expected[name], got[name], scales[name]
            )
    # What a quantized file chooses may be what its model nearly chose, and
    # nothing else.
    is_rounded = expectations.quantization is not None and retrace is None
    found = difference(
        expected,
        got,
        scales,
        is_rounded,
        expectations.lead,
        expectations.kinds.get(signature),
    )
    where = found.where
    if case.extremes and found.example is not None:
        where += f", where the inputs are {case.extremes[found.example]},"
    return CaseReport(
        signature,
        description,
        found.worst,
        where,
        answer["milliseconds"],
        is_nan=all(
            "float" in wanted.dtype.name
            and wanted.size > 0
            and bool(np.isnan(wanted.astype("float64")).all())
            for wanted in expected.values()
        ),
        is_sample=case.is_sample,
        mean_difference=found.mean,
        agreeing=found.agreeing,
        rows=found.rows,
        kept=found.kept,
        decided=found.decided,
        near_ties=ties,
        is_extreme=bool(case.extremes),
        examples=case.examples,
        lost=found.lost,
    )


def unnumbered(names: Iterable[str]) -> list[str]:
    """Names without the numbers by which Keras tells layers apart."""
    return sorted(re.sub(r"_\d+$", "", name) for name in names)


def unseen_columns(columns: Columns, tolerance: float) -> list[str]:
    """Columns of which too little was seen, in words."""
    return [
        f"{name}[..., {', '.join(map(str, indices[:8]))}]"
        + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")
        for name, indices in columns.unseen(tolerance).items()
    ]


def _kind(values: Any) -> str:
    """What values are, in words: of which size, each format decides."""
    if "float" in values.dtype.name:  # bfloat16 too
        return "floats"
    names = {"O": "texts", "b": "booleans", "i": "integers", "u": "integers"}
    return names.get(values.dtype.kind, values.dtype.name)


def unlike(name: str, got: Any, wanted: Any) -> tuple[str, str | None]:
    """Where and why two outputs have no distance, if they have none."""
    if got.shape != wanted.shape:
        error = f"{name} has shape {got.shape}, the model's {wanted.shape}"
        return "", error
    if wanted.dtype == object and len(wrong := np.argwhere(got != wanted)):
        index = tuple(map(int, wrong[0]))
        where = f"{name}{[*index]}"
        texts = (
            to_bytes(texts[index]).decode(errors="replace")
            for texts in (got, wanted)
        )
        return where, "{} is {!r}, the model's {!r}".format(where, *texts)
    return "", None
