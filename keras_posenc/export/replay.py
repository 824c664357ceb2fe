"""Runs the cases that are kept with an exported file, without its model."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litertlm_run import run_litertlm_cases
from keras_posenc.export.inspect import Inspection, inspect_safe, locate
from keras_posenc.export.probes.compare import scales_of
from keras_posenc.export.probes.quality import Quality, quality_of
from keras_posenc.export.record import digests, verified_record
from keras_posenc.export.versions import check_unchanged, stamp
from keras_posenc.export.worker_client import limits_for, run_model
from keras_posenc.progress import printable, printable_lines, progress
from keras_posenc_worker.cases import compared, difference

Cases = Sequence[Mapping[str, Any]]


class _Runtime(NamedTuple):
    """A runtime: how it is called, what it runs and what it needs."""

    title: str
    kind: str
    module: str
    package: str


# The first of a kind is the one that exports are verified in.
RUNTIMES = {
    "litert": _Runtime(
        "LiteRT's Interpreter", "litert", "ai_edge_litert", "ai-edge-litert"
    ),
    "litert_compiled": _Runtime(
        "LiteRT's CompiledModel", "litert", "ai_edge_litert", "ai-edge-litert"
    ),
    "onnx": _Runtime("ONNX Runtime", "onnx", "onnxruntime", "onnx onnxruntime"),
    "openvino": _Runtime("OpenVINO", "onnx", "openvino", "onnx openvino"),
    "saved_model": _Runtime(
        "TensorFlow", "saved_model", "tensorflow", "tensorflow"
    ),
    "litertlm": _Runtime(
        "LiteRT-LM's engine", "litertlm", "litert_lm", "litert-lm-api"
    ),
}


@dataclasses.dataclass(frozen=True)
class RuntimeReport:
    """What a runtime made of the cases.

    Attributes:
        runtime: Its name, as `runtimes` of `verify` takes it.
        version: Its version.
        decides: Whether the file fails if there are errors.
        cases: How many cases it ran.
        largest_difference: The largest difference from the model's outputs, as
            a share of what is allowed in that place; None if one is above that.
        where: The output with that difference.
        errors: What is wrong, as text, the first of each output.
    """

    runtime: str
    version: str
    decides: bool
    cases: int = 0
    largest_difference: float | None = None
    where: str = ""
    errors: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        name = f"{RUNTIMES[self.runtime].title} {self.version}"
        if self.errors:
            state = "DIFFERENT" if self.decides else "different"
            return f"{name}: {state}: {'; '.join(self.errors)}"
        where = f" ({self.where})" * bool(self.where)
        return (
            f"{name}: equal in {units.count(self.cases, 'case')}, at most "
            f"{self.largest_difference:.2g} of what is allowed{where}"
        )


@dataclasses.dataclass(frozen=True)
class ReplayReport:
    """Result of running the cases that are kept with a file.

    Attributes:
        path: The file, or the folder of a SavedModel.
        runtimes: A `RuntimeReport` for each runtime that is installed.
        notes: With what versions the file was verified, and what was not run or
            compared, as text.
    """

    path: Path
    runtimes: list[RuntimeReport]
    notes: list[str]

    @property
    def passed(self) -> bool:
        """Whether the runtimes that decide gave the model's outputs.

        These are the ones that were asked for, or else the one that exports of
        this format are verified in.
        """
        return not any(x.errors for x in self.runtimes if x.decides)

    def __bool__(self) -> bool:
        return self.passed

    def require_success(self) -> None:
        """Raises `ExportVerificationError` if a runtime gave other outputs."""
        if not self.passed:
            raise ExportVerificationError(str(self))

    def details(self) -> str:
        """Returns the report, which always has all details."""
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict that JSON can hold."""
        own = {"path": str(self.path), "passed": self.passed}
        return dataclasses.asdict(self) | own

    def __str__(self) -> str:
        state = "verified by its cases" if self.passed else "FAILED"
        lines = [f"{self.path}: {state}"]
        lines += [f"  {each}" for each in (*self.runtimes, *self.notes)]
        return printable_lines("\n".join(lines))


