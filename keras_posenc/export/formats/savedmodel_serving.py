"""Warm-up requests and batching, for servers of a SavedModel."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.checks import as_integer
from keras_posenc.export.errors import in_words
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.publish import writing_to

BATCHING_FILE = "batching_params.pbtxt"

_SIZES = "allowed_batch_sizes"
# The least value of each number of tensorflow.serving.BatchingParameters.
_LEAST = {
    "max_batch_size": 1,
    "batch_timeout_micros": 0,
    "max_enqueued_batches": 1,
}


def resolve_batching(
    batching: Any, signatures: Sequence[Signature]
) -> dict[str, Any] | None:
    """Returns complete parameters of batching, or None."""
    if batching is None or batching is False:
        return None
    given = dict(batching) if isinstance(batching, Mapping) else {}
    found = given.pop(_SIZES, [])
    sizes = (
        [as_integer(n) or 0 for n in found]
        if isinstance(found, list | tuple)
        else [0]
    )
    defaults = {
        "max_batch_size": sizes[-1] if sizes else 32,
        "batch_timeout_micros": 1000,
    }
    numbers = {
        name: -1 if (number := as_integer(n)) is None else number
        for name, n in {**defaults, **given}.items()
    }
    largest = numbers["max_batch_size"]
    if not (
        (batching is True or isinstance(batching, Mapping))
        and all(x in _LEAST and n >= _LEAST[x] for x, n in numbers.items())
        and min(sizes, default=1) > 0
        and sizes == sorted({*sizes})
        and sizes[-1:] in ([], [largest])
    ):
        raise ValueError(
            "`batching=True` chooses the parameters. By name, "
            f"{', '.join(_LEAST)} must be integers above 0 (or a timeout of "
            f"0), and {_SIZES} increasing ones that end at max_batch_size. "
            f"Received: batching={batching!r}. Other parameters are of the "
            "server's own --batching_parameters_file"
        )
    powers = range((largest - 1).bit_length())
    sizes = sizes or [*(2**n for n in powers), largest]
    for signature in signatures:
        for name, spec in signature.specs.items():
            if not spec.shape or spec.shape[0] is not None:
                raise ValueError(
                    "`batching` needs inputs of any batch size. Received: "
                    f"signature '{signature.name}' with the input '{name}' of "
                    f"shape {tuple(spec.shape)}"
                )
    return {**numbers, _SIZES: sizes}


def write_batching(parameters: Mapping[str, Any], folder: Path) -> None:
    """Writes a `tensorflow.serving.BatchingParameters` in text format."""
    lines = [
        f"{name} {{ value: {value} }}"
        for name, value in parameters.items()
        if name != _SIZES
    ]
    lines += [f"{_SIZES}: {size}" for size in parameters[_SIZES]]
    lines += ["pad_variable_length_inputs: true", ""]
    with writing_to(folder.parent):
        (folder / BATCHING_FILE).write_text("\n".join(lines))


def is_padded_wrongly(signature: Signature) -> bool:
    """Returns whether examples padded with the first element would be wrong."""
    return "lengths" not in signature.specs and any(
        None in spec.shape[1:] for spec in signature.specs.values()
    )


WARMUP_FILE = Path("assets.extra", "tf_serving_warmup_requests")
MAX_RECORDS = 1000


def check_warmup(warmup: Any, verify: bool) -> None:
    """Raises `ValueError` or `ImportError` for what cannot be written."""
    if warmup is None or warmup is False:
        return
    if warmup is not True and not (
        isinstance(warmup, list | tuple) and 0 < len(warmup) <= MAX_RECORDS
    ):
        raise ValueError(
            "`warmup` must be True, for the inputs that the export is verified "
            f"with, or a list of 1 to {MAX_RECORDS} samples, or None. "
            f"Received: warmup={warmup!r:.80}"
        )
    if not verify:
        raise ValueError(
            "`warmup` cannot be used with `verify=False`: a server does not "
            "load a version whose warm-up fails, so it is tried before"
        )
    _import()


def warmup_requests(
    warmup: Any,
    fitted: Mapping[str, Sequence[Inputs]],
    reference: Reference,
    batching: Mapping[str, Any] | None,
) -> list[tuple[str, Inputs]]:
    """Returns what a server replays: signatures, and inputs of these."""
    if not warmup:
        return []
    found = [(name, each) for name in fitted for each in fitted[name]]
    if warmup is True:
        found = [
            (probe.signature, probe.inputs)
            for probe in reference.usual
            if not probe.is_of_tables  # large, and like no request
        ]
    requests = []
    for name, inputs in found:
        rows = len(next(iter(inputs.values())))
        # The server's queue takes no more examples at once than a batch has.
        size = max(rows, 1) if batching is None else batching["max_batch_size"]
        for start in range(0, rows, size):
            part = {key: x[start : start + size] for key, x in inputs.items()}
            requests.append((name, part))
    if len(requests) > MAX_RECORDS:
        raise ValueError(
            f"`warmup` makes {len(requests)} requests, and TensorFlow Serving "
            f"reads {MAX_RECORDS} at most"
        )
    return requests


def write_warmup(
    requests: Sequence[tuple[str, Inputs]], folder: Path, model_name: str
) -> None:
    """Writes requests for a SavedModel in `folder`."""
    if not requests:
        return
    import tensorflow as tf

    logs = _import()
    file = folder / WARMUP_FILE
    with writing_to(folder.parent):
        file.parent.mkdir()
    try:
        with tf.io.TFRecordWriter(str(file)) as writer:
            for signature, inputs in requests:
                log = logs.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = model_name
                request.model_spec.signature_name = signature
                for name, value in inputs.items():
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
