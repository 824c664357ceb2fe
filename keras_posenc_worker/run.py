"""Runs an exported model without Keras; only a SavedModel with TensorFlow."""

import gc
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_posenc_worker import codec
from keras_posenc_worker.fresh import run_fresh
from keras_posenc_worker.process import forbid
from keras_posenc_worker.runtimes import (
    Runner,
    SavedModel,
    VerifiedModel,
    load_compiled,
    load_litert,
    load_onnx,
    load_openvino,
)

_RUNTIMES = {  # of further kinds TensorFlow
    "litert": "ai_edge_litert.interpreter",
    "litert_compiled": "ai_edge_litert.compiled_model",
    "onnx": "onnxruntime",
    "openvino": "openvino",
}


def prepare(kind: str) -> None:
    """Loads a model's runtime ahead of time.

    First it forbids imports that a model of this kind must not need.
    """
    forbid("keras_posenc")  # `__main__.py` has forbidden Keras
    forbid("openvino_telemetry")  # it forks a process that reports to Intel
    if kind in _RUNTIMES:
        forbid("tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    importlib.import_module(_RUNTIMES.get(kind, "tensorflow"))


def main(path: str) -> None:
    """Runs the request in a folder, and writes the response; see `codec`."""
    folder = Path(path)
    request = codec.read(folder, "request")
    prepare(request["kind"])
    try:
        response = _respond(request)
    except Exception as error:  # whatever the runtime raises
        response = {"error": f"{type(error).__name__}: {error}", "cases": []}
    finally:
        gc.collect()  # sessions
    codec.write(folder, "response", response)


def _respond(request: dict[str, Any]) -> dict[str, Any]:
    """Loads the file, and runs the cases."""
    kind, exported = request["kind"], request["exported"]
    cases = request["cases"]
    is_verified = request["times"] > 1
    names = {name for name, _ in cases}
    load: Callable[[], dict[str, Runner]] = {
        "saved_model": lambda: SavedModel(exported).runners,
        "litert": lambda: load_litert(exported),
        "litert_compiled": lambda: load_compiled(exported),
        "onnx": lambda: load_onnx(exported, names),
        "openvino": lambda: load_openvino(exported, names),
    }[kind]
    response: dict[str, Any] = {}
    verified = None
    if kind == "saved_model" and is_verified:
        verified = VerifiedModel(exported)
        runners, load_seconds = verified.runners, verified.seconds
        response["weights"] = verified.weights
        response |= verified.replay_warmup()
    else:
        began = time.perf_counter()
        runners = load()
        load_seconds = time.perf_counter() - began
    response["load_seconds"] = load_seconds
    found = response["cases"] = []
    for name, inputs in cases:
        found.append(_run_case(runners, name, inputs, request["times"]))
    if verified is not None:
        verified.run_python(cases, found)
    if kind == "litert" and is_verified:
        run_fresh(load, cases, found, load_seconds)
    return response


def _run_case(
    runners: dict[str, Runner],
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