def replay(
    path: str | Path,
    *,
    runtimes: Sequence[str] | None = None,
    allow_operators: Sequence[str] = (),
    verbose: int = True,
) -> ReplayReport:
    """Runs the cases that are kept with a file; see `verify_export`."""
    path, kind = locate(path)
    names, missing = _installed(kind, runtimes)
    reports = []
    with (
        progress(verbose) as step,
        _opened(path, allow_operators, step) as found,
    ):
        record = _record(path)
        for name in names:
            step(f"Running its cases in {RUNTIMES[name].title}")
            decides = runtimes is not None or name == names[0]
            report = RuntimeReport(name, _version(name), decides)
            try:
                responses = run_cases(name, found, record["cases"])
            except ExportVerificationError as error:  # others may run it
                report = dataclasses.replace(report, errors=[str(error)])
            else:
                report = _compared(report, record["cases"], responses)
            reports.append(report)
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    notes = [f"recorded with {versions}"]
    if record["quantization"]:
        notes[0] += f"; its quantization is {record['quantization']}"
    notes += [
        f"not installed: {RUNTIMES[each].title} (pip install "
        f"{RUNTIMES[each].package})"
        for each in missing
    ]
    ran = {x["signature"] for x in record["cases"]}
    bare = {*found.signatures} - ran.intersection(record["signatures"])
    if bare and kind != "litertlm":  # cases of packages are of the engine
        notes.append(f"not verified: {', '.join(sorted(bare))}")
    known, left_out = (
        {f"{x['signature']}/{y}" for x in record["cases"] for y in x[part]}
        for part in ("outputs", "not_compared")
    )
    if never := sorted(left_out - known):
        notes.append(
            f"not compared: {', '.join(never)}, of which the verified file was "
            "a quarter off"
        )
    return ReplayReport(found.path, reports, notes)


@contextlib.contextmanager
def _opened(
    path: Path, allow_operators: Sequence[str], step: Callable[[str], object]
) -> Iterator[Inspection]:
    """Inspects a file, and checks after its use that it is still the same."""
    step(f"Reading {path}")
    before = stamp(path)
    yield inspect_safe(path, allow_operators)
    check_unchanged(path, before)


def _record(path: Path) -> dict[str, Any]:
    record = verified_record(path, digests(path))
    if not record["cases"]:
        raise ValueError(
            f"The record of '{path}' has no cases. Verify it with its model: "
            "`kp.verify_export(path, model)`"
        )
    return record


