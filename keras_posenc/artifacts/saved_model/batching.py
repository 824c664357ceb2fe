"""How a server may batch requests."""

import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground.staging import writing_to
from keras_posenc.artifacts.signatures.signature import Signature

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
    """Complete parameters of batching, or None.

    Args:
        batching: True for parameters to begin with, or a dict of some.
        signatures: Those of the artifact.

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

    They are a `tensorflow.serving.BatchingParameters` in text format, which no
    Python package has.
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
    """Whether rows padded with the first element would be taken as real."""
    return "lengths" not in signature.specs and any(
        None in spec.shape[1:] for spec in signature.specs.values()
    )


def _powers_to(largest: int) -> list[int]:
    sizes = [1]
    while 2 * sizes[-1] < largest:
        sizes.append(2 * sizes[-1])
    return sizes if sizes[-1] == largest else [*sizes, largest]


def _is_integer(value: Any, lowest: int) -> bool:
    return (
        isinstance(value, numbers.Integral)
        and not isinstance(value, bool)
        and lowest <= int(value) < 2**63
    )
