"""Compares an exported model's outputs with the model's."""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.notes import AGAINST_NAN, notes
from keras_posenc.export.probes.compare import (
    difference,
    is_finite,
    is_float,
    is_nan,
)
from keras_posenc.export.probes.extremes import LARGE_INTEGERS
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.likelihoods import (
    TOKEN_SCORE,
    Likelihoods,
    of_generated,
    of_targets,
)
from keras_posenc.export.probes.quality import qualities
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.repeats import MOST, without_rounding
from keras_posenc.export.probes.samples import describe_example
from keras_posenc.export.report import CaseReport, VerificationReport
from keras_posenc.export.signatures.labels import CLASSES, is_labels
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import MIB, Limits, limits_for
from keras_posenc.progress import printable_errors
from keras_posenc_worker.cases import make_case, unlike
from keras_posenc_worker.codec import to_bytes

_NAMES = (
    ". Keras numbers unnamed layers: name the inputs and the output layers, as "
    "in keras.Input((4,), name='x') and keras.layers.Dense(2, name='scores'), "
    "and export the model again"
)


def compare(
    probe: Probe, response: Mapping[str, Any], reference: Reference
) -> CaseReport:
    """Compares the outputs of an exported model for one probe."""
    case = CaseReport(
        signature=probe.signature,
        inputs=str(probe),
        milliseconds=response.get("milliseconds"),
        is_sample=probe.is_sample,
        is_extreme=bool(probe.extremes),
        examples=probe.examples,
        allowed=_allowed(probe, reference),
    )
    got = _outputs(probe, response)
    if isinstance(got, str):
        return dataclasses.replace(case, largest_difference=math.inf, error=got)
    labels = reference.signature_of(probe).labels
    if labels is not None:
        # Those of the file's own scores, which are compared: rounding may
        # change which of two equal ones is the highest.
        outputs = {**probe.outputs, **labels(got)}
        probe = dataclasses.replace(probe, outputs=outputs)
    found = _judged(case, probe, got, reference)
    if found.is_right or reference.quantization is not None:
        return found
    scales = reference.scales[probe.signature]
    kept, left_out = without_rounding(
        probe, got, reference.moved(probe), scales, case.allowed
    )
    rounded = _judged(case, probe, kept, reference)
    if not rounded.is_right:
        return found
    rounded = dataclasses.replace(rounded, undetermined=left_out)
    if not (left_out or probe.extremes):
        text = (
            f"rounding alone: {found.where} differs by "
            f"{found.largest_difference:.3g}, with {probe}. The model's own "
            "outputs move as far if inputs and weights move by 4e-06 of them"
        )
        reference.rounded.append((found.largest_difference, text))
    return rounded


def _allowed(probe: Probe, reference: Reference) -> float:
    """Returns the largest difference allowed: of extreme floats a hundredth."""
    if reference.quantization is not None:  # its loss is that of all cases
        return sys.float_info.max
    if probe.extremes and LARGE_INTEGERS not in probe.extremes:
        return max(MOST, reference.tolerance)
    return reference.tolerance


def _outputs(probe: Probe, response: Mapping[str, Any]) -> dict[str, Any] | str:
    """Returns a file's outputs, or why they cannot be compared.

    Where the model gives NaN, or of extreme numbers no number, a generated
    input is no reason to refuse a file: there they are the model's.
    """
    if "error" in response:  # runtimes use several lines
        return " ".join(response["error"].split())
    got, expected = response["outputs"], probe.outputs
    names = {name for name in got if name in expected or not is_labels(name)}
    if names != set(expected):
        return (
            f"its outputs are {', '.join(sorted(got))}, and the model's are "
            f"{', '.join(expected)}{_NAMES}"
        )
    found = {}
    for name, wanted in expected.items():
        if error := unlike(got[name], wanted.shape, wanted.dtype):
            return f"{name} {error}"
        found[name] = got[name]
        if not probe.is_sample and is_float(wanted):
            is_kept = is_finite(wanted) if probe.extremes else ~is_nan(wanted)
            found[name] = np.where(is_kept, got[name], wanted)
    return found


