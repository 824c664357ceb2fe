"""Compares an exported model's outputs with the model's."""

import math
import os
import re
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.compare import (
    difference,
    distances,
    resolve_ties,
    unchecked_columns,
)
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.likelihoods import (
    TOKEN_SCORE,
    Likelihoods,
    of_choices,
    of_targets,
    wrong_scores,
)
from keras_posenc.export.probes.quality import qualities
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import Inputs, describe_example
from keras_posenc.export.report import (
    AGAINST_NAN,
    CaseReport,
    VerificationReport,
    notes,
)
from keras_posenc.export.signatures.from_model import in_code, input_code
from keras_posenc.export.signatures.labels import CLASSES, is_labels
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import MEMORY, MIB, Limits
from keras_posenc.progress import printable_errors
from keras_posenc_worker.cases import make_case
from keras_posenc_worker.codec import to_bytes

_MOST_ROUNDING = 1e-2  # of an output's size, that a model may make of rounding


def compare(
    probe: Probe, response: Mapping[str, Any], reference: Reference
) -> CaseReport:
    """Compares the outputs of an exported model for one probe.

    Args:
        probe: The inputs, and the model's outputs.
        response: The worker's outputs for the probe, or its error.
        reference: The reference that the probe belongs to.
    """
    if (error := _other_outputs(probe.outputs, response)) is not None:
        return _failed(probe, error)
    got = {name: response["outputs"][name] for name in probe.outputs}
    if not probe.is_sample:
        got = _where_number(probe, got)
    case = _compare(probe, got, response["milliseconds"], reference)
    is_exact = reference.quantization is None
    if (
        _is_right(case, reference)
        or probe.signature in reference.retraces
        or not (is_exact or probe.extremes)
    ):
        return case
    kept = _without_rounding(got, probe, reference)
    rounded = _compare(probe, kept, response["milliseconds"], reference)
    if not _is_right(rounded, reference):
        return case
    if not probe.extremes:
        reference.notes.append(
            f"rounding alone, with {probe}: {case.where} differs by "
            f"{case.largest_difference:.3g}, and the model's own outputs "
            "move as far if its inputs and weights move by 4e-06 of them"
        )
    return rounded


def _failed(probe: Probe, error: str, where: str = "") -> CaseReport:
    return CaseReport(
        signature=probe.signature,
        inputs=str(probe),
        largest_difference=math.inf,
        where=where,
        error=error,
        is_sample=probe.is_sample,
        is_extreme=bool(probe.extremes),
    )


def _compare(
    probe: Probe,
    got: Mapping[str, Any],
    milliseconds: float,
    reference: Reference,
) -> CaseReport:
    """Compares outputs of the same names, as `compare` does."""
    signature, is_exact = probe.signature, reference.quantization is None
    by_likelihood = signature in reference.by_likelihood
    expected, ties = probe.outputs, 0
    if is_exact:
        expected, ties = resolve_ties(
            expected,
            got,
            probe.inputs,
            reference.retraces.get(signature),
            reference.tolerance,
        )
    for name, value in expected.items():
        where, error = unlike(
            name, got[name], value, probe.inputs, is_exact=not by_likelihood
        )
        if error is not None:
            return _failed(probe, error, where)
    likelihoods, error = _likelihoods(probe, got, reference)
    if error is not None:
        return _failed(probe, error)
    found: dict[str, Any] = {}
    if not by_likelihood:
        compared = {
            name: value
            for name, value in expected.items()
            if is_exact or "float" in value.dtype.name  # others: see `quality`
        }
        scales, examples = reference.scales[signature], probe.extremes
        apart = difference(compared, got, scales, examples=examples)
        found = {
            **vars(apart),
            "is_nan": _is_nan(expected),
            "near_ties": ties,
        }
    return CaseReport(
        signature=signature,
        inputs=str(probe),
        milliseconds=milliseconds,
        is_sample=probe.is_sample,
        is_extreme=bool(probe.extremes),
        examples=probe.examples,
        likelihoods=likelihoods,
        **found,
    )


def _is_nan(outputs: Mapping[str, Any]) -> bool:
    """Returns whether all numbers are NaN."""
    return all(
        "float" in value.dtype.name
        and value.size > 0
        and bool(np.isnan(value.astype("float64")).all())
        for value in outputs.values()
    )


