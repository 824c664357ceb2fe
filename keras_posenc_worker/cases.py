"""The cases that an exported model was verified with, as one file.

`NAME.cases.npz` is a file as `codec` writes it. Any program that reads zip
files can read it: `cases.js`, `Replay.kt` and `Replay.swift` in `export/` do.
Each case has a signature, its inputs, and for each output what the model gave:

- `values`: the output; of more than 4,096 numbers as many, and `places`, where
  they are in the flattened output: in all rows, or as many as numbers are kept,
  and likewise in all columns of its last axis;
- `shape`: the output's shape;
- `scale`: how large the output's numbers are;
- `allowed`: the largest difference allowed, relative to the number or to
  `scale` if that is larger; of integers, booleans and texts the share that may
  differ. It is the tolerance of the verification, or twice what the verified
  file differed by in this case if that is more: for quantized files, and for
  extreme inputs.
"""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_posenc_worker import codec

MOST_BYTES = 64 * 1024**2  # that are read of a stranger's file
_BUDGET = 4 * 1024**2  # of a file, unless one case of a signature is larger
_SAMPLED = 4096  # numbers kept of an output
_STEP = 2**31 - 1  # a prime
_MOST_OFF = 0.25


def pack(record: Any) -> bytes:
    """Returns a record, and the arrays in it, as the bytes of a file."""
    file = io.BytesIO()
    codec.write(file, record)
    return file.getvalue()


def unpack(content: bytes) -> dict[str, Any]:
    """Returns a record with its arrays, if an export writes such a one."""
    try:
        record = codec.read(io.BytesIO(content))
    except MemoryError:
        raise ValueError("its arrays do not fit into memory") from None
    try:
        is_right = (
            all(isinstance(record[name], kind) for name, kind in _KINDS.items())
            and _are(str, record["files"].values())
            and _are(str, [*record["signatures"], *record["weights"]])
            and _are(str, record["versions"].values())
            and all(map(_is_case, record["cases"]))
        )
    except (AttributeError, KeyError, TypeError):
        is_right = False
    if not is_right:
        raise ValueError("it does not hold what an export writes")
    return record


def make_case(
    signature: str,
    inputs: Mapping[str, Any],
    wanted: Mapping[str, Any],
    got: Mapping[str, Any],
    scales: Mapping[str, float],
    tolerance: float,
    *,
    is_sample: bool = False,
) -> dict[str, Any]:
    """Returns a case as it is kept.

    `got` are the outputs of the file that was verified. Those that are off by a
    quarter are named in `not_compared`: a limit would say nothing of them.
    """
    outputs, not_compared = {}, []
    for name, value in wanted.items():
        scale = float(scales.get(name, 1.0))
        off = difference(value, got[name], scale, is_sample=is_sample)
        allowed = tolerance if "float" in value.dtype.name else 0.0
        if off >= _MOST_OFF:
            not_compared.append(name)
            continue
        outputs[name] = {
            **_some(value),
            "scale": scale,
            "allowed": max(allowed, 2 * off),
        }
    return {
        "signature": signature,
        "is_sample": is_sample,
        "inputs": dict(inputs),
        "outputs": outputs,
        "not_compared": not_compared,
    }


