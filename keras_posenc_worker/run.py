"""Runs an artifact without Keras, in a process of its own.

Neither keras nor keras_posenc can be imported here, and TensorFlow only where
the artifact is a SavedModel or needs Flex.
"""

import contextlib
import functools
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker import codec, session
from keras_posenc_worker.fresh import ask_fresh
from keras_posenc_worker.runtimes import (
    Runner,
    load_litert,
    load_onnx,
)


def prepare(
    kind: str,
    artifact: str | None = None,
    op_libraries: Sequence[str] = (),
) -> None:
    """Loads an artifact's runtime ahead of time, and a SavedModel itself.

    First forbids to import what an artifact of this kind must not need.
    """
    forbidden = ["keras", "keras_posenc", "tf_keras"]
    if kind in ("litert", "onnx"):
        forbidden.append("tensorflow")
    for name in forbidden:
        sys.modules[name] = None  # type: ignore[assignment]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if kind == "litert":
        import ai_edge_litert.interpreter  # noqa: F401
    elif kind == "onnx":
        import onnxruntime  # noqa: F401
    else:
        import tensorflow  # noqa: F401

    if kind == "saved_model":
        if artifact is not None:
            with contextlib.suppress(Exception):  # is told when it is asked
                _load_saved_model(artifact, True, *op_libraries)


def main(path: str) -> None:
    """Writes the response to the request in a folder, as `codec` has both."""
    folder = Path(path)
    request, arrays = codec.read(folder, "request")
    prepare(request["kind"])
    cases = [
        (
            case["signature"],
            {
                name: codec.decode(value, arrays)
                for name, value in case["inputs"].items()
            },
        )
        for case in request["cases"]
    ]
    try:
        kind, artifact = request["kind"], request["artifact"]
        response: dict[str, Any] = {}
        if kind == "saved_model":
            loaded = _load_saved_model(
                artifact, bool(cases), *request["op_libraries"]
            )
            runners, load_seconds = loaded.runners, loaded.seconds
            response["version"] = loaded.version
            response["python_functions"] = loaded.python_functions
            response["serve"] = loaded.serve
            response["contents"] = loaded.contents
            response["warmup"] = _replay_warmup(artifact, loaded)
        else:
            began = time.perf_counter()
            if kind == "onnx":
                runners = load_onnx(artifact, {name for name, _ in cases})
            else:
                load = functools.partial(
                    load_litert, artifact, kind == "litert_flex"
                )
                runners = load()
            load_seconds = time.perf_counter() - began
        response["load_seconds"] = load_seconds
    except Exception as error:  # whatever the runtime raises is the answer
        response = {"error": f"{type(error).__name__}: {error}", "cases": []}
        codec.write(folder, "response", response, {})
        return
    outputs: dict[str, Any] = {}
    response["cases"] = [
        _answer(f"{index}", runners, name, inputs, request["times"], outputs)
        for index, (name, inputs) in enumerate(cases)
    ]
    if kind.startswith("litert"):
        ask_fresh(load, cases, response["cases"], outputs, load_seconds)
    codec.write(folder, "response", response, outputs)


def _answer(
    key: str,
    runners: dict[str, Runner],
    signature: str,
    inputs: dict[str, Any],
    times: int,
    outputs: dict[str, Any],
) -> dict[str, Any]:
    """What a request is answered, its arrays among `outputs` below a key."""
    import numpy as np

    answer: dict[str, Any] = {"outputs": {}}
    try:
        runner = runners[signature]
        seconds: list[float] = []
        while len(seconds) < times and sum(seconds) < 0.01:
            began = time.perf_counter()
            results = runner(inputs)
            seconds.append(time.perf_counter() - began)
        answer["milliseconds"] = float(np.median(seconds) * 1e3)
        for name, value in results.items():
            answer["outputs"][name] = codec.encode(
                value, f"{key}/{name}", outputs
            )
    except Exception as error:  # likewise
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


@functools.cache
def _load_saved_model(
    artifact: str, will_run: bool, *op_libraries: str
) -> session.LoadedModel:
    return session.load(artifact, *op_libraries, will_run=will_run)


def _largest_batch(artifact: str) -> int | None:
    """How many rows a request may have where a server puts some together."""
    file = Path(artifact, "batching_params.pbtxt")
    if not file.exists():
        return None
    found = re.search(
        r"\bmax_batch_size\s*:?\s*\{\s*value\s*:\s*(\d+)",
        file.read_text(encoding="utf-8", errors="replace"),
    )
    return int(found[1]) if found else None


def _replay_warmup(artifact: str, loaded: session.LoadedModel) -> int | None:
    """Answers the warm-up requests, as a server does before it serves.

    Returns:
        Their number, or None where nothing is installed that reads them.
    """
    file = Path(artifact, "assets.extra", "tf_serving_warmup_requests")
    if not file.exists():
        return 0
    import tensorflow as tf

    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        return None
    largest = _largest_batch(artifact)
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
                        f"it has {rows} rows, and a batch at most {largest}, "
                        "by batching_params.pbtxt"
                    )
                wanted = loaded.input_dtypes[name][key]
                if value.dtype != wanted:  # a server casts nothing
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
