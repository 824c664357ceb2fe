"""The proof that an artifact gives its model's own answers."""

import base64
import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts import worker
from keras_posenc.artifacts.errors import ExportVerificationError
from keras_posenc.artifacts.float32 import float32_policies
from keras_posenc.artifacts.inspection import inspect, locate
from keras_posenc.artifacts.samples import (
    Inputs,
    check_samples,
    fitting_samples,
    make_cases,
)
from keras_posenc.artifacts.signatures import (
    Signature,
    flatten_layers,
    resolve_numeric_signatures,
    resolve_signatures,
    trace,
)

_TIMEOUT = 600  # seconds; a run takes some seconds
_REPEATS = 5


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
    """

    signature: str
    inputs: str
    worst_difference: float
    worst_output: str
    milliseconds: float
    error: str | None = None
    is_nan: bool = False


@dataclasses.dataclass(frozen=True)
class VerificationReport:
    """What a fresh process found when it ran an artifact.

    Attributes:
        path: The artifact.
        kind: `"saved_model"` or `"litert"`.
        size_bytes: Its size.
        load_seconds: Time to load it.
        foreign_operators: Operators that the plain runtime does not have.
        unverified: Signatures of the artifact that were not compared.
        tolerance: The largest difference that passes.
        cases: One `CaseReport` for each batch of inputs.
        refused: Batches, in words, that the model itself does not take, such
            as sequences shorter than a convolution.
        constant: Outputs that hardly depend on what came in, such as scores
            of a saturated softmax: that they agree says little.
    """

    path: Path
    kind: str
    size_bytes: int
    load_seconds: float
    foreign_operators: list[str]
    unverified: list[str]
    tolerance: float
    cases: list[CaseReport]
    refused: list[str] = dataclasses.field(default_factory=list)
    constant: list[str] = dataclasses.field(default_factory=list)

    @property
    def worst(self) -> CaseReport:
        """The case with the largest difference."""
        return max(self.cases, key=lambda case: case.worst_difference)

    @property
    def worst_difference(self) -> float:
        """The largest difference of all cases."""
        return self.worst.worst_difference

    @property
    def passed(self) -> bool:
        """Whether every difference is within the tolerance.

        Answers that are NaN throughout, equal as they are, prove nothing.
        """
        return self.worst_difference <= self.tolerance and not all(
            case.is_nan for case in self.cases
        )

    def require_success(self) -> None:
        """Raises `ExportVerificationError` with the worst case, if any."""
        if self.passed:
            return
        worst = self.worst
        if worst.worst_difference <= self.tolerance:
            raise ExportVerificationError(
                "The model answers nothing but NaN, which verifies nothing",
                self,
            )
        failed = sum(
            not case.worst_difference <= self.tolerance for case in self.cases
        )
        reason = worst.error or (
            f"{worst.worst_output} differs by {worst.worst_difference:.3g}, "
            f"and {self.tolerance:.3g} is allowed"
        )
        raise ExportVerificationError(
            f"The artifact does not give the model's answers in {failed} of "
            f"{len(self.cases)} cases. The worst: signature "
            f"'{worst.signature}', {worst.inputs}: {reason}",
            self,
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as what JSON can hold."""
        return {
            **dataclasses.asdict(self),
            "path": str(self.path),
            "passed": self.passed,
            "worst_difference": _jsonable(self.worst_difference),
            "cases": [
                {
                    **dataclasses.asdict(case),
                    "worst_difference": _jsonable(case.worst_difference),
                }
                for case in self.cases
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {'verified' if self.passed else 'WRONG'}, worst "
            f"difference {self.worst_difference:.2g} in {len(self.cases)} "
            f"cases, {self.size_bytes / 1e6:.2f} MB, loaded in "
            f"{self.load_seconds:.2f} s"
        ]
        if self.foreign_operators:
            lines.append(
                f"needs operators beyond the plain runtime: "
                f"{', '.join(self.foreign_operators)}"
            )
        if self.constant:
            lines.append(
                "says little, since the model's answers hardly depend on the "
                f"inputs: {', '.join(self.constant)}"
            )
        if self.refused:
            lines.append(
                f"not tried, as the model does not take it: "
                f"{'; '.join(self.refused)}"
            )
        if self.unverified:
            lines.append(f"not verified: {', '.join(self.unverified)}")
        lines += [
            f"  {case.signature}, {case.inputs}: "
            + (
                case.error
                or f"{case.worst_difference:.2g}, {case.milliseconds:.2f} ms"
            )
            for case in self.cases
        ]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An exported model.

    Attributes:
        path: The version folder or file.
        report: What its verification found, or None if it was not verified.
    """

    path: Path
    report: VerificationReport | None

    @classmethod
    def published(
        cls, path: Path, report: VerificationReport | None
    ) -> "Artifact":
        """An artifact that was verified elsewhere and now stands at `path`."""
        if report is not None:
            report = dataclasses.replace(report, path=path)
        return cls(path, report)


def verify(
    model: keras.Model,
    artifact: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    samples: Any = None,
    max_length: int = 512,
    tolerance: float = 1e-5,
) -> VerificationReport:
    """Compares an artifact's answers with its model's.

    A fresh process, in which neither keras nor keras_posenc can be imported
    (nor TensorFlow, for a LiteRT file), loads the artifact and runs a grid of
    batches: sizes of 1 and 3; lengths of 1, 2, 17 and `max_length`; rows that
    are padded, and rows that are nothing but padding; the lowest and the
    highest id that the smallest `Embedding` takes. A NaN equals a NaN.

    Args:
        model: The model that was exported.
        artifact: The LiteRT file, the SavedModel folder, or the folder of its
            versions, of which the highest is taken.
        signatures: Those given to the export, if any.
        samples: Further inputs: an array, a dict of arrays by input name, or a
            list of these. They are required where the model takes integers and
            has no `Embedding` to say how large they may be.
        max_length: The longest sequence.
        tolerance: The largest difference that passes: relative to the model's
            number where that is above 1, else to the largest number of that
            output (or 1, or 0.01). Integers and strings must be equal.

    Returns:
        A `VerificationReport`; print it, or ask `passed`.

    Raises:
        ValueError: No artifact at the path, a signature that it does not have,
            or inputs that the model itself does not take.
        ExportVerificationError: The artifact does not load.
    """
    require_tensorflow_backend("verify")
    path, kind = locate(artifact)
    if kind == "saved_model":
        resolved = resolve_signatures(model, signatures)
        context: Any = contextlib.nullcontext()
    else:
        resolved = resolve_numeric_signatures(model, signatures)
        context = float32_policies(resolved)
    with context:
        return verify_signatures(resolved, path, samples, max_length, tolerance)


def verify_signatures(
    signatures: Sequence[Signature],
    artifact: Path,
    samples: Any = None,
    max_length: int = 512,
    tolerance: float = 1e-5,
) -> VerificationReport:
    """`verify`, for signatures that are resolved already."""
    if (
        isinstance(max_length, bool)
        or not isinstance(max_length, int)
        or max_length < 1
    ):
        raise ValueError(
            "`max_length` must be an integer above 0. "
            f"Received: max_length={max_length!r}"
        )
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
        raise ValueError(
            "`tolerance` must be a finite number of at least 0. "
            f"Received: tolerance={tolerance!r}"
        )
    check_samples(signatures, samples)
    try:
        inspection = inspect(artifact)
    except ValueError as error:  # it is there, and cannot be read
        raise ExportVerificationError(str(error)) from error
    present = inspection.signatures
    for signature in signatures:
        if signature.name not in present:
            raise ValueError(
                f"The artifact has no signature '{signature.name}'. It has: "
                f"{', '.join(present)}"
            )
    cases, expected, refused = _model_answers(signatures, samples, max_length)
    kind = inspection.kind
    if kind == "litert" and inspection.foreign_operators:
        kind = "litert_flex"
    response, outputs = _run_worker(kind, inspection.path, cases)
    if any(
        "Flex delegate" in case.get("error", "") for case in response["cases"]
    ):
        raise ExportVerificationError(
            "The file needs operators of TensorFlow's own "
            f"({', '.join(inspection.foreign_operators)}), and the interpreter "
            "installed here has no Flex delegate to run them. Export with "
            "verify=False (--no-verify), and verify where there is one"
        )
    scales = {
        signature.name: _scales(
            [
                wanted
                for (other, _), wanted in zip(cases, expected, strict=True)
                if other is signature
            ]
        )
        for signature in signatures
    }
    return VerificationReport(
        path=artifact,
        kind=inspection.kind,
        size_bytes=inspection.size_bytes,
        load_seconds=response["load_seconds"],
        foreign_operators=inspection.foreign_operators,
        unverified=sorted(set(present) - {s.name for s in signatures}),
        tolerance=tolerance,
        cases=[
            _compare(
                signature.name, inputs, wanted, scales[signature.name], *answer
            )
            for (signature, inputs), wanted, answer in zip(
                cases,
                expected,
                ((case, outputs) for case in response["cases"]),
                strict=True,
            )
        ],
        refused=refused,
        constant=_constant_outputs(cases, expected, tolerance),
    )


def require_tensorflow_backend(function: str) -> None:
    """Raises `RuntimeError` on another backend, and says what to do."""
    backend = keras.config.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"`{function}` needs the TensorFlow backend, and this is "
            f"'{backend}'. Save the model by model.save('model.keras'), then "
            "run: keras-posenc export model.keras "
            "--to saved_model --out FOLDER (or --to litert --out FILE)"
        )


def _model_of(signature: Signature) -> Any:
    """What answers for the model: its eager code, or its graph."""
    if any(
        layer.compute_dtype in ("float16", "bfloat16")
        for layer in flatten_layers(signature.model)
    ):
        # Graphs round to low precision at other places than eager code does,
        # and what model.predict answers is the graph's.
        graph = trace(signature)
        return lambda inputs: graph(**inputs)
    return signature.call


def _model_answers(
    signatures: Sequence[Signature], samples: Any, max_length: int
) -> tuple[list[tuple[Signature, Inputs]], list[dict[str, Any]], list[str]]:
    """Inputs, the model's own answers, and the inputs that it refuses."""
    cases: list[tuple[Signature, Inputs]] = []
    expected: list[dict[str, Any]] = []
    refused: list[str] = []
    for signature in signatures:
        call = _model_of(signature)
        first_error: ValueError | None = None
        count = len(cases)
        given = len(fitting_samples(signature, samples))
        for index, inputs in enumerate(
            make_cases(signature, samples, max_length)
        ):
            try:
                expected.append(_answer(signature, call, inputs))
            except ValueError as error:
                first_error = first_error or error
                # A model may need some length; but samples and the longest
                # were asked for.
                if index < given or any(
                    max_length in value.shape for value in inputs.values()
                ):
                    raise first_error from first_error.__cause__
                refused.append(f"{signature.name}, {_describe(inputs)}")
            else:
                cases.append((signature, inputs))
        if first_error is not None and len(cases) == count:
            raise first_error
    return cases, expected, refused


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


def _constant_outputs(
    cases: Sequence[tuple[Signature, Inputs]],
    answers: Sequence[Mapping[str, Any]],
    tolerance: float,
) -> list[str]:
    """Outputs whose rows differ by less than verification can see."""
    rows: dict[str, list[np.ndarray]] = {}
    for (signature, _), answer in zip(cases, answers, strict=True):
        for name, value in answer.items():
            if "float" in value.dtype.name and value.ndim == 2:
                rows.setdefault(f"{signature.name}/{name}", []).append(
                    value.astype("float64")
                )
    return [
        name
        for name, values in rows.items()
        if len({value.shape[1] for value in values}) == 1
        and sum(map(len, values)) > 2
        and np.all(np.ptp(np.concatenate(values), axis=0) < 10 * tolerance)
    ]


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
            f"The model itself does not take {_describe(inputs)} in signature "
            f"'{signature.name}'; give `samples` or a smaller `max_length`: "
            f"{error}"
        ) from error
    return {name: value.numpy() for name, value in outputs.items()}