def _is_right(case: CaseReport, reference: Reference) -> bool:
    if reference.quantization is not None:
        return math.isfinite(case.largest_difference)
    return case.largest_difference <= reference.tolerance


def _without_rounding(
    got: Mapping[str, np.ndarray], probe: Probe, reference: Reference
) -> dict[str, np.ndarray]:
    """Returns outputs with the model's where only its rounding differs.

    A model's own numbers may move by at most a hundredth of the output's size,
    unless they are extreme; beyond that nothing would be compared.
    """
    kept = dict(got)
    for name, allowed in reference.rounding_of(probe).items():
        value, wanted = got[name], probe.outputs[name]
        if value.shape != wanted.shape:
            continue
        near: Any = np.isinf(allowed)
        if wanted.dtype != object:
            scale = reference.scales[probe.signature][name]
            apart = distances(wanted, value, scale)
            assert apart is not None  # of equal shapes
            size = np.maximum(scale, np.abs(wanted.astype("float64")))
            if not probe.extremes:
                allowed = np.minimum(allowed, _MOST_ROUNDING * size)
            with np.errstate(invalid="ignore"):  # infinities, left out below
                near = (apart * size <= allowed) & (apart > reference.tolerance)
            near &= np.isfinite(wanted.astype("float64"))
        kept[name] = np.where(near, wanted, value)
    return kept


def _other_outputs(
    expected: Mapping[str, Any], response: Mapping[str, Any]
) -> str | None:
    """Returns why a response does not have the model's outputs, or None."""
    if "error" in response:
        return " ".join(response["error"].split())  # runtimes use several lines
    got = response["outputs"]
    names = {name for name in got if name in expected or not is_labels(name)}
    if names != set(expected):
        error = (
            f"its outputs are {', '.join(sorted(got))}, and the model's are "
            f"{', '.join(expected)}"
        )
        if unnumbered(got) == unnumbered(expected):
            error += (
                ". Keras numbers unnamed layers in the order in which they are "
                "made: name the output layers, as in "
                "keras.layers.Dense(2, name='scores'), and export the model "
                "again"
            )
        return error
    for name, value in expected.items():
        kinds = _kind(got[name]), _kind(value)
        if len({*kinds}) > 1:
            return "{} has {}, and the model's has {}".format(name, *kinds)
    return None


def _likelihoods(
    probe: Probe, got: Mapping[str, Any], reference: Reference
) -> tuple[Likelihoods | None, str | None]:
    """Returns likelihoods of texts, if any, and what is wrong, or None."""
    rescore = reference.rescores.get(probe.signature)
    if rescore is not None and probe.signature in reference.by_likelihood:
        return of_choices(probe.inputs, probe.outputs, got, rescore)
    is_token, error = reference.target_tokens(probe), None
    if is_token is not None and probe.signature in reference.by_likelihood:
        error = wrong_scores(got, is_token)
    is_text = probe.is_sample and "target" in probe.inputs  # not made up
    if not is_text or TOKEN_SCORE not in got:
        return None, error
    if is_token is None:
        is_token = probe.outputs[TOKEN_SCORE] != 0
    return of_targets(probe.outputs, got, probe.is_drawn, is_token), error


def _where_number(probe: Probe, got: Mapping[str, Any]) -> dict[str, Any]:
    """Returns outputs with the model's where those are NaN.

    Whatever a file gives there, a generated input is no reason to refuse it. Of
    extreme numbers only finite outputs are compared.
    """
    kept = dict(got)
    for name, value in probe.outputs.items():
        if "float" in value.dtype.name and value.shape == got[name].shape:
            is_lost = np.isnan(value.astype("float64"))
            if probe.extremes:
                is_lost = ~_is_finite(value)
            kept[name] = np.where(is_lost, value, got[name])
    return kept


def _is_finite(values: Any) -> np.ndarray:
    return np.isfinite(values.astype("float64"))  # bfloat16 too


def unnumbered(names: Iterable[str]) -> list[str]:
    """Returns names without the numbers by which Keras makes them unique."""
    return sorted(re.sub(r"_\d+$", "", name) for name in names)


