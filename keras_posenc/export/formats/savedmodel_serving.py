"""Warm-up requests and batching, for servers of a SavedModel."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.checks import as_integer
from keras_posenc.export.errors import in_words
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import Inputs, fit_samples
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.publish import writing_to

BATCHING_FILE = "batching_params.pbtxt"

_SIZES = "allowed_batch_sizes"
# In the order of the message, tensorflow.serving.BatchingParameters.
_NUMBERS = (
    "max_batch_size",
    "batch_timeout_micros",
    "max_enqueued_batches",
    "max_execution_batch_size",
)
_DEFAULT = {"max_batch_size": 32, "batch_timeout_micros": 1000}


def resolve_batching(
    batching: Any, signatures: Sequence[Signature]
) -> dict[str, Any] | None:
    """Returns complete parameters of batching, or None.

    Args:
        batching: True for defaults, or a dict of some parameters.
        signatures: The signatures of the exported model.

    Raises:
        ValueError: An unknown parameter or one out of range, sizes that do not
            end at the largest batch, or a signature of fixed batch.
    """
    if batching is None or batching is False:
        return None
    if batching is not True and not isinstance(batching, Mapping):
        raise ValueError(
            "`batching` must be True, a dict of parameters, or None. "
            f"Received: batching={batching!r}"
        )
    given = {} if batching is True else dict(batching)
    for name, value in given.items():
        if name == "num_batch_threads":
            raise ValueError(
                "`batching`: all models share a server's threads, so it reads "
                "'num_batch_threads' from its own --batching_parameters_file "
                "('num_batch_threads { value: 4 }'), and not from a version"
            )
        if name not in (*_NUMBERS, _SIZES):
            raise ValueError(
                "`batching` may have the parameters "
                f"{', '.join((*_NUMBERS, _SIZES))}. Received: {name!r}"
            )
        lowest = 0 if name == "batch_timeout_micros" else 1
        values = value if name == _SIZES else [value]
        if (
            not isinstance(values, Sequence)
            or not values
            or not all(_is_integer(each, lowest) for each in values)
        ):
            kind = "a list of integers" if name == _SIZES else "an integer"
            raise ValueError(
                f"`batching`: '{name}' must be {kind} of at least {lowest}. "
                f"Received: {name}={value!r}"
            )
    sizes = list(map(int, given.pop(_SIZES, ())))
    limit = "max_batch_size"
    if "max_execution_batch_size" in given:
        limit = "max_execution_batch_size"
    if sizes:
        given.setdefault(limit, sizes[-1])
    parameters = {**_DEFAULT, **{key: int(n) for key, n in given.items()}}
    largest = parameters[limit]
    if largest > parameters["max_batch_size"]:
        raise ValueError(
            f"`batching`: '{limit}' must be 'max_batch_size' at most. "
            f"Received: {limit}={largest}, "
            f"max_batch_size={parameters['max_batch_size']}"
        )
    sizes = sizes or _powers_to(largest)
    if sizes != sorted(set(sizes)) or sizes[-1] != largest:
        raise ValueError(
            f"`batching`: '{_SIZES}' must increase, and end at '{limit}'. "
            f"Received: {_SIZES}={sizes}, {limit}={largest}"
        )
    for signature in signatures:
        for name, spec in signature.specs.items():
            if not spec.shape or spec.shape[0] is not None:
                raise ValueError(
                    "`batching` needs inputs of any batch size. Received: "
                    f"signature '{signature.name}' with the input '{name}' of "
                    f"shape {tuple(spec.shape)}"
                )
    return {**parameters, _SIZES: sizes}


def write_batching(parameters: Mapping[str, Any], folder: Path) -> None:
    """Writes parameters where `--enable_per_model_batching_parameters` looks.

    They are a `tensorflow.serving.BatchingParameters` in text format, a message
    that no Python package has.
    """
    lines = [
        f"{name} {{ value: {parameters[name]} }}"
        for name in _NUMBERS
        if name in parameters
    ]
    lines += [f"{_SIZES}: {size}" for size in parameters[_SIZES]]
    if "max_execution_batch_size" in parameters:
        lines.append("enable_large_batch_splitting { value: true }")
    lines += ["pad_variable_length_inputs: true", ""]
    with writing_to(folder.parent):
        (folder / BATCHING_FILE).write_text("\n".join(lines))


def is_padded_wrongly(signature: Signature) -> bool:
    """Returns whether examples padded with the first element would be wrong."""
    return "lengths" not in signature.specs and any(
        None in spec.shape[1:] for spec in signature.specs.values()
    )


def _powers_to(largest: int) -> list[int]:
    sizes = [1]
    while 2 * sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    return sizes if sizes[-1] == largest else [*sizes, largest]


def _is_integer(value: Any, lowest: int) -> bool:
    number = as_integer(value)
    return number is not None and lowest <= number < 2**63


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


def warmup_probes(
    warmup: Any,
    fitted: Mapping[str, Sequence[Inputs]],
    reference: Reference,
    batching: Mapping[str, Any] | None,
) -> list[Probe]:
    """Returns the verified batches that a server replays.

    The server puts them into its queue of batches, which takes no more examples
    at once than a batch has: larger ones are split.

    Args:
        warmup: See `export_saved_model`.
        fitted: If it is a list of samples, those of each signature.
        reference: The verified batches.
        batching: The parameters of batching, or None.

    Raises:
        ValueError: They are more than a server reads.
    """
    if not warmup:
        return []
    probes = list(
        {
            (probe.signature, _key(probe.inputs)): probe
            for probe in reference.usual
            if not probe.is_of_tables  # large, and like no request
        }.values()
    )
    if warmup is not True:
        wanted = {
            (name, _key(inputs))
            for name, found in fitted.items()
            for inputs in found
        }
        probes = [
            probe
            for probe in probes
            if (probe.signature, _key(probe.inputs)) in wanted
        ]
    if batching is not None:
        largest = batching["max_batch_size"]
        probes = [part for each in probes for part in _parts(each, largest)]
    if len(probes) > MAX_RECORDS:
        raise ValueError(
            f"`warmup` makes {len(probes)} requests, and TensorFlow Serving "
            f"reads {MAX_RECORDS} at most"
        )
    return probes


def fit_warmup(
    warmup: Any, signatures: Sequence[Signature]
) -> dict[str, list[Inputs]]:
    """Returns the warm-up samples by the signatures that take them."""
    given = warmup if isinstance(warmup, list | tuple) else None
    return fit_samples(signatures, given, "warmup")


def write_warmup(
    probes: Sequence[Probe], folder: Path, model_name: str
) -> None:
    """Writes requests for a SavedModel in `folder`."""
    if not probes:
        return
    import tensorflow as tf

    logs = _import()
    file = folder / WARMUP_FILE
    with writing_to(folder.parent):
        file.parent.mkdir()
    try:
        with tf.io.TFRecordWriter(str(file)) as writer:
            for probe in probes:
                log = logs.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name = model_name
                request.model_spec.signature_name = probe.signature
                for name, value in probe.inputs.items():
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


def _parts(probe: Probe, largest: int) -> Iterator[Probe]:
    rows = len(next(iter(probe.inputs.values())))
    for start in range(0, rows, largest):
        inputs = {
            name: value[start : start + largest]
            for name, value in probe.inputs.items()
        }
        yield dataclasses.replace(probe, inputs=inputs)


def _key(inputs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        (name, value.shape, tuple(value.ravel().tolist()))
        for name, value in inputs.items()
    )
