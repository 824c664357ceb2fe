"""Runs an exported model without Keras.

TensorFlow can be imported only for a SavedModel, or a LiteRT file that needs
Flex.
"""

import contextlib
import functools
import gc
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker import codec, session
from keras_posenc_worker.fresh import run_fresh
from keras_posenc_worker.process import forbid, respond
from keras_posenc_worker.runtimes import (
    Runner,
    load_compiled,
    load_litert,
    load_onnx,
    load_openvino,
    load_saved_model,
)


def prepare(
    kind: str,
    exported: str | None = None,
    op_libraries: Sequence[str] = (),
) -> None:
    """Loads a model's runtime ahead of time, and a SavedModel itself.

    First it forbids imports that a model of this kind must not need.
    """
    forbid("keras_posenc")  # `__main__.py` has forbidden Keras
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if kind in ("litert", "litert_compiled", "onnx", "openvino"):
        forbid("tensorflow")
    if kind == "litert":
        import ai_edge_litert.interpreter
    elif kind == "litert_compiled":
        import ai_edge_litert.compiled_model  # noqa: F401
    elif kind == "onnx":
        import onnxruntime  # noqa: F401
    elif kind == "openvino":
        # It would fork a process that reports to Intel.
        forbid("openvino_telemetry")
        import openvino  # noqa: F401
    else:
        import tensorflow  # noqa: F401

    if kind == "saved_model" and exported is not None:
        with contextlib.suppress(Exception):  # `main` raises it again
            _load_saved_model(exported, *op_libraries)


def main(path: str) -> None:
    """Runs the request in a folder, and writes the response; see `codec`."""
    try:
        _main(path)
    finally:
        _load_saved_model.cache_clear()  # the next one may have the same path
        gc.collect()  # sessions


def _main(path: str) -> None:
    folder = Path(path)
    request = codec.read(folder, "request")
    kind, exported = request["kind"], request["exported"]
    cases, is_verified = request["cases"], request["times"] > 1
    prepare(kind)
    try:
        response: dict[str, Any] = {}
        if kind == "saved_model" and is_verified:
            loaded = _load_saved_model(exported, *request["op_libraries"])
            runners, load_seconds = loaded.runners, loaded.seconds
            response["weights"] = loaded.weights
            response["warmup"] = _replay_warmup(exported, loaded)
        else:
            began = time.perf_counter()
            if kind == "onnx":
                runners = load_onnx(exported, {name for name, _ in cases})
            elif kind == "saved_model":
                runners = load_saved_model(exported, *request["op_libraries"])
            elif kind == "openvino":
                runners = load_openvino(exported, {name for name, _ in cases})
            elif kind == "litert_compiled":
                runners = load_compiled(exported)
            else:
                load = functools.partial(
                    load_litert, exported, kind == "litert_flex"
                )
                runners = load()
            load_seconds = time.perf_counter() - began
        response["load_seconds"] = load_seconds
    except Exception as error:  # whatever the runtime raises
        response = {"error": f"{type(error).__name__}: {error}", "cases": []}
        codec.write(folder, "response", response)
        return
    response["cases"] = []
    for name, inputs in cases:
        found = _run_case(runners, name, inputs, request["times"])
        response["cases"].append(found)
        if request["counts"]:
            respond({"done": len(response["cases"])})
    if kind == "saved_model" and is_verified:
        try:
            session.run_python(loaded, cases, response["cases"])
        except Exception as error:
            response = {
                "error": f"{type(error).__name__}: {error}",
                "cases": [],
            }
    if kind in ("litert", "litert_flex") and is_verified:
        run_fresh(load, cases, response["cases"], load_seconds)
    codec.write(folder, "response", response)


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


@functools.cache
def _load_saved_model(exported: str, *op_libraries: str) -> session.LoadedModel:
    return session.load(exported, *op_libraries)


def _largest_batch(exported: str) -> int | None:
    """Returns the most examples of a request if the server batches, or None."""
    file = Path(exported, "batching_params.pbtxt")
    if not file.exists():
        return None
    found = re.search(
        r"\bmax_batch_size\s*:?\s*\{\s*value\s*:\s*(\d+)",
        file.read_text(encoding="utf-8", errors="replace"),
    )
    return int(found[1]) if found else None


def _replay_warmup(exported: str, loaded: session.LoadedModel) -> int | None:
    """Runs the warm-up requests, as a server does before it serves.

    Returns:
        Their number, or None if no package that reads them is installed.
    """
    file = Path(exported, "assets.extra", "tf_serving_warmup_requests")
    if not file.exists():
        return 0
    import tensorflow as tf

    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        return None
    largest = _largest_batch(exported)
    count = 0
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        try:
            name = request.model_spec.signature_name
            for key, value in request.inputs.items():
                rows = value.tensor_shape.dim[0].size
                if largest is not None and rows > largest:
                    raise ValueError(
                        f"it has {rows} examples, and batching_params.pbtxt "
                        f"allows {largest} in a batch"
                    )
                wanted = loaded.input_dtypes[name][key]
                if value.dtype != wanted:  # servers do not cast
                    raise TypeError(
                        f"its input '{key}' is of dtype "
                        f"{tf.dtypes.as_dtype(value.dtype).name}, and must be "
                        f"of {wanted.name}"
                    )
            loaded.runners[name](
                {
                    key: tf.make_ndarray(value)
                    for key, value in request.inputs.items()
                }
            )
        except Exception as error:
            raise RuntimeError(
                f"its warm-up request {count} fails: {error}"
            ) from error
        count += 1
    return count
