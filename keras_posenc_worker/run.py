"""Runs an exported model without Keras; only a SavedModel with TensorFlow."""

import base64
import contextlib
import gc
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker import codec
from keras_posenc_worker.cases import pack
from keras_posenc_worker.process import forbid, import_for_good
from keras_posenc_worker.runtimes import (
    Runner,
    SavedModel,
    load_compiled,
    load_litert,
    load_onnx,
    load_openvino,
    verify_saved_model,
)

_LARGE = 2**28  # bytes of weights, which are then held once at a time
REQUEST, RESPONSE = "request.npz", "response.npz"
_RUNTIMES = {  # of further kinds TensorFlow
    "litert": "ai_edge_litert.interpreter",
    "litert_compiled": "ai_edge_litert.compiled_model",
    "onnx": "onnxruntime",
    "openvino": "openvino",
}
# SavedModels that were loaded before all their cases were known, by path.
_ahead: dict[str, SavedModel | None] = {}


def prepare(
    kind: str, exported: str | None = None, case: str | None = None
) -> None:
    """Loads a model's runtime ahead of time, and a SavedModel; runs a case.

    First it forbids imports that a model of this kind must not need.
    """
    forbid("keras_posenc")  # `__main__.py` has forbidden Keras
    forbid("openvino_telemetry")  # it forks a process that reports to Intel
    if kind in _RUNTIMES:
        forbid("tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import_for_good(_RUNTIMES.get(kind, "tensorflow"))
    if exported is None:
        return
    with contextlib.suppress(Exception):  # `main` says what is wrong
        if exported not in _ahead:
            _ahead.clear()  # of an export that failed
            _ahead[exported] = None  # if it does not load
            _ahead[exported] = loaded = SavedModel(exported)
            files = Path(exported, "variables").glob("*")
            if sum(x.stat().st_size for x in files) < _LARGE:
                loaded.load_in_python()
        model = _ahead[exported]
        if model is not None and case is not None:
            content = base64.b64decode(case)
            if content not in model.found:
                signature, inputs = codec.read(io.BytesIO(content))
                found = _run_case(model.runners, signature, inputs, 1)
                if "error" not in found:  # else `main` runs it, in its limits
                    model.found[content] = found


def main(path: str) -> None:
    """Runs the request in a folder, and writes the response; see `codec`."""
    request = codec.read(Path(path, REQUEST))
    prepare(request["kind"])
    try:
        response = _respond(**request)
    except Exception as error:  # whatever the runtime raises
        response = {"error": f"{type(error).__name__}: {error}", "cases": []}
    finally:
        _ahead.clear()
        gc.collect()  # sessions
    codec.write(Path(path, RESPONSE), response)


def _respond(
    kind: str,
    exported: str,
    cases: Sequence[tuple[str, dict[str, Any]]],
    times: int,
) -> dict[str, Any]:
    """Loads the file, and runs the cases: several times to verify it."""
    names = {name for name, _ in cases}
    make: Callable[[], Any] = {
        "saved_model": lambda: (
            _ahead.pop(exported, None) or SavedModel(exported)
        ),
        "litert": lambda: load_litert(exported),
        "litert_compiled": lambda: load_compiled(exported),
        "onnx": lambda: load_onnx(exported, names),
        "openvino": lambda: load_openvino(exported, names),
    }[kind]
    began = time.perf_counter()
    model = make()
    load_seconds = time.perf_counter() - began
    ahead, timed, found = getattr(model, "found", {}), set[str](), []
    for index, (signature, inputs) in enumerate(cases):
        runners = model.runners if kind == "saved_model" else model
        # Every second case has an interpreter of its own: XNNPACK's delegate
        # (ai-edge-litert 2.3.0) may err from the second run of a shape on, if
        # sizes are known only during the run. One that runs all shapes
        # allocates again for each, and so hides that.
        if kind == "litert" and times > 1 and index % 2 and load_seconds < 0.1:
            runners = make()
        case = ahead.get(pack((signature, inputs))) if ahead else None
        took = case["milliseconds"] if case else 0.0
        if case and (signature in timed or took > 1000):
            # No time: it was a longer one, as the model computed meanwhile.
            found.append({"outputs": case["outputs"]})
        else:
            found.append(_run_case(runners, signature, inputs, times))
            timed.add(signature)
    response: dict[str, Any] = {"cases": found}
    if kind == "saved_model" and times > 1:
        response |= verify_saved_model(model, cases, found)
    return response


def _run_case(
    runners: Mapping[str, Runner],
    signature: str,
    inputs: dict[str, Any],
    times: int,
) -> dict[str, Any]:
    """Runs one batch; returns its outputs and the time, or the error."""
    import numpy as np

    found: dict[str, Any] = {"outputs": {}}
    try:
        runner = runners[signature]
        seconds: list[float] = []
        while len(seconds) < times and sum(seconds) < 0.01:
            began = time.perf_counter()
            outputs = runner(inputs)
            seconds.append(time.perf_counter() - began)
        found["milliseconds"] = float(np.median(seconds) * 1e3)
        found["outputs"] = {
            # Keeps the dtype of scalars, which a Python type would lose.
            name: np.asarray(value, getattr(value, "dtype", object))
            for name, value in outputs.items()
        }
    except Exception as error:  # whatever the runtime raises
        found["error"] = f"{type(error).__name__}: {error}"
    return found