def _unchecked_columns(
    reference: Reference, response: Mapping[str, Any]
) -> Iterator[str]:
    """Yields what `unchecked_columns` finds, as text."""
    pairs: dict[tuple[str, str], list[Any]] = {}
    for probe, found in zip(reference.probes, response["cases"], strict=True):
        if not probe.extremes:  # next to 1e4 every column is small
            for name, wanted in probe.outputs.items():
                both = wanted, found["outputs"][name]
                pairs.setdefault((probe.signature, name), []).append(both)
    for (signature, name), each in pairs.items():
        scale = reference.scales[signature][name]
        indices = unchecked_columns(each, scale, reference.tolerance)
        if indices:
            yield (
                f"{signature}/{name}[..., {', '.join(map(str, indices[:8]))}]"
                + f" and {len(indices) - 8} more" * (len(indices) > 8)
            )


def _kind(values: Any) -> str:
    """Returns the kind of values as text, without their size in bits."""
    if "float" in values.dtype.name:  # bfloat16 too
        return "floats"
    names = {"O": "texts", "b": "booleans", "i": "integers", "u": "integers"}
    return names.get(values.dtype.kind, values.dtype.name)


def unlike(
    name: str, got: Any, wanted: Any, inputs: Inputs, *, is_exact: bool = True
) -> tuple[str, str | None]:
    """Returns where and why two outputs have no difference, or "" and None.

    Args:
        name: Their name.
        got: The file's output.
        wanted: The model's output.
        inputs: The inputs.
        is_exact: Whether texts must be equal. Otherwise those of a generator
            are compared by their ids, and numbers must only be finite.
    """
    if got.shape != wanted.shape:
        error = f"{name} has shape {got.shape}, the model's {wanted.shape}"
        return "", error
    if not is_exact and wanted.dtype == object:
        return "", None
    if wanted.dtype == object and len(wrong := np.argwhere(got != wanted)):
        index = tuple(map(int, wrong[0]))
        where = f"{name}{[*index]}"
        texts = (
            to_bytes(texts[index]).decode(errors="replace")
            for texts in (got, wanted)
        )
        error = "{} is {!r}, the model's {!r}".format(where, *texts)
        if name.rpartition("_")[2] == CLASSES and wanted.ndim > 1:
            labels = [
                to_bytes(each).decode(errors="replace")
                for each in got[index[:-1]]
            ]
            error += (
                f". The file's labels are {reprlib.repr(labels)}: give the "
                "export's labels as `labels` (--labels)"
            )
        return where, error
    if "float" in wanted.dtype.name:
        wrong = np.argwhere(np.isnan(wanted) & ~np.isnan(got))
        if len(wrong):
            index = tuple(map(int, wrong[0]))
            where = f"{name}{[*index]}"
            error = (
                f"{where} is {got[index]:.3g}, and the model itself gives NaN "
                f"for {describe_example(inputs, wanted, index)}. {AGAINST_NAN}"
            )
            return where, error
        if not is_exact and np.any(_is_finite(wanted) & ~_is_finite(got)):
            return name, f"{name} is not finite"
    return "", None


