"""Requests that a server replays before it serves a version.

TensorFlow Serving reads them when it loads a version. One that fails makes the
load fail, so verification replays them all.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.expectations.expectations import Case, Expectations
from keras_posenc.artifacts.expectations.samples import Inputs, fit_samples
from keras_posenc.artifacts.ground.errors import in_words
from keras_posenc.artifacts.ground.staging import writing_to
from keras_posenc.artifacts.signatures.signature import Signature

WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
MAX_RECORDS = 1000


def check_warmup(warmup: Any, verify: bool) -> None:
    """Raises `ValueError` or `ImportError` for what cannot be written."""
    if warmup is None or warmup is False:
        return
    if warmup is not True and not isinstance(warmup, list | tuple):
        raise ValueError(
            "`warmup` must be True, for the inputs that the export is verified "
            "with, or a list of samples, or None. Received: "
            f"warmup={warmup!r}"
        )
    if not verify:
        raise ValueError(
            "`warmup` needs verify=True: a server does not load a version "
            "whose warm-up fails, so it is tried before. Received: "
            "verify=False"
        )
    if warmup is not True and not 0 < len(warmup) <= MAX_RECORDS:
        raise ValueError(
            f"`warmup` must have 1 to {MAX_RECORDS} samples, which is what "
            f"TensorFlow Serving reads. Received: {len(warmup)}"
        )
    _import()


def warmup_cases(
    warmup: Any,
    fitted: Mapping[str, Sequence[Inputs]],
    expectations: Expectations,
    batching: Mapping[str, Any] | None,
) -> list[Case]:
    """Those of the verified batches that are to be replayed.

    The server puts what it replays in its queue of batches, which takes no
    more rows at once than a batch has: they are asked for in parts then.

    Args:
        warmup: See `export_saved_model`.
        fitted: Where it is a list of samples, those of each signature.
        expectations: The verified batches.
        batching: The parameters of batching, if there is any.

    Raises:
        ValueError: They are more than a server reads.
    """
    if not warmup:
        return []
    cases = list(
        {
            (case.signature, _key(case.inputs)): case
            for case in expectations.usual
        }.values()
    )
    if warmup is not True:
        wanted = {
            (name, _key(inputs))
            for name, found in fitted.items()
            for inputs in found
        }
        cases = [
            case
            for case in cases
            if (case.signature, _key(case.inputs)) in wanted
        ]
    if batching is not None:
        largest = batching["max_batch_size"]
        cases = [part for case in cases for part in _parts(case, largest)]
    if len(cases) > MAX_RECORDS:
        raise ValueError(
            f"`warmup` makes {len(cases)} requests, and TensorFlow Serving "
            f"reads {MAX_RECORDS} at most"
        )
    return cases


def fit_warmup(
    warmup: Any, signatures: Sequence[Signature]
) -> dict[str, list[Inputs]]:
    """The samples to warm up with, by the signatures that take them."""
    given = warmup if isinstance(warmup, list | tuple) else None
    return fit_samples(signatures, given, "warmup")


def write_warmup(cases: Sequence[Case], folder: Path, model_name: str) -> None:
    """Writes requests for a SavedModel in `folder`."""
    if not cases:
        return
    import tensorflow as tf

    logs = _import()
    file = folder / WARMUP_FILE
    with writing_to(folder.parent):
        file.parent.mkdir()
    try:
        with tf.io.TFRecordWriter(str(file)) as writer:
            for case in cases:
                log = logs.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = model_name
                request.model_spec.signature_name = case.signature
                for name, value in case.inputs.items():
                    request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
                writer.write(log.SerializeToString())
    except tf.errors.OpError as error:
        with writing_to(folder.parent):
            raise OSError(in_words(error)) from error


def _import() -> Any:
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError as error:
        raise ImportError(
            "`warmup` needs tensorflow-serving-api: pip install "
            "'keras-posenc[serving]'"
        ) from error
    return prediction_log_pb2


def _parts(case: Case, largest: int) -> Iterator[Case]:
    rows = len(next(iter(case.inputs.values())))
    for start in range(0, rows, largest):
        inputs = {
            name: value[start : start + largest]
            for name, value in case.inputs.items()
        }
        yield dataclasses.replace(case, inputs=inputs)


def _key(inputs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        (name, value.shape, tuple(value.ravel().tolist()))
        for name, value in inputs.items()
    )
