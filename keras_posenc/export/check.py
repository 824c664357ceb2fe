"""Runs an exported model and compares its outputs with the model's."""

import json
import math
import re
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.graphs.contents import compare_contents
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.cases import Case, Expectations
from keras_posenc.export.probes.compare import Columns, difference, settled
from keras_posenc.export.probes.generate import but_for_rounding
from keras_posenc.export.processes import Isolated
from keras_posenc.export.report import CaseReport, VerificationReport, notes
from keras_posenc.export.signatures.labels import is_labels
from keras_posenc.export.signatures.names import in_code, input_code
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import (
    ask,
    limits_of,
)
from keras_posenc_worker.codec import decode, to_bytes


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
    got = {name: decode(answer["outputs"][name], outputs) for name in expected}
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


def verify_expectations(
    expectations: Expectations,
    inspection: Inspection,
    runtime: Isolated | None = None,
    contents: Callable[[], Mapping[str, Any]] | None = None,
    allow_operators: Sequence[str] = (),
    other_writer: bool = False,
) -> VerificationReport:
    """`verify`, for a model that has given its answers already.

    Args:
        expectations: The model's answers.
        inspection: The artifact.
        runtime: What was started to run it.
        contents: Gives what a SavedModel's signatures should be made of.
        allow_operators: Those that the user allowed it.
        other_writer: As for `verify`.
    """
    _check_signatures(expectations, inspection)
    kind = inspection.kind
    if kind == "litert" and inspection.foreign_operators:
        kind = "litert_flex"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            ask,
            kind,
            inspection.path,
            expectations.cases,
            limits_of(expectations, inspection),
            runtime,
        )
        own = None if contents is None else contents()  # meanwhile
        response, outputs = running.result()
    if any(
        "Flex delegate" in case.get("error", "") for case in response["cases"]
    ):
        raise ExportVerificationError(
            "The file needs operators of TensorFlow's own "
            f"({', '.join(inspection.foreign_operators)}), and the interpreter "
            "installed here has no Flex delegate to run them. Export with "
            "verify=False (--no-verify), and verify where there is one"
        )
    scales = expectations.scales
    columns = Columns()
    labels = _unknown_labels(expectations, inspection)
    altered: list[str] = []
    rewritten: list[str] = []
    folded: list[str] = []
    if own is not None:
        altered, rewritten, folded = compare_contents(
            own,
            response["contents"],
            {each.partition("/")[0] for each in labels},
        )
        if rewritten and response["version"] != _tensorflow_version():
            rewritten[-1] += (
                f" (it says that TensorFlow {response['version']} wrote it, "
                f"and this is {_tensorflow_version()})"
            )
    altered += _serve(expectations, labels, response)
    names = {signature.name for signature in expectations.signatures}
    return VerificationReport(
        path=inspection.path,
        in_float32=expectations.in_float32,
        kind=inspection.kind,
        size_bytes=inspection.size_bytes,
        load_seconds=response["load_seconds"],
        foreign_operators=inspection.foreign_operators,
        unverified=sorted(
            {*inspection.signatures}.difference(names)
            | labels
            | {
                f"{name} (for Python only)"
                for name in response.get("python_functions", [])
            }
        ),
        tolerance=expectations.tolerance,
        cases=[
            compare(
                case,
                scales[case.signature],
                answer,
                outputs,
                expectations,
                columns,
            )
            for case, answer in zip(
                expectations.cases, response["cases"], strict=True
            )
        ],
        refused=expectations.refused,
        constant=expectations.constant,
        blurred=expectations.blurred,
        # Of a quantized file, `accuracy` says how much is left.
        unseen=unseen_columns(columns, expectations.tolerance)
        if expectations.quantization is None
        else [],
        lead=expectations.lead,
        agreement=expectations.agreement,
        kinds={
            f"{signature}/{name}": str(kind)
            for signature, kinds in expectations.kinds.items()
            for name, kind in kinds.items()
        },
        allowed_losses=dict(expectations.allowed_losses),
        quantization=expectations.quantization,
        warmup=response.get("warmup", 0),
        padding_matters=expectations.padding_matters,
        narrower=_narrower(expectations, inspection),
        altered=altered,
        rewritten=rewritten,
        folded=folded,
        other_writer=other_writer,
        notes=list(notes(expectations, inspection, allow_operators)),
    )


def _serve(
    expectations: Expectations,
    labels: Collection[str],
    response: Mapping[str, Any],
) -> Iterator[str]:
    """How `serve` takes or returns other structures than the model, in words.

    That it computes what its signature does is known where it was loaded.
    """
    found = response.get("serve")
    for signature in expectations.signatures:
        if found is None or not signature.has_serve:
            continue
        if found["arguments"] != _as_json([signature.arguments, {}]):
            yield "the inputs of 'serve' are in another order or structure"
        outputs = dict(response["contents"][signature.name]["graph"])
        del outputs[""]
        if not any(each.startswith(f"{signature.name}/") for each in labels):
            names = {
                name: None
                for case in expectations.cases
                if case.signature == signature.name
                for name in case.answers
            }
            outputs = signature.pack({**names, **outputs})
        if found["results"] != _as_json(outputs):
            yield "the outputs of 'serve' are in another order or structure"


def _as_json(structure: Any) -> Any:
    """A structure of texts, as it comes from the worker."""
    return json.loads(json.dumps(structure))


def _tensorflow_version() -> str:
    import tensorflow as tf

    return tf.__version__


def _narrower(expectations: Expectations, inspection: Inspection) -> list[str]:
    """Inputs of one shape only, where the signature is for any, in words."""
    found = []
    for signature in expectations.signatures:
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
                f"{signature.name} takes {name} of shape {shape} alone, and "
                f"the model of {wanted}: if that is intended, verify it by "
                f"{in_code({signature.name: {name: shape}})}"
            )
    return found


def _unknown_labels(
    expectations: Expectations, inspection: Inspection
) -> set[str]:
    """Outputs of labels that the artifact has and the model does not."""
    return {
        f"{case.signature}/{name}"
        for case in expectations.cases
        for name in inspection.signatures[case.signature]["outputs"]
        if is_labels(name) and name not in case.answers
    }


def _check_signatures(
    expectations: Expectations, inspection: Inspection
) -> None:
    """Raises `ValueError` where the artifact is of another model."""
    for signature in expectations.signatures:
        if signature.name not in inspection.signatures:
            raise ValueError(
                f"The artifact has no signature '{signature.name}'. It has: "
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
                    ". Keras numbers inputs without a name in the order in "
                    "which they are made: name them where the model is built, "
                    f"`{begin}`, and export it again"
                )
            raise ValueError(
                f"The artifact's signature '{signature.name}' takes "
                f"{', '.join(present)}, and the model "
                f"{', '.join(signature.specs)}{hint}"
            )


def _named(signature: Signature, inspection: Inspection) -> str:
    """The artifact's signatures that take what this one does, as arguments."""
    found = {
        name: {
            key: tensor.shape or signature.specs[key].shape
            for key, tensor in sides["inputs"].items()
        }
        for name, sides in inspection.signatures.items()
        if set(sides["inputs"]) == set(signature.specs)
    }
    return f": {in_code(found)}" if found else " by `signatures` (--signature)"
