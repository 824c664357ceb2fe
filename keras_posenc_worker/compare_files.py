"""Compares a LiteRT or ONNX file with a new conversion of its model.

The file may come from anyone: it is parsed in a worker, and not run.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from keras_posenc_worker.fingerprint import (
    Constant,
    Fingerprint,
    fingerprint,
)
from keras_posenc_worker.formats import litert_schema
from keras_posenc_worker.litert_graph import read_litert
from keras_posenc_worker.onnx_graph import read_onnx

_SHOWN = 300  # characters
_ROUNDING = 4  # units in the last place: how far processors fold apart
_HALF = 0.5 * (1 + 1e-3)  # a step of rounding, as float32 may fall

PREFIX = "weights/"  # of the model's weights, in a file of arrays


def prepare(kind: str) -> None:
    """Imports the modules of a kind's format ahead of time."""
    import numpy  # noqa: F401

    if kind == "litert":
        litert_schema()
    else:
        import onnx.numpy_helper  # noqa: F401


def main(
    reference: str, exported: str, weights: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Returns how an exported file differs from a reference.

    The result is that of `compare`, and `writer`: the name of another writer,
    if the file says one.

    Args:
        reference: The path of the new conversion.
        exported: The path of the file to compare.
        weights: The path of an npz file of the model's weights, by their names
            after `PREFIX`.
        options: `kind`, "litert" or "onnx", and the arguments of `read_litert`
            or `read_onnx`.
    """
    import numpy as np

    paths = reference, exported
    given = dict(options)
    writer = ""
    if given.pop("kind") == "onnx":
        (one, ours), (other, theirs) = (
            read_onnx(path, **given) for path in paths
        )
        writer = ", ".join(
            f"{name} {version}".strip()
            for name, version in theirs.items()
            if ours.get(name) != version
        )
    else:
        one, other = (read_litert(path, **given) for path in paths)
    with np.load(weights, allow_pickle=False) as file:
        values = {
            name.removeprefix(PREFIX): value for name, value in file.items()
        }
    found = compare(fingerprint(one), fingerprint(other), values)
    return {**found, "writer": writer[:_SHOWN]}


def compare(
    one: Fingerprint, other: Fingerprint, weights: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns how an exported file differs from a reference.

    Args:
        one: The reference.
        other: The exported file.
        weights: The model's weights, by their names.

    Returns:
        `graph`: how the structure differs, as text, or None. If it differs,
        only the weights are compared. `weights`: the names of weights that the
        file does not have as the reference does. `constants`: other numbers and
        settings that differ, as text. `unsure`: those that may differ for a
        good reason. `folded`: if the structure differs, the names of weights
        that the reference does not have unchanged, and that are not looked for.
    """
    found: dict[str, set[str]] = {
        key: set() for key in ("weights", "constants", "unsure", "folded")
    }
    graph = _difference(one, other)
    if graph is None:
        for (place, a), (_, b) in zip(one.numbers, other.numbers, strict=True):
            if difference := _compare(place, a, b, weights):
                key, words = difference
                found[key].add(words)
    else:
        for name, value in weights.items():
            if value.size and not _has(one, value):
                found["folded"].add(name)
            elif value.size and not _has(other, value):
                found["weights"].add(name)
    return {"graph": graph, **{key: sorted(x) for key, x in found.items()}}


def _difference(one: Fingerprint, other: Fingerprint) -> str | None:
    """Returns the first difference in structure of two files, as text."""
    for wanted, found in itertools.zip_longest(
        one.tokens, other.tokens, fillvalue=("the end", "")
    ):
        if wanted != found:
            words = f"{found[0]}: {found[1]}, not "
            if wanted[0] != found[0]:
                words += f"{wanted[0]}: "
            return f"{words}{wanted[1]}"[:_SHOWN]
    return None


def _compare(
    place: str, one: Any, other: Any, weights: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Compares what two files have in a place: constants, or settings.

    Returns:
        Under which key of `compare` a difference belongs, and its words.
    """
    if not isinstance(one, Constant):
        if repr(one) == repr(other):
            return None
        return "constants", f"{place} is {other}, not {one}"
    is_scaled_alike = (one.scale, one.zero, one.axis) == (
        (other.scale, other.zero, other.axis)
    )
    if is_scaled_alike and _is_equal(one.array, other.array):
        return None
    words = describe_difference(place, one.array, other.array)
    sources = dict(_sources(one, weights))
    if one.is_measured and _is_rounded(one) and _is_rounded(other):
        if any(_is_rounding_of(x, other) for x in sources.values()):
            return None
        if not sources and _is_near(one, other):  # of several weights
            return None
    if sources:
        return "weights", " or ".join(sorted(sources))
    if is_scaled_alike and _is_rounding(one.array, other.array):
        return "unsure", f"the last bits: {words}"
    return "constants", words


def _sources(
    constant: Constant, weights: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yields the weights that a constant is, in its layout."""
    if constant.name in weights:
        yield constant.name, weights[constant.name]
        return
    for name, value in weights.items():
        for laid in _layouts(value):
            if _is_of(laid, constant):
                yield name, laid.reshape(constant.array.shape)
                break


def _has(found: Fingerprint, value: Any) -> bool:
    """Returns whether a file's outputs depend on a weight."""
    return any(
        _is_of(laid, constant)
        for laid in _layouts(value)
        for _, constant in found.numbers
        if isinstance(constant, Constant)
        # An integer bias has the scale of its sums, which is unknown here.
        and not (_is_rounded(constant) and constant.array.dtype == "int32")
    )


def describe_difference(place: str, one: Any, other: Any) -> str:
    """Returns how an array differs from the one wanted.

    Args:
        place: The array's name as text.
        one: The array that is wanted.
        other: The array that is found, with other bytes.
    """
    import numpy as np

    kinds = [f"{each.dtype} of shape {each.shape}" for each in (other, one)]
    if kinds[0] != kinds[1]:
        return f"{place} is {kinds[0]}, not {kinds[1]}"
    theirs, ours = (each.reshape(-1, 1) for each in (other, one))
    if one.dtype == object:  # strings
        is_other = theirs != ours
    else:  # NaN, and zeros of both signs, as they are written
        bits = [np.ascontiguousarray(x).view("uint8") for x in (theirs, ours)]
        is_other = bits[0] != bits[1]
    found = np.flatnonzero(is_other.any(axis=-1))
    if not found.size:
        return f"{place} has another scale"
    first = found[0]
    values = f"{theirs[first].item()!r}, not {ours[first].item()!r}"
    if one.size == 1:
        return f"{place} is {values}"
    where = [int(i) for i in np.unravel_index(first, one.shape)]
    return (
        f"{place} has other numbers: {found.size} of {one.size} differ, the "
        f"first, at {where}, is {values}"
    )


def _is_equal(one: Any, other: Any) -> bool:
    """Returns whether two arrays are the same, bit by bit."""
    import numpy as np

    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype == object:  # strings
        return bool(one.tolist() == other.tolist())
    ours, theirs = (
        np.ascontiguousarray(each).view("uint8") for each in (one, other)
    )
    return np.array_equal(ours, theirs)


def _is_rounding(one: Any, other: Any) -> bool:
    """Returns whether another processor's rounding may be the difference."""
    import numpy as np

    kinds = [(each.dtype, each.shape) for each in (one, other)]
    if kinds[0] != kinds[1] or one.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, NaN
        step = np.spacing(np.maximum(np.abs(one), np.abs(other)))
        return bool(
            np.all(
                (np.abs(one - other) <= _ROUNDING * step)
                | (one == other)
                | (np.isnan(one) & np.isnan(other))
            )
        )


def _layouts(array: Any) -> Iterator[Any]:
    """Yields a weight with its axes in each order that a file may have."""
    import numpy as np

    orders = itertools.permutations(range(array.ndim))
    for order in orders if array.ndim <= 4 else [range(array.ndim)]:
        yield np.ascontiguousarray(array.transpose(order))


def _is_of(value: Any, constant: Constant) -> bool:
    """Returns whether a constant is a weight, exactly or correctly rounded."""
    import numpy as np

    if value.size != constant.array.size:
        return False
    value = value.reshape(constant.array.shape)
    if _is_rounded(constant) and value.dtype.kind == "f":
        return _is_rounding_of(value, constant)
    if constant.array.dtype == "float16":
        with np.errstate(over="ignore"):
            value = value.astype("float16")
    return _is_equal(value, constant.array)


def _is_rounded(constant: Constant) -> bool:
    """Returns whether these are integers that mean real numbers."""
    return len(constant.scale) > 0 and constant.array.dtype.kind == "i"


def _is_whole(constant: Constant) -> bool:
    """Returns whether it has as many scales as it needs."""
    count, shape = len(constant.scale), constant.array.shape
    return len(constant.zero) == count and (
        count == 1
        or (0 <= constant.axis < len(shape) and count == shape[constant.axis])
    )


def _by_channel(constant: Constant, values: list[Any]) -> Any:
    """Returns values, one or one for each channel, laid out for the array."""
    import numpy as np

    shape = [1] * constant.array.ndim
    if len(values) > 1:
        shape[constant.axis] = len(values)
    return np.reshape(np.asarray(values, "float64"), shape)


def _is_rounding_of(value: Any, constant: Constant) -> bool:
    """Returns whether integers are a weight, quantized by a correct scale.

    A correct scale follows from the largest number of its channel, or of all. A
    calibrated scale, measured on some rows of a table or on inputs, may be
    smaller; larger numbers are clipped then.
    """
    import numpy as np

    if not _is_whole(constant):
        return False
    scale = _by_channel(constant, constant.scale)
    zero = _by_channel(constant, constant.zero)
    if not (np.all(np.isfinite(scale)) and np.all(scale > 0)):
        return False
    value = value.astype("float64")
    limits = np.iinfo(constant.array.dtype)
    is_measured = (
        constant.is_measured
        and constant.array.dtype == "int8"
        and len(constant.scale) == 1
    )
    if not np.all(
        (zero >= limits.min) & (zero <= limits.max)
        if is_measured
        else zero == 0
    ):
        return False
    if constant.array.dtype == "int8":
        axes: tuple[int, ...] | None = None
        if len(constant.scale) > 1:
            axes = tuple(i for i in range(value.ndim) if i != constant.axis)
        low = np.minimum(np.min(value, axis=axes, keepdims=True), 0)
        high = np.maximum(np.max(value, axis=axes, keepdims=True), 0)
        right = np.maximum(-low, high) / 127
        is_empty = right == 0
        is_right = np.abs(scale / np.where(is_empty, 1, right) - 1) <= 1e-6
        if is_measured:
            is_right |= scale <= (high - low) / 255 * (1 + 1e-6)
        if not np.all(is_right | is_empty):
            return False
    wanted = np.clip(value / scale + zero, limits.min, limits.max)
    return bool(np.all(np.abs(constant.array - wanted) <= _HALF))


def _is_near(one: Constant, other: Constant) -> bool:
    """Returns whether integers of two scales may mean the same numbers."""
    import numpy as np

    if one.array.shape != other.array.shape or not (
        _is_whole(one) and _is_whole(other)
    ):
        return False
    step = _by_channel(one, one.scale) + _by_channel(other, other.scale)
    values = [
        (each.array - _by_channel(each, each.zero))
        * _by_channel(each, each.scale)
        for each in (one, other)
    ]
    return bool(np.all(np.abs(values[0] - values[1]) <= _HALF * step))
