"""The proof that an artifact gives its model's own answers."""

import base64
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts import worker
from keras_posenc.artifacts.contents import compare_contents, contents_of
from keras_posenc.artifacts.differences import Columns, difference
from keras_posenc.artifacts.errors import ExportVerificationError, in_words
from keras_posenc.artifacts.expectations import Case, Expectations, expect
from keras_posenc.artifacts.float32 import to_float32
from keras_posenc.artifacts.inspection import Inspection, inspect, locate
from keras_posenc.artifacts.isolation import (
    MEMORY,
    MIB,
    Isolated,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc.artifacts.keras_int8 import is_quantized
from keras_posenc.artifacts.labels import is_labels
from keras_posenc.artifacts.litert_proof import compare_with_file
from keras_posenc.artifacts.onnx_proof import compare_with_conversion
from keras_posenc.artifacts.quantization import BY_KERAS
from keras_posenc.artifacts.report import CaseReport, VerificationReport
from keras_posenc.artifacts.samples import without_unknown_ids
from keras_posenc.artifacts.saved_model_session import Contents
from keras_posenc.artifacts.serving_signatures import (
    resolve_serving_signatures,
)
from keras_posenc.artifacts.shared_layers import trace_all
from keras_posenc.artifacts.signatures import (
    Signature,
    check_model,
    resolve_numeric_signatures,
)
from keras_posenc.artifacts.snapshot import snapshot
from keras_posenc.artifacts.staging import working_folder, writing_to
from keras_posenc.artifacts.task_metadata import packed_task
from keras_posenc.artifacts.task_verification import verify_in_mediapipe
from keras_posenc.artifacts.versions import check_no_pattern

_TIMEOUT = 600  # seconds by the clock, on a machine however busy
_TIMES = 5
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # A GPU's memory is this process's already.
    "CUDA_VISIBLE_DEVICES": "-1",
}


