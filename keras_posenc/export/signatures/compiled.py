"""Signatures that XLA compiles, for texts padded to one of a few lengths.

XLA compiles one program for each shape. Inputs of unknown size are padded
inside the signature to one of a few sizes, so that there is one program for
each of them. Larger inputs run in the graph, uncompiled.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.checks import as_integer
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.signatures.cut_strings import cut_strings, lookups
from keras_posenc.export.signatures.lengths import padding_of
from keras_posenc.export.signatures.signature import Oracle, Signature
from keras_posenc.keras_internals import layers_within

# Small graphs spend their time on starting operators, which XLA avoids. Larger
# batches spend it on products, which padding makes larger.
_DEFAULT = {"batch_sizes": (1,), "lengths": (16, 32, 64, 128)}

# Longer programs would lose more by padding than they save.
_MOST = 2**14

_LOW = ("float16", "bfloat16")

Call = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the programs: each batch size with each length."""

    batch_sizes: tuple[int, ...]
    lengths: tuple[int, ...]

    def pairs(self) -> list[tuple[int, int]]:
        return [*itertools.product(self.batch_sizes, self.lengths)]


def resolve_compiled(compiled: Any) -> Sizes | None:
    """Returns the sizes to compile for, or None.

    Args:
        compiled: True for default sizes, or a dict of `lengths` and
            `batch_sizes`, or of one of them.

    Raises:
        ValueError: Anything else, or sizes that do not increase.
    """
    if compiled is None or compiled is False:
        return None
    if compiled is not True and not isinstance(compiled, Mapping):
        raise ValueError(
            "`compiled` must be True, a dict of `lengths` and `batch_sizes`, "
            f"or None. Received: compiled={compiled!r}"
        )
    given: dict[str, Any] = {} if compiled is True else dict(compiled)
    for name, sizes in given.items():
        if name not in _DEFAULT:
            raise ValueError(
                "`compiled` may have `lengths` and `batch_sizes`. Received: "
                f"{name!r}"
            )
        if not _are_sizes(sizes):
            raise ValueError(
                f"`compiled`: '{name}' must be integers above 0 that increase, "
                f"up to {_MOST}, such as {[*_DEFAULT[name]]}. Received: "
                f"{name}={sizes!r}"
            )
    chosen = {**_DEFAULT, **given}
    return Sizes(**{name: tuple(map(int, chosen[name])) for name in _DEFAULT})


def compile_signatures(
    signatures: Sequence[Signature], sizes: Sizes
) -> list[Signature]:
    """Returns the same signatures, compiled by XLA for these sizes.

    In a signature that takes strings, the part after the strings is compiled.
    If another signature begins there, both use the same programs.

    Raises:
        ValueError: A signature cannot be compiled; the message says why.
    """
    compiled = {
        each.name: _compiled(each, sizes)
        for each in signatures
        if not takes_strings(each)
    }
    cut = next((each for each in signatures if each.cut_at is not None), None)
    numeric = None if cut is None else compiled[cut.name]
    return [
        _compiled_after_strings(each, numeric)
        if takes_strings(each)
        else compiled[each.name]
        for each in signatures
    ]


def takes_strings(signature: Signature) -> bool:
    """Returns whether any input is strings."""
    return any(spec.dtype == "string" for spec in signature.specs.values())


def _compiled_after_strings(
    signature: Signature, numeric: Signature | None
) -> Signature:
    if numeric is None:
        raise _refusal(
            signature,
            "no other signature takes its ids, which is needed to verify each "
            "program",
        )
    try:
        cut = cut_strings(signature)
    except ValueError as error:
        raise _refusal(
            signature, f"it cannot be cut after its strings: {error}"
        ) from error
    assert cut.strings is not None
    to_numbers = cut.strings.to_numbers
    call = numeric.call
    return dataclasses.replace(
        signature,
        call=lambda tensors: call(to_numbers(tensors)),
        oracle=Oracle(signature),
    )


def _compiled(signature: Signature, sizes: Sizes) -> Signature:
    model = signature.model
    if Offers.of(model).retrace is not None:
        raise _refusal(signature, "its outputs are choices, as a generator's")
    if looked_up := [*lookups(signature)]:
        raise _refusal(
            signature, f"it looks up '{looked_up[0]}' in a vocabulary"
        )
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    if any(tensor.dtype == "string" for tensor in outputs):
        raise _refusal(signature, "an output of its model holds strings")
    for layer in layers_within(model):
        if layer.compute_dtype in _LOW:
            raise _refusal(
                signature,
                f"layer '{layer.name}' computes in {layer.compute_dtype}, "
                "which compiled programs round differently",
            )
    for name, spec in signature.specs.items():
        if spec.shape[1:].count(None) > 1:
            raise _refusal(
                signature,
                f"its input '{name}', of shape {tuple(spec.shape)}, has more "
                "than one dynamic length",
            )
    return dataclasses.replace(
        signature,
        call=_by_programs(signature, sizes),
        oracle=Oracle(signature),
        programs=sizes.pairs(),
    )