def within_budget(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns cases of a few MB: first the smallest of each signature."""
    sizes = [len(pack(case)) for case in cases]
    order = sorted(range(len(cases)), key=sizes.__getitem__)
    first = {cases[index]["signature"]: index for index in reversed(order)}
    kept, total = set[int](), 0
    for chosen, most in ((first.values(), MOST_BYTES // 4), (order, _BUDGET)):
        for index in chosen:
            if index not in kept and total + sizes[index] <= most:
                kept.add(index)
                total += sizes[index]
    return [cases[index] for index in sorted(kept)]


def _some(value: Any) -> dict[str, Any]:
    import numpy as np

    found: dict[str, Any] = {"shape": list(value.shape), "values": value}
    if value.size > _SAMPLED:
        count, width = np.arange(_SAMPLED), value.shape[-1]
        rows = count * (value.size // width) // _SAMPLED
        # A step that has no divisor in common with a width meets all columns.
        places = rows * width + count * _STEP % width
        found["places"] = places.astype("int32")
        found["values"] = value.reshape(-1)[places]
    return found


def distances(wanted: Any, got: Any, scale: float) -> Any:
    """Returns how far each number of an output is from the one that is wanted.

    Of floats relative to the number, or to `scale` if that is larger. Infinity
    if just one is finite; of integers, booleans and texts if they differ.
    """
    import numpy as np

    if "float" not in wanted.dtype.name:
        return np.where(wanted == got, 0.0, np.inf)
    wanted, got = wanted.astype("float64"), got.astype("float64")
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - wanted) / np.maximum(scale, np.abs(wanted))
    same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    apart = np.where(same, 0.0, apart)
    return np.where(np.isnan(apart), np.inf, apart)


def difference(
    wanted: Any, got: Any, scale: float, *, is_sample: bool = True
) -> float:
    """Returns the largest of `distances`; of integers the share that differs.

    Unless `is_sample`, nothing is compared where NaN or infinity is wanted.
    """
    import numpy as np

    if wanted.size == 0:
        return 0.0
    if wanted.dtype == object:
        pairs = zip(wanted.ravel(), got.ravel(), strict=True)
        same = [codec.to_bytes(x) == codec.to_bytes(y) for x, y in pairs]
        return 1.0 - float(np.mean(same))
    apart = distances(wanted, got, scale)
    if "float" not in wanted.dtype.name:
        return float(np.mean(apart > 0))
    if not is_sample:
        apart = apart[np.isfinite(wanted.astype("float64"))]
    return float(np.max(apart, initial=0.0))


def unlike(got: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """Returns why an output has no difference from the model's, or ""."""
    if got is None:
        return "is no output of the file"
    if got.shape != shape:
        return f"has shape {got.shape}, the model's {shape}"
    kinds = [_kind(each) for each in (got.dtype, dtype)]
    return (
        "" if kinds[0] == kinds[1] else "has {}, the model's {}".format(*kinds)
    )


def compared(
    case: Mapping[str, Any], response: Mapping[str, Any]
) -> Iterator[tuple[str, float, float, str]]:
    """Yields output, difference, the difference allowed, and any error."""
    if "error" in response:
        yield "", math.inf, 0.0, " ".join(response["error"].split())
        return
    for name, wanted in case["outputs"].items():
        got, values = response["outputs"].get(name), wanted["values"]
        off, allowed = math.inf, wanted["allowed"]
        error = unlike(got, tuple(wanted["shape"]), values.dtype)
        if not error:
            if "places" in wanted:
                got = got.reshape(-1)[wanted["places"]]
            is_sample = case["is_sample"]
            off = difference(values, got, wanted["scale"], is_sample=is_sample)
        yield name, off, allowed, error


def _kind(dtype: Any) -> str:
    if "float" in dtype.name:  # bfloat16 too
        return "floats"
    names = {"O": "texts", "b": "booleans", "i": "integers", "u": "integers"}
    return names.get(dtype.kind, dtype.name)


_KINDS: dict[str, Any] = {
    "kind": str,
    "quantization": str | None,
    **dict.fromkeys(["files", "versions"], dict),
    **dict.fromkeys(["signatures", "weights", "cases"], list),
}


def _are(kind: Any, values: Iterable[Any]) -> bool:
    return all(isinstance(each, kind) for each in values)


def _is_case(case: Mapping[str, Any]) -> bool:
    import numpy as np

    return (
        _are(str, [case["signature"], *case["not_compared"]])
        and isinstance(case["is_sample"], bool)
        and _are(np.ndarray, case["inputs"].values())
        and all(map(_is_output, case["outputs"].values()))
    )


def _is_output(output: Mapping[str, Any]) -> bool:
    """Returns whether the numbers that are kept have a place in the output."""
    import numpy as np

    size, values = math.prod(output["shape"]), output["values"]
    places = output.get("places")
    if places is None:
        fits = values.shape == tuple(output["shape"])
    else:
        fits = values.shape == places.shape and places.dtype.name == "int32"
        fits = fits and bool(((places >= 0) & (places < size)).all())
    return (
        fits
        and isinstance(values, np.ndarray)
        and 0 <= output["allowed"] < math.inf
        and 0 < output["scale"] < math.inf
    )