def check(
    reference: Reference,
    inspection: Inspection,
    response: Mapping[str, Any],
    allow_operators: Sequence[str] = (),
    different_weights: Sequence[str] = (),
) -> VerificationReport:
    """Compares all outputs of an exported model with the reference.

    Args:
        reference: The model's outputs.
        inspection: The exported model.
        response: The worker's response.
        allow_operators: Operators that the user allowed.
        different_weights: As in the report.
    """
    cases = []
    for probe, found in zip(reference.probes, response["cases"], strict=True):
        if probe.is_nan:
            continue
        cases.append(compare(probe, found, reference))
        if "python" in found and _is_right(cases[-1], reference):
            _check_python(probe, found, reference, inspection.path)
    names = {signature.name for signature in reference.signatures}
    quality = qualities(
        reference.kinds,
        (
            (probe.signature, probe.outputs, found["outputs"])
            for probe, found in zip(
                reference.probes, response["cases"], strict=True
            )
            if "error" not in found
            and any(probe is each for each in reference.held)
        ),
    )
    return VerificationReport(
        path=inspection.path,
        in_float32=reference.in_float32,
        kind=inspection.kind,
        size_bytes=inspection.size_bytes,
        load_seconds=response["load_seconds"],
        foreign_operators=inspection.foreign_operators,
        unverified=sorted(
            {*inspection.signatures}.difference(names)
            | unknown_labels(reference, inspection)
            | unmeasured(reference, cases)
            | {
                f"{name} of {signature} (no number to measure)"
                for signature, kinds in reference.kinds.items()
                for name in kinds
                if f"{signature}/{name}" not in quality
            }
        ),
        tolerance=reference.tolerance,
        cases=cases,
        skipped=reference.skipped,
        constant_outputs=reference.constant_outputs,
        # A quantized file changes small columns; see `quality`.
        unchecked_columns=[]
        if reference.quantization or any(case.error for case in cases)
        else list(_unchecked_columns(reference, response)),
        limits=dict(reference.limits),
        quality=quality,
        by_likelihood=sorted(reference.by_likelihood),
        quantization=reference.quantization,
        warmup=response.get("warmup", 0),
        eager_differences=reference.eager_differences,
        padding_matters=reference.padding_matters,
        fixed_shapes=_fixed_shapes(reference, inspection),
        different_weights=[*different_weights],
        notes=[
            *notes(reference, inspection, allow_operators),
            *_without_nan(reference, response),
        ],
        compiled_model=response.get("compiled_model", ""),
    )