def verify(
    model: keras.Model,
    artifact: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
    samples: Any = None,
    max_length: int = 512,
    tolerance: float | None = None,
    agreement: float | None = None,
    allow_operators: Sequence[str] = (),
) -> VerificationReport:
    """Compares an artifact's answers with its model's.

    A fresh process, in which neither keras nor keras_posenc can be imported
    (nor TensorFlow, for a LiteRT file), loads the artifact and runs a grid of
    batches: sizes of 1 and 3; lengths of 1, 2, 17 and `max_length`; rows that
    are padded, and rows that are nothing but padding; the lowest and the
    highest id that an input's `Embedding` takes; of what a lookup layer takes,
    its vocabulary. A NaN equals a NaN. `model` is
    not touched: asked is a copy of it as it was at the call.

    A SavedModel is asked as a server asks it, by a session of its
    `signature_def`; `tf.saved_model.load` must give the same. The weights, the
    tables and the constants of each signature are compared as well, bit for
    bit, and so is the graph that computes with them, operator by operator:
    `VerificationReport.altered` names what is not the model's.

    A LiteRT file is compared with what the model becomes when it is converted
    again, in the file's mode: operator by operator, each number of it bit for
    bit, quantized ones with their scales. `VerificationReport.folded` names
    what could not be: in `"int8-static"` the ranges that it was calibrated to;
    the last bits of what the converter computed on another processor; and, of
    a file of another converter, all but the weights that it keeps as they are.

    Args:
        model: The model that was exported.
        artifact: The LiteRT file, the SavedModel folder, or the folder of its
            versions, of which the highest is taken.
        signatures: Those given to the export, if any. Else those that the
            export makes by itself are compared, as far as they are there.
        labels: Those given to the export, if any, of a SavedModel or of a
            file for MediaPipe's text classifier. Else the labels of an
            artifact that has some are not compared, as the report says.
        samples: Further inputs: an array, a dict of arrays by input name, a
            text, or a list of these. They are required where the model takes
            integers and has neither `Embedding` nor lookup to say which.
        max_length: The longest sequence. Inputs with several dynamic axes
            besides the batch (images, volumes) go as far along each of them,
            or until they hold 2**23 numbers: 512 by 512 pixels of 3 channels,
            but 35 by 35 by 35 cells of 64.
        tolerance: The largest difference that passes: relative to the model's
            number where that is above 1, else to the largest number of that
            output (or 1, or 0.01). Integers and strings must be equal. By
            default 1e-5, and for a quantized file also 6 (float16), 12 (int8)
            or 24 (int8-static) times as far as the model's answers usually
            move when its weights do, at random, by up to half a step of that
            rounding. A quantized file is held to the samples, if there are
            any: elsewhere it must be finite. Of integers the share that
            differs is what counts then.
        agreement: The least share of rows in which a quantized file's largest
            score must be the model's, 0.99 by default. Rows count where that
            score leads by more than the rounding usually moves it and the
            second: a third of what `tolerance` adds by default.
        allow_operators: As for `export_saved_model`.

    Returns:
        A `VerificationReport`; print it, or ask `passed`.

    Raises:
        ValueError: No artifact at the path, a signature that it does not have,
            or inputs that the model itself does not take.
        ExportVerificationError: The artifact does not load, crashes or hangs,
            does more than compute, or is one model for servers and another for
            Python. Or an ONNX file gives the model's answers, but does not
            hold, bit for bit, its weights, or the other numbers that it
            computes with.
    """
    require_tensorflow_backend("verify")
    check_operators(allow_operators)
    check_model(model)
    path, kind = locate(artifact)
    if kind == "saved_model":
        check_no_pattern(path)
    inspection = inspect_safe(path, allow_operators)
    model, signatures = snapshot(model, signatures)
    if inspection.kind == "saved_model":
        resolved = resolve_serving_signatures(model, signatures, labels)
        if signatures is None:
            resolved = without_unknown_ids(
                _present(resolved, inspection), samples
            )
        with start_tensorflow() as runtime:
            expectations = expect(
                resolved, samples, max_length, tolerance, agreement=agreement
            )
            return verify_expectations(
                expectations,
                inspection,
                runtime,
                lambda: contents_of(resolved, trace_all(resolved)),
            )
    task, unverified = packed_task(model, path, signatures, labels)
    resolved = (
        resolve_numeric_signatures(model, signatures)
        if task is None
        else [task.signature]
    )
    quantization = (
        BY_KERAS if is_quantized(resolved) else inspection.quantization
    )
    expectations = expect(
        resolved,
        samples,
        max_length,
        tolerance,
        to_float32(resolved),
        quantization,
        task,
        agreement,
    )
    report = verify_expectations(expectations, inspection)
    if report.passed and inspection.kind == "onnx":
        unverified += compare_with_conversion(resolved, inspection.path)
    if report.passed and inspection.kind == "litert":
        altered, folded = compare_with_file(expectations, inspection)
        report = dataclasses.replace(report, altered=altered, folded=folded)
    if task is not None and report.passed:
        verify_in_mediapipe(path, task, expectations)
    return dataclasses.replace(
        report, unverified=[*report.unverified, *unverified]
    )


def start_tensorflow() -> Isolated:
    """A runtime for SavedModels, which loads while the model is asked."""
    return Isolated(worker.__file__, ["saved_model"], **_ENVIRONMENT)


def load_ahead(runtime: Isolated, artifact: Path) -> None:
    """Lets TensorFlow load a SavedModel of one's own before it is asked."""
    runtime.prepare("saved_model", str(artifact.resolve()), _op_libraries())