def _judged(
    case: CaseReport, probe: Probe, got: Mapping[str, Any], reference: Reference
) -> CaseReport:
    """Returns the case with what outputs of the same shapes differ by."""
    name, is_exact = probe.signature, reference.quantization is None
    expected = probe.outputs
    by_likelihood = name in reference.by_likelihood
    for output, wanted in expected.items():
        where, error = _error(probe, output, got[output], wanted, by_likelihood)
        if error:
            return dataclasses.replace(
                case, largest_difference=math.inf, where=where, error=error
            )
    likelihoods = _likelihoods(probe, got, reference)
    case = dataclasses.replace(case, likelihoods=likelihoods)
    if by_likelihood:
        return case
    compared = {
        output: value
        for output, value in expected.items()
        if is_exact or is_float(value)  # others: see `quality`
    }
    apart, where = difference(
        compared, got, reference.scales[name], examples=probe.extremes
    )
    is_nothing = all(
        is_float(x) and x.size and is_nan(x).all() for x in expected.values()
    )
    return dataclasses.replace(
        case, largest_difference=apart, where=where, is_nan=is_nothing
    )


def _error(
    probe: Probe, name: str, got: Any, wanted: Any, by_likelihood: bool
) -> tuple[str, str]:
    """Returns where a text differs or a NaN of the model is lost, and how."""
    wrong: Any = []
    if wanted.dtype == object and not by_likelihood:
        wrong = np.argwhere(got != wanted)
    elif is_float(wanted):
        if by_likelihood and np.any(is_finite(wanted) & ~is_finite(got)):
            return name, f"{name} is not finite"
        wrong = np.argwhere(is_nan(wanted) & ~is_nan(got))
    if not len(wrong):
        return "", ""
    index = tuple(map(int, wrong[0]))
    where = f"{name}{[*index]}"
    if is_float(wanted):
        return where, (
            f"{where} is {got[index]:.3g}, and the model itself gives NaN for "
            f"{describe_example(probe.inputs, wanted, index)}. {AGAINST_NAN}"
        )
    text, own = (
        to_bytes(texts[index]).decode(errors="replace")
        for texts in (got, wanted)
    )
    hint = ". Give the export's labels as `labels`"
    hint *= name.rpartition("_")[2] == CLASSES
    return where, f"{where} is {text!r}, the model's {own!r}{hint}"


def _likelihoods(
    probe: Probe, got: Mapping[str, Any], reference: Reference
) -> Likelihoods | None:
    rescore = reference.rescores.get(probe.signature)
    if rescore is not None and probe.signature in reference.by_likelihood:
        return of_generated(probe.inputs, got, rescore)
    # Invented targets say nothing.
    if not (
        probe.is_sample and "target" in probe.inputs and TOKEN_SCORE in got
    ):
        return None
    return of_targets(probe.outputs, got, probe.is_drawn)


def check(
    reference: Reference,
    inspection: Inspection,
    response: Mapping[str, Any],
    different_weights: Sequence[str] = (),
) -> VerificationReport:
    """Compares all outputs of an exported model with the reference."""
    pairs = [*zip(reference.probes, response["cases"], strict=True)]
    cases = []
    for probe, found in pairs:
        if probe.is_nan:
            continue
        cases.append(compare(probe, found, reference))
        if "python" in found and cases[-1].is_right:
            other = {**found, "outputs": found["python"]}
            python = compare(probe, other, reference)
            if not python.is_right:
                raise ExportVerificationError(
                    f"'{inspection.path}' differs between servers and Python: "
                    f"signature '{probe.signature}': tf.saved_model.load gives "
                    f"other values: {python.error or python.where}"
                )
    check_determined(cases, reference)
    quality = {}
    if reference.quantization is not None:
        sampled = {x.signature for x in reference.probes if x.is_sample}
        quality = qualities(
            (probe.signature, probe.outputs, found["outputs"])
            for probe, found in pairs
            if "error" not in found
            and not probe.extremes
            and probe.is_sample == (probe.signature in sampled)
            and probe.signature not in reference.by_likelihood
        )
    names = {signature.name for signature in reference.signatures}
    labels = {
        f"{probe.signature}/{name}"
        for probe in reference.probes
        for name in inspection.signatures[probe.signature]["outputs"]
        if is_labels(name) and name not in probe.outputs
    }
    return VerificationReport(
        path=inspection.path,
        kind=inspection.kind,
        size_bytes=inspection.size_bytes,
        foreign_operators=inspection.foreign_operators,
        unverified=sorted(
            {*inspection.signatures}.difference(names)
            | labels
            | unmeasured(reference, cases)
        ),
        tolerance=reference.tolerance,
        cases=cases,
        limits=dict(reference.limits),
        quality=quality,
        by_likelihood=sorted(reference.by_likelihood),
        quantization=reference.quantization,
        different_weights=[*different_weights],
        eager_differences=reference.eager_differences,
        notes=[
            *notes(reference, inspection),
            *[text for _, text in sorted(reference.rounded)[-1:]],
            *_other_nan(pairs),
            *response.get("notes", ()),
        ],
        checks=[*response.get("checks", ())],
    )