def _installed(
    kind: str, wanted: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    known = [name for name, each in RUNTIMES.items() if each.kind == kind]
    if wanted is not None and (
        isinstance(wanted, str) or not wanted or {*wanted} - {*known}
    ):
        raise ValueError(
            f"`runtimes` must be of {', '.join(map(repr, known))} for such a "
            f"file. Received: runtimes={wanted!r:.80}"
        )
    known = [*(wanted or known)]
    missing = [x for x in known if util.find_spec(RUNTIMES[x].module) is None]
    if missing and (wanted is not None or len(missing) == len(known)):
        package = RUNTIMES[missing[0]].package
        raise ImportError(
            f"{RUNTIMES[missing[0]].title} is not installed: pip install "
            f"{package}"
        )
    return [name for name in known if name not in missing], missing


def run_cases(name: str, found: Inspection, cases: Cases) -> list[Any]:
    """Returns what a runtime gives for each case: `outputs`, or `error`."""
    if name == "litertlm":
        return run_litertlm_cases(found.path, cases)
    inputs = [(each["signature"], each["inputs"]) for each in cases]
    size = sum(value.nbytes for _, own in inputs for value in own.values())
    limits = limits_for(found.size_bytes, size)
    response = run_model(name, found.path, inputs, limits, times=1)
    return list(response["cases"])


def _version(name: str) -> str:
    *_, package = RUNTIMES[name].package.split()
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # another one, as tensorflow-cpu
        found = metadata.packages_distributions()  # reads all that is installed
    known = found.get(RUNTIMES[name].module, [])
    return metadata.version(known[0]) if known else "of an unknown version"


def _compared(
    report: RuntimeReport, cases: Cases, responses: Sequence[Any]
) -> RuntimeReport:
    largest, where, errors = 0.0, "", dict[str, str]()
    for case, response in zip(cases, responses, strict=True):
        for output, off, allowed, error in compared(case, response):
            place = "/".join(filter(None, [case["signature"], output]))
            share = off / allowed if allowed else 0.0
            if not off <= allowed:
                sizes = ", ".join(
                    f"{key} {x.shape}" for key, x in case["inputs"].items()
                )
                text = error or f"off by {off:.2g}, allowed {allowed:.2g}"
                text = printable(f"{place}: {text} ({sizes})")
                errors.setdefault(place, text)
            elif share > largest:
                largest, where = share, place
    return dataclasses.replace(
        report,
        cases=len(cases),
        largest_difference=None if errors else largest,
        where=where,
        errors=[*errors.values()],
    )


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """How an output of one file is off from that of another.

    Attributes:
        output: Signature and name.
        largest_difference: Relative to the number, or to the output's size if
            that is larger; of integers and texts the share that differs.
        quality: Further numbers, as of a quantized file; None of texts.
    """

    output: str
    largest_difference: float
    quality: Quality | None

    def __str__(self) -> str:
        largest = f"largest difference {self.largest_difference:.2g}"
        further = "" if self.quality is None else self.quality.text({})
        return f"{self.output}: {', '.join(filter(None, [largest, further]))}"


def diff(
    first: str | Path,
    second: str | Path,
    *,
    allow_operators: Sequence[str] = (),
    verbose: int = True,
) -> tuple[list[OutputDifference], list[str]]:
    """Compares two SavedModels, LiteRT or ONNX files, or one of each, on cases.

    The cases are those of the first; the second must have the same signatures
    and inputs. Returns how each output that both have differs, and what was not
    compared, as text.
    """
    (first, _), (second, _) = locate(first), locate(second)
    with (
        progress(verbose) as step,
        _opened(first, allow_operators, step) as found,
        _opened(second, allow_operators, step) as against,
    ):
        cases, notes = list[Any](), list[str]()
        for case in _record(first)["cases"]:
            name, inputs = case["signature"], case["inputs"]
            specs = against.signatures.get(name, {}).get("inputs", {})
            if inputs.keys() == specs.keys():
                cases.append(case)
            else:
                notes.append(
                    f"{name}: '{second}' has no signature of that name with "
                    f"the inputs {', '.join(inputs)}"
                )
        both = []
        for file in (found, against):
            (runtime, *_), _ = _installed(file.kind, None)
            step(f"Running {file.path} in {RUNTIMES[runtime].title}")
            both.append(run_cases(runtime, file, cases))
    pairs: dict[str, list[Any]] = {}
    for case, one, two in zip(cases, *both, strict=True):
        name = case["signature"]
        for error in (one.get("error"), two.get("error")):
            if error:
                notes.append(f"{name}: {printable(' '.join(error.split()))}")
        for output, wanted in one.get("outputs", {}).items():
            got, place = two.get("outputs", {}).get(output), f"{name}/{output}"
            if got is not None and got.shape == wanted.shape:
                pairs.setdefault(place, []).append((wanted, got))
            elif "error" not in two:
                notes.append(f"{place}: not an output of both, by shape")
    return (
        [_difference(place, each) for place, each in pairs.items()],
        [*dict.fromkeys(notes)],
    )


def _difference(place: str, pairs: Sequence[Any]) -> OutputDifference:
    scale = scales_of([{"": wanted} for wanted, _ in pairs])[""]
    return OutputDifference(
        place,
        max(difference(x, y, scale) for x, y in pairs),
        None if pairs[0][0].dtype == object else quality_of(pairs),
    )