def _refusal(signature: Signature, reason: str) -> ValueError:
    return ValueError(
        f"`compiled`: XLA cannot compile signature '{signature.name}': {reason}"
    )


def _by_programs(signature: Signature, sizes: Sizes) -> Call:
    """Returns a call that pads inputs to the next sizes and runs their program.

    Inputs of different lengths, and larger ones, go to the graph.
    """
    import tensorflow as tf

    program = tf.function(signature.call, autograph=False, jit_compile=True)
    next_sizes = _next(sizes.batch_sizes), _next(sizes.lengths)
    specs = signature.specs
    pad_ids = {name: padding_of(signature, name) for name in specs}
    ids = max(
        (
            layer.input_dim
            for layer in layers_within(signature.model)
            if isinstance(layer, keras.layers.Embedding)
        ),
        default=None,
    )
    # Axis 0 of any input is the batch; one later axis may be the length.
    unknown = [
        (name, axis, min(axis, 1))
        for name, spec in specs.items()
        for axis, size in enumerate(spec.shape)
        if size is None
    ]

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        found: list[Any] = [None, None]  # the batch, and the length
        # For an id beyond its table a program would return another row without
        # an error; the graph raises one.
        fits = [
            tf.reduce_all((tensors[name] >= 0) & (tensors[name] < ids))
            for name, spec in specs.items()
            if ids and "int" in spec.dtype and len(spec.shape) > 1
        ]
        for name, axis, kind in unknown:
            size = tf.shape(tensors[name])[axis]
            if found[kind] is None:
                found[kind] = size
                fits.append(size < len(next_sizes[kind]))
            else:
                fits.append(tf.equal(size, found[kind]))

        def by_program() -> dict[str, Any]:
            more = [
                0 if size is None else tf.gather(known, size) - size
                for known, size in zip(next_sizes, found, strict=True)
            ]
            padded = {}
            for name, spec in specs.items():
                widths: list[Any] = [[0, 0] for _ in spec.shape]
                for axis, size in enumerate(spec.shape):
                    if size is None:
                        widths[axis][1] = more[min(axis, 1)]
                value = _padding_value(name, spec, pad_ids[name])
                # Padding loses static sizes, such as the channels.
                padded[name] = tf.ensure_shape(
                    tf.pad(tensors[name], widths, constant_values=value),
                    spec.shape,
                )
            return {
                name: _without_padding(output, found)
                for name, output in program(padded).items()
            }

        if not fits:
            return by_program()
        return tf.cond(
            functools.reduce(tf.logical_and, fits),
            by_program,
            lambda: signature.call(tensors),
        )

    return call


def _padding_value(name: str, spec: keras.InputSpec, pad_id: int) -> Any:
    """Returns the value that pads an input: 0 for masks and numbers."""
    if spec.dtype == "bool":
        return False
    return pad_id if "int" in spec.dtype and "mask" not in name else 0


def _without_padding(output: Any, size: Sequence[Any]) -> Any:
    """Returns the examples and positions of an output that the inputs have."""
    import tensorflow as tf

    if None not in output.shape:
        return output
    kept = [
        size[min(axis, 1)] if known is None else known
        for axis, known in enumerate(output.shape)
    ]
    rest = [-1 if each is None else each for each in kept]
    return tf.ensure_shape(
        tf.slice(output, [0] * len(rest), rest), output.shape
    )


def _next(sizes: Sequence[int]) -> np.ndarray:
    """Returns for each size from 0 on the next larger of the given sizes."""
    places = np.searchsorted(sizes, np.arange(sizes[-1] + 1))
    return np.take(np.array(sizes, "int32"), places)


def _are_sizes(sizes: Any) -> bool:
    return (
        isinstance(sizes, Sequence)
        and len(sizes) > 0
        and all(as_integer(size) is not None for size in sizes)
        and list(sizes) == sorted({*sizes})
        and 0 < sizes[0] <= sizes[-1] <= _MOST
    )