def verify_expectations(
    expectations: Expectations,
    inspection: Inspection,
    runtime: Isolated | None = None,
    contents: Callable[[], Mapping[str, Contents]] | None = None,
    is_own: bool = False,
) -> VerificationReport:
    """`verify`, for a model that has given its answers already.

    Args:
        expectations: The model's answers.
        inspection: The artifact.
        runtime: What was started to run it.
        contents: Gives what a SavedModel's signatures should be made of.
        is_own: Whether it was written just now. Python need not be asked then:
            that it runs the same functions of the same values is seen anyway.
    """
    _check_signatures(expectations, inspection)
    kind = inspection.kind
    if kind == "litert" and inspection.foreign_operators:
        kind = "litert_flex"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            _run_worker,
            kind,
            inspection.path,
            expectations.cases,
            _limits(expectations, inspection),
            runtime,
            by_python=not is_own,
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
    folded: list[str] = []
    if own is not None:
        _check_readers(expectations, response, outputs)
        altered, folded = compare_contents(
            own,
            response["contents"],
            response["version"] == _tensorflow_version(),
            {each.partition("/")[0] for each in labels},
        )
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
            | {f"{name} (Python's alone)" for name in response.get("more", [])}
        ),
        tolerance=expectations.tolerance,
        cases=[
            _compare(
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
        unseen=_unseen(columns, expectations.tolerance)
        if expectations.quantization is None
        else [],
        lead=expectations.lead,
        agreement=expectations.agreement,
        quantization=expectations.quantization,
        warmup=response.get("warmup", 0),
        padding_matters=expectations.padding_matters,
        narrower=_narrower(expectations, inspection),
        altered=altered,
        folded=folded,
    )


def _check_readers(
    expectations: Expectations,
    response: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> None:
    """Raises `ExportVerificationError` where Python is answered otherwise."""
    scales = expectations.scales
    for index, answer in response["by_python"].items():
        case = expectations.cases[int(index)]
        served = response["cases"][int(index)]
        if "error" in served:
            continue  # which is told in its place
        answers = {
            name: _output(value, outputs)
            for name, value in served["outputs"].items()
        }
        found = _compare(
            dataclasses.replace(case, answers=answers),
            # The artifact may be of another model, with other outputs.
            {**dict.fromkeys(answers, 1.0), **scales[case.signature]},
            answer,
            outputs,
            expectations,
            Columns(),
        )
        if found.worst_difference > expectations.tolerance:
            raise ExportVerificationError(
                "The artifact answers servers and Python differently: "
                f"signature '{case.signature}', {case}: "
                + (
                    found.error
                    or f"{found.worst_output} differs by "
                    f"{found.worst_difference:.3g}"
                )
            )


def _tensorflow_version() -> str:
    import tensorflow as tf

    return tf.__version__


def check_loads(artifact: Path, allow_operators: Sequence[str]) -> None:
    """Loads a SavedModel, as a server would, and replays its warm-up.

    Raises:
        ExportVerificationError: It does not load, or does more than compute.
    """
    inspection = inspect_safe(artifact, allow_operators)
    limits = Limits(
        # What its warm-up needs, nobody knows here.
        memory=MEMORY + 4 * inspection.size_bytes + 4096 * MIB,
        seconds=_TIMEOUT,
        timeout=_TIMEOUT,
    )
    _run_worker("saved_model", inspection.path, [], limits, None)


def check_operators(allow_operators: Any) -> None:
    """Raises `ValueError` for what are no names of operators."""
    if isinstance(allow_operators, str) or not (
        isinstance(allow_operators, Sequence)
        and all(isinstance(name, str) for name in allow_operators)
    ):
        raise ValueError(
            "`allow_operators` must be a list of the names of operators. "
            f"Received: allow_operators={allow_operators!r}"
        )


def inspect_safe(
    artifact: Path, allow_operators: Sequence[str] = ()
) -> Inspection:
    """`inspect`, of an artifact that is going to be run or published.

    Raises:
        ExportVerificationError: It cannot be read, or does more than compute.
    """
    try:
        inspection = inspect(artifact)
    except ValueError as error:  # it is there, and cannot be read
        raise ExportVerificationError(str(error)) from error
    unsafe = set(inspection.unsafe_operators).difference(allow_operators)
    if unsafe:
        names = sorted(unsafe)
        raise ExportVerificationError(
            "An artifact may only compute, and not run Python, read or write "
            "files, or talk to others. This one has the operators "
            f"{', '.join(names)}. If you know what they do, and trust it: "
            f"allow_operators={names} (--allow-op {' --allow-op '.join(names)})"
        )
    return inspection


def _limits(expectations: Expectations, inspection: Inspection) -> Limits:
    """What its runtime may use, by what the model itself used."""
    sizes = [
        value.nbytes
        for case in expectations.cases
        for value in (*case.inputs.values(), *case.answers.values())
    ]
    # A SavedModel is loaded twice: as servers do, and as Python does.
    is_twice = inspection.kind == "saved_model"
    return Limits(
        memory=MEMORY
        + 512 * MIB * is_twice
        + 4 * (inspection.size_bytes + sum(sizes))
        + 2 * max(0, _peak_memory() - 1024 * MIB),
        # The worker asks up to six times, and first loads TensorFlow.
        seconds=12
        + 6 * is_twice
        + inspection.size_bytes // (20 * MIB)
        + round(8 * expectations.seconds),
        file=64 * MIB + 4 * sum(sizes),
        timeout=_TIMEOUT,
    )


def _peak_memory() -> int:
    """The most memory that this process had, in bytes; 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


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
            sizes = "x".join(
                "?" if each is None else f"{each}" for each in shape
            )
            found.append(
                f"{signature.name} takes {name} of shape {shape} alone, and "
                f"the model of {wanted}: if that is meant, verify it by "
                f"signatures={{'{signature.name}': (model, {{'{name}': "
                f"{shape}}})}} (--signature {signature.name}={name}:{sizes})"
            )
    return found


def _present(
    signatures: Sequence[Signature], inspection: Inspection
) -> list[Signature]:
    """The default signatures, without those made by itself but not there.

    An artifact may be of signatures that were given.
    """
    found = inspection.signatures
    default, *more = signatures
    return [
        default,
        *(
            signature
            for signature in more
            if signature.name in found
            and set(found[signature.name]["inputs"]) == set(signature.specs)
        ),
    ]


def _unknown_labels(
    expectations: Expectations, inspection: Inspection
) -> set[str]:
    """Outputs of labels that the artifact has, and the model has not."""
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
                f"{', '.join(inspection.signatures)}. `signatures` "
                "(--signature) names those to verify"
            )
        present = inspection.signatures[signature.name]["inputs"]
        if set(present) != set(signature.specs):
            raise ValueError(
                f"The artifact's signature '{signature.name}' takes "
                f"{', '.join(present)}, and the model "
                f"{', '.join(signature.specs)}"
            )


def check_verify(verify: bool, samples: Any) -> None:
    """Raises `ValueError` for samples that nothing would be done with."""
    if samples is not None and not verify:
        raise ValueError(
            "`samples` are to verify with. Received: samples, verify=False"
        )


def require_tensorflow_backend(function: str) -> None:
    """Raises `RuntimeError` on another backend, and says what to do."""
    backend = keras.config.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"`{function}` needs the TensorFlow backend, and this is "
            f"'{backend}'. Save the model by model.save('model.keras'), then "
            "run: keras-posenc export saved-model model.keras --out FOLDER "
            "(or export litert model.keras --out FILE.tflite)"
        )


def _run_worker(
    kind: str,
    artifact: Path,
    cases: Sequence[Case],
    limits: Limits,
    runtime: Isolated | None,
    by_python: bool = False,
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    with working_folder() as folder, writing_to(folder.parent):
        arrays = {}
        requests = []
        for index, case in enumerate(cases):
            references: dict[str, Any] = {}
            for input_name, value in case.inputs.items():
                if value.dtype == object:
                    references[input_name] = {
                        "shape": value.shape,
                        "strings": [
                            base64.b64encode(_to_bytes(text)).decode()
                            for text in value.ravel()
                        ],
                    }
                else:
                    if value.dtype.name == "bfloat16":  # unknown to npz files
                        value = value.astype("float32")
                    key = f"{index}/{input_name}"
                    arrays[key] = value
                    references[input_name] = key
            requests.append({"signature": case.signature, "inputs": references})
        np.savez(folder / "inputs.npz", allow_pickle=False, **arrays)
        (folder / "request.json").write_text(
            json.dumps(
                {
                    "kind": kind,
                    "artifact": str(artifact.resolve()),
                    "op_libraries": _op_libraries(),
                    "times": _TIMES,
                    "by_python": by_python,
                    "cases": requests,
                }
            )
        )
        try:
            if runtime is None:
                run_isolated(
                    worker.__file__,
                    str(folder),
                    limits=limits,
                    prepared=[kind],
                    **_ENVIRONMENT,
                )
            else:
                runtime.run(str(folder), limits=limits)
            if not (folder / "response.json").exists():
                raise IsolationError("failed (without an answer)")
        except IsolationError as error:
            raise ExportVerificationError(
                f"The runtime {error} while it ran '{artifact}'"
            ) from error
        response = json.loads((folder / "response.json").read_text())
        if "error" in response:
            kind, _, reason = response["error"].partition(": ")
            if kind == "Disagreement":
                raise ExportVerificationError(
                    f"'{artifact}' is not the same to servers and to Python: "
                    f"{reason}"
                )
            raise ExportVerificationError(
                f"'{artifact}' does not load: {in_words(response['error'])}"
            )
        with np.load(folder / "outputs.npz") as outputs:
            return response, dict(outputs)


def _compare(
    case: Case,
    scales: Mapping[str, float],
    answer: Mapping[str, Any],
    outputs: Mapping[str, Any],
    expectations: Expectations,
    columns: Columns,
) -> CaseReport:
    signature, description, expected = case.signature, str(case), case.answers
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
    if error is not None:
        return CaseReport(signature, description, math.inf, "", 0.0, error)
    got = {}
    for name in expected:
        got[name] = _output(answer["outputs"][name], outputs)
        where, error = _unlike(name, got[name], expected[name])
        if error is not None:
            return CaseReport(
                signature, description, math.inf, where, 0.0, error
            )
        columns.add(
            f"{signature}/{name}", expected[name], got[name], scales[name]
        )
    is_rounded = expectations.quantization is not None
    found = difference(expected, got, scales, is_rounded, expectations.lead)
    return CaseReport(
        signature,
        description,
        found.worst,
        found.where,
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
    )


def _unseen(columns: Columns, tolerance: float) -> list[str]:
    """Columns of which too little was seen, in words."""
    return [
        f"{name}[..., {', '.join(map(str, indices[:8]))}]"
        + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")
        for name, indices in columns.unseen(tolerance).items()
    ]


def _output(reference: Any, outputs: Mapping[str, Any]) -> Any:
    """The array that an answer of the worker refers to."""
    if isinstance(reference, str):
        return outputs[reference]
    texts = [base64.b64decode(text) for text in reference["strings"]]
    return np.array(texts, dtype=object).reshape(reference["shape"])


def _unlike(name: str, got: Any, wanted: Any) -> tuple[str, str | None]:
    """Where and why two outputs have no distance, if they have none."""
    if got.shape != wanted.shape:
        error = f"{name} has shape {got.shape}, the model's {wanted.shape}"
        return "", error
    if wanted.dtype == object and len(wrong := np.argwhere(got != wanted)):
        index = tuple(map(int, wrong[0]))
        where = f"{name}{[*index]}"
        texts = (
            _to_bytes(texts[index]).decode(errors="replace")
            for texts in (got, wanted)
        )
        return where, "{} is {!r}, the model's {!r}".format(where, *texts)
    return "", None


def _op_libraries() -> list[str]:
    """Files of TF-Text's operators, found without importing it."""
    spec = util.find_spec("tensorflow_text")
    if spec is None or not spec.submodule_search_locations:
        return []
    (folder, *_) = spec.submodule_search_locations
    return sorted(
        str(path) for path in Path(folder, "python", "ops").glob("_*.so")
    )


def _to_bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()