def _run_worker(
    kind: str, artifact: Path, cases: Sequence[tuple[Signature, Inputs]]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arrays = {}
        requests = []
        for index, (signature, inputs) in enumerate(cases):
            references: dict[str, Any] = {}
            for input_name, value in inputs.items():
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
            requests.append({"signature": signature.name, "inputs": references})
        np.savez(folder / "inputs.npz", allow_pickle=False, **arrays)
        (folder / "request.json").write_text(
            json.dumps(
                {
                    "kind": kind,
                    "artifact": str(artifact.resolve()),
                    "op_libraries": _op_libraries(),
                    "repeats": _REPEATS,
                    "cases": requests,
                }
            )
        )
        try:
            process = subprocess.run(
                [sys.executable, "-P", worker.__file__, name],
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
                env={
                    **os.environ,
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                    # A GPU's memory is this process's already.
                    "CUDA_VISIBLE_DEVICES": "-1",
                },
            )
        except subprocess.TimeoutExpired as error:
            raise ExportVerificationError(
                f"The runtime did not answer within {_TIMEOUT} s"
            ) from error
        if process.returncode or not (folder / "response.json").exists():
            raise ExportVerificationError(
                f"The runtime {_describe_end(process)} while it ran the "
                "artifact"
            )
        response = json.loads((folder / "response.json").read_text())
        if "error" in response:
            raise ExportVerificationError(
                f"The artifact does not load: {response['error']}"
            )
        with np.load(folder / "outputs.npz") as outputs:
            return response, dict(outputs)


def _compare(
    signature: str,
    inputs: Inputs,
    expected: Mapping[str, Any],
    scales: Mapping[str, float],
    answer: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> CaseReport:
    description = _describe(inputs)
    error = answer.get("error")
    if error is None and set(answer["outputs"]) != set(expected):
        error = (
            f"its outputs are {', '.join(answer['outputs'])}, the model's "
            f"{', '.join(expected)}"
        )
    if error is not None:
        return CaseReport(signature, description, math.inf, "", 0.0, error)
    worst, where = 0.0, ""
    for name, wanted in expected.items():
        reference = answer["outputs"][name]
        if isinstance(reference, str):
            got = outputs[reference]
        else:
            texts = [base64.b64decode(text) for text in reference["strings"]]
            got = np.array(texts, dtype=object).reshape(reference["shape"])
        if got.shape != wanted.shape:
            error = f"{name} has shape {got.shape}, the model's {wanted.shape}"
            return CaseReport(signature, description, math.inf, "", 0.0, error)
        difference, index = _worst_difference(wanted, got, scales[name])
        if difference > worst or not where:
            worst, where = difference, f"{name}{list(index)}"
    return CaseReport(
        signature,
        description,
        worst,
        where,
        answer["milliseconds"],
        is_nan=all(
            "float" in wanted.dtype.name
            and wanted.size > 0
            and bool(np.isnan(wanted.astype("float64")).all())
            for wanted in expected.values()
        ),
    )


def _worst_difference(
    wanted: np.ndarray, got: np.ndarray, scale: float = 1.0
) -> tuple[float, tuple[int, ...]]:
    """Largest difference of two arrays, and where; infinite for two shapes."""
    if wanted.shape != got.shape:
        return math.inf, ()
    if wanted.size == 0:
        return 0.0, ()
    if "float" not in wanted.dtype.name:
        differences = np.where(wanted == got, 0.0, np.inf)
    else:
        wanted, got = wanted.astype("float64"), got.astype("float64")
        with np.errstate(invalid="ignore"):
            differences = np.abs(wanted - got) / np.maximum(
                scale, np.abs(wanted)
            )
        same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
        differences = np.where(same, 0.0, differences)
        # One NaN beside a number, or infinities that differ.
        differences = np.where(np.isnan(differences), np.inf, differences)
    index = np.unravel_index(np.argmax(differences), differences.shape)
    return float(differences[index]), tuple(int(i) for i in index)


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


def _describe(inputs: Inputs) -> str:
    return ", ".join(
        f"{name} of shape {value.shape}" for name, value in inputs.items()
    )


def _describe_end(process: subprocess.CompletedProcess[bytes]) -> str:
    if process.returncode < 0:
        return f"was ended by {signal.Signals(-process.returncode).name}"
    last = process.stderr.decode(errors="replace").strip().splitlines()[-1:]
    status = f"exit status {process.returncode}, without an answer"
    return f"failed ({''.join(last) or status})"


def _jsonable(number: float) -> float | None:
    return number if math.isfinite(number) else None