def kept_cases(
    reference: Reference, response: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the cases that are kept with a file that passed.

    Samples may be private: they are kept only where nothing was generated.
    """
    found = []
    generated = {
        probe.signature
        for probe in reference.probes
        if not (probe.is_sample or probe.is_nan)
    }
    for probe, own in zip(reference.probes, response["cases"], strict=True):
        if (
            probe.is_nan
            or "error" in own
            or (probe.is_sample and probe.signature in generated)
        ):
            continue
        found.append(
            make_case(
                probe.signature,
                probe.inputs,
                probe.outputs,
                own["outputs"],
                reference.scales[probe.signature],
                reference.tolerance,
                is_sample=probe.is_sample,
            )
        )
    return found


def _check_python(
    probe: Probe, found: Mapping[str, Any], reference: Reference, path: Path
) -> None:
    """Raises `ExportVerificationError` if Python gives other outputs.

    A SavedModel says by different parts of it what servers run, and what
    `tf.saved_model.load` gives.
    """
    case = compare(probe, {**found, "outputs": found["python"]}, reference)
    if not _is_right(case, reference):
        raise ExportVerificationError(
            f"'{path}' differs between servers and Python: signature "
            f"'{probe.signature}': tf.saved_model.load gives other values: "
            f"{case.error or case.where}"
        )


def _without_nan(
    reference: Reference, response: Mapping[str, Any]
) -> Iterator[str]:
    """Yields the outputs in which a file loses NaN, or adds it, as text."""
    lost: dict[str, list[str]] = {}
    for probe, found in zip(reference.probes, response["cases"], strict=True):
        for name, wanted in probe.outputs.items() if probe.is_nan else ():
            got = found.get("outputs", {}).get(name)
            if got is None or got.shape != wanted.shape:
                continue
            if "float" in wanted.dtype.name and "float" in got.dtype.name:
                both = [np.isnan(x.astype("float64")) for x in (wanted, got)]
                if np.any(both[0] & ~both[1]):
                    text = "the model gives NaN, the file gives a number"
                elif np.any(both[1] & ~both[0]):
                    text = "the model gives a number, the file gives NaN"
                else:
                    continue
                lost.setdefault(text, []).append(f"{probe.signature}/{name}")
    for text, names in lost.items():
        yield f"NaN in: {text}: {', '.join(names)}"


def unmeasured(reference: Reference, cases: Sequence[CaseReport]) -> set[str]:
    """Returns signatures of a quantized generator of which no loss is known."""
    if reference.in_engine:  # there it will be
        return set()
    known = {
        case.signature
        for case in cases
        if case.likelihoods is not None and case.likelihoods != Likelihoods()
    }
    return {
        f"{name} (no token to measure)"
        for name in reference.by_likelihood - known
    }


def _fixed_shapes(reference: Reference, inspection: Inspection) -> list[str]:
    """Returns the inputs of one shape whose model takes any, as text."""
    found = []
    for signature in reference.signatures:
        inputs = inspection.signatures[signature.name]["inputs"]
        for name, spec in signature.specs.items():
            shape, wanted = inputs[name].shape, tuple(spec.shape)
            if shape is None or len(shape) != len(wanted):
                continue
            if None not in {
                own
                for size, own in zip(shape, wanted, strict=True)
                if size is not None
            }:
                continue
            found.append(
                f"{signature.name} takes only the shape {shape} of {name}, and "
                f"the model {wanted}: if that is intended, verify it with "
                f"{in_code({signature.name: {name: shape}})}"
            )
    return found


def unknown_labels(reference: Reference, inspection: Inspection) -> set[str]:
    """Returns outputs of labels that the file has and the model lacks."""
    return {
        f"{probe.signature}/{name}"
        for probe in reference.probes
        for name in inspection.signatures[probe.signature]["outputs"]
        if is_labels(name) and name not in probe.outputs
    }


@printable_errors(longest=10**6)  # a remedy is code
def check_signatures(
    signatures: Sequence[Signature], inspection: Inspection
) -> None:
    """Raises `ValueError` if a file has other signatures or inputs."""
    for signature in signatures:
        if signature.name not in inspection.signatures:
            raise ValueError(
                f"The file has no signature '{signature.name}'. It has: "
                f"{', '.join(inspection.signatures)}. Name those to verify"
                f"{_named(signature, inspection)}"
            )
        present = inspection.signatures[signature.name]["inputs"]
        if set(present) != set(signature.specs):
            hint = ""
            if unnumbered(present) == unnumbered(signature.specs):
                begin = ", ".join(
                    input_code(spec.shape, spec.dtype, f"x{index or ''}")
                    for index, spec in enumerate(signature.specs.values())
                )
                hint = (
                    ". Keras numbers unnamed inputs in the order in which they "
                    f"are made: name them where the model is built, `{begin}`, "
                    "and export it again"
                )
            raise ValueError(
                f"Signature '{signature.name}' of the file takes "
                f"{', '.join(present)}, and the model takes "
                f"{', '.join(signature.specs)}{hint}"
            )


def _named(signature: Signature, inspection: Inspection) -> str:
    """Returns the `signatures` argument for the file's signatures that fit."""
    found = {
        name: {
            key: tensor.shape or signature.specs[key].shape
            for key, tensor in sides["inputs"].items()
        }
        for name, sides in inspection.signatures.items()
        if set(sides["inputs"]) == set(signature.specs)
    }
    return f": {in_code(found)}" if found else " by `signatures` (--signature)"


_TIMEOUT = 600  # seconds by the clock, long enough on a busy machine


def limits_of(reference: Reference | None, inspection: Inspection) -> Limits:
    """Returns a worker's limits, by what the model itself needed.

    Without a reference, these are the limits for loading.
    """
    sizes = [
        value.nbytes
        for probe in (reference.probes if reference else [])
        for value in (*probe.inputs.values(), *probe.outputs.values())
    ]
    seconds = reference.seconds if reference else 0.0
    # A SavedModel is loaded twice: as servers do, and as Python does.
    is_twice = inspection.kind == "saved_model"
    # TensorFlow copies and packs constants for every signature that is run.
    constants = inspection.weight_bytes
    if not is_twice or inspection.has_variables:
        constants = 0
    return Limits(
        memory=MEMORY
        + 512 * MIB * is_twice
        + 4 * (inspection.size_bytes + sum(sizes))
        + _room(24 * constants)
        + 2 * max(0, _peak_memory() - 1024 * MIB),
        # The worker loads TensorFlow and runs each case up to six times.
        seconds=12
        + 6 * is_twice
        + inspection.size_bytes // (20 * MIB)
        + constants // (3 * MIB)
        + round(8 * seconds),
        file=64 * MIB + 4 * sum(sizes),
        timeout=_TIMEOUT,
    )


def _room(size: int) -> int:
    """Returns a size in bytes, at most that of this machine's memory."""
    try:
        return min(
            size, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        )
    except (AttributeError, OSError, ValueError):  # Windows
        return size


def _peak_memory() -> int:
    """Returns the most memory that this process had, in bytes; 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