def check_determined(cases: Sequence[CaseReport], reference: Reference) -> None:
    """Raises `ExportVerificationError` if rounding decides a signature."""
    usual = [case for case in cases if not case.is_extreme]
    left_out = sum(case.undetermined for case in usual)
    if not left_out:
        return
    examples = sum(case.examples for case in usual)
    text = (
        f"in {left_out} of {examples} examples the model's own outputs move by "
        f"more than {MOST:.0%} of their size if its inputs and weights move by "
        "4e-06 of them"
    )
    if any(
        all(x.undetermined == x.examples for x in usual if x.signature == name)
        for name in {case.signature for case in usual}
    ):
        raise ExportVerificationError(
            f"Float32 does not determine the model's outputs: {text}. Train "
            "it first, and give data that it is for as `samples`; else it can "
            "only be exported without verification"
        )
    reference.notes.append(f"rounding alone: {text}: these are not compared")


def kept_cases(
    reference: Reference, response: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the cases that are kept with a file that passed."""
    probes = [x for x in reference.probes if not x.is_nan]
    # Samples may be private: they are kept only where nothing was generated.
    generated = {x.signature for x in probes if not x.is_sample}
    return [
        make_case(
            probe.signature,
            probe.inputs,
            probe.outputs,
            own["outputs"],
            reference.scales[probe.signature],
            reference.tolerance,
            is_sample=probe.is_sample,
        )
        for probe, own in zip(reference.probes, response["cases"], strict=True)
        if not probe.is_nan
        and "error" not in own
        and not (probe.is_sample and probe.signature in generated)
    ]


def _other_nan(pairs: Sequence[tuple[Probe, Mapping[str, Any]]]) -> list[str]:
    """Returns in which outputs inputs of NaN give NaN in other places."""
    names: dict[str, None] = {}
    for probe, found in pairs:
        for name, wanted in probe.outputs.items() if probe.is_nan else ():
            got = found.get("outputs", {}).get(name)
            if unlike(got, wanted.shape, wanted.dtype) or not is_float(wanted):
                continue
            if np.any(is_nan(got) != is_nan(wanted)):
                names[f"{probe.signature}/{name}"] = None
    text = (
        "if an input is NaN, the file gives NaN where the model gives a number,"
        f" or the reverse, in {', '.join(names)}: let no NaN into the file"
    )
    return [text] if names else []


def unmeasured(reference: Reference, cases: Sequence[CaseReport]) -> set[str]:
    """Returns signatures of a quantized generator of which no loss is known."""
    if reference.in_engine:  # there it will be
        return set()
    pairs = [(case.signature, case.likelihoods) for case in cases]
    known = {name for name, found in pairs if found and found.measured}
    unknown = {*reference.by_likelihood} - known
    return {f"{name} (no token to measure)" for name in unknown}


@printable_errors()
def check_signatures(
    signatures: Sequence[Signature], inspection: Inspection
) -> None:
    """Raises `ValueError` if a file has other signatures or inputs."""
    for signature in signatures:
        if signature.name not in inspection.signatures:
            raise ValueError(
                f"The file has no signature '{signature.name}'. It has: "
                f"{', '.join(inspection.signatures)}. Give those of the export "
                "as `signatures`"
            )
        present = inspection.signatures[signature.name]["inputs"]
        if set(present) != set(signature.specs):
            raise ValueError(
                f"Signature '{signature.name}' of the file takes "
                f"{', '.join(present)}, and the model takes "
                f"{', '.join(signature.specs)}{_NAMES}"
            )


def limits_of(reference: Reference, inspection: Inspection) -> Limits:
    """Returns the limits of a worker that runs a file on the test inputs."""
    size = sum(
        value.nbytes
        for probe in reference.probes
        for value in (*probe.inputs.values(), *probe.outputs.values())
    )
    limits = limits_for(inspection.size_bytes, size, reference.seconds)
    return dataclasses.replace(limits, file=64 * MIB + 4 * size)
