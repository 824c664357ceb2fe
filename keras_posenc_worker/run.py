"""Runs an exported model without Keras.

TensorFlow can be imported only for a SavedModel, or a LiteRT file that needs
Flex.
"""

import contextlib
import dataclasses
import functools
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keras_posenc_worker import codec, session
from keras_posenc_worker.fresh import run_fresh
from keras_posenc_worker.process import forbid
from keras_posenc_worker.runtimes import (
    Runner,
    load_litert,
    load_onnx,
)

_SMALL = 2**16  # bytes


def prepare(
    kind: str,
    artifact: str | None = None,
    op_libraries: Sequence[str] = (),
    by_python: bool = True,
) -> None:
    """Loads a model's runtime ahead of time, and a SavedModel itself.

    First forbids to import what a model of this kind must not need.
    """
    forbid("keras_posenc")  # Keras, no worker can import: see `__main__.py`
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if kind in ("litert", "onnx"):
        forbid("tensorflow")
    if kind == "litert":
        import ai_edge_litert.interpreter  # noqa: F401
    elif kind == "onnx":
        import onnxruntime  # noqa: F401
    else:
        import tensorflow  # noqa: F401

    if kind == "saved_model" and artifact is not None:
        with contextlib.suppress(Exception):  # `main` raises it again
            _load_saved_model(artifact, True, by_python, *op_libraries)


def main(path: str) -> None:
    """Writes the response to the request in a folder, as `codec` has both."""
    folder = Path(path)
    request = codec.read(folder, "request")
    kind, artifact = request["kind"], request["artifact"]
    cases = request["cases"]
    prepare(kind)
    by_python: dict[str, Runner] = {}
    try:
        response: dict[str, Any] = {}
        if kind == "saved_model":
            served = _load_saved_model(
                artifact,
                bool(cases),
                request["by_python"],
                *request["op_libraries"],
            )
            runners, load_seconds = served.runners, served.seconds
            by_python = served.by_python
            _plan(by_python, cases)
            response["version"] = served.version
            response["more"] = served.more
            response["serve"] = served.serve
            response["contents"] = {
                name: dataclasses.asdict(contents)
                for name, contents in served.contents(
                    request["by_python"]  # else the caller wrote it itself
                ).items()
            }
            # After that: what runs may change variables, such as seeds.
            response["warmup"] = _replay_warmup(artifact, served)
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
    except Exception as error:  # whatever the runtime raises
        response = {"error": f"{type(error).__name__}: {error}", "cases": []}
        codec.write(folder, "response", response)
        return
    response["cases"] = [
        _run_case(runners, name, inputs, request["times"])
        for name, inputs in cases
    ]
    if kind.startswith("litert"):
        run_fresh(load, cases, response["cases"], load_seconds)
    response["by_python"] = {
        str(index): _run_case(by_python, *cases[index])
        for index in _smallest(by_python, cases)
    }
    codec.write(folder, "response", response)


def _run_case(
    runners: dict[str, Runner],
    signature: str,
    inputs: dict[str, Any],
    times: int = 1,
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
            # A scalar's Python type says less than its dtype.
            name: np.asarray(value, getattr(value, "dtype", object))
            for name, value in outputs.items()
        }
    except Exception as error:  # whatever the runtime raises
        found["error"] = f"{type(error).__name__}: {error}"
    return found


@functools.cache
def _load_saved_model(
    artifact: str, is_asked: bool, by_python: bool, *op_libraries: str
) -> Any:
    return session.load(
        artifact, *op_libraries, is_asked=is_asked, by_python=by_python
    )


def _smallest(
    by_python: dict[str, Runner], cases: list[tuple[str, dict[str, Any]]]
) -> list[int]:
    """The smallest case of each signature that Python's reader has, too."""
    order = sorted(range(len(cases)), key=lambda i: -_size(cases[i][1]))
    found = {cases[index][0]: index for index in order}
    return sorted(index for name, index in found.items() if name in by_python)


def _plan(
    runners: dict[str, Runner], cases: list[tuple[str, dict[str, Any]]]
) -> None:
    """Runs the smallest case of each signature, all at the same time.

    TensorFlow plans a graph then, which takes longer than such a case, on one
    core for each. Large ones wait for their turns: together they would need
    their memory at once, and so would many threads.
    """
    smallest = dict(sorted(cases, key=lambda case: -_size(case[1])))
    with ThreadPoolExecutor(4) as pool:
        for name in smallest.keys() & runners.keys():
            if _size(smallest[name]) <= _SMALL:
                # What fails will fail again, and is reported then.
                pool.submit(runners[name], smallest[name])


def _size(inputs: dict[str, Any]) -> int:
    """Bytes of numbers and of texts."""
    return sum(
        sum(map(len, value.flat)) if value.dtype == object else value.nbytes
        for value in inputs.values()
    )


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


def _replay_warmup(artifact: str, served: Any) -> int | None:
    """Runs the warm-up requests, as a server does before it serves.

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
                wanted = served.input_dtypes[name][key]
                if value.dtype != wanted:  # a server casts nothing
                    raise TypeError(
                        f"its input '{key}' is of dtype "
                        f"{tf.dtypes.as_dtype(value.dtype).name}, and must be "
                        f"of {wanted.name}"
                    )
            served.runners[name](
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
