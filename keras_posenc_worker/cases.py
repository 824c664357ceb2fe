"""The cases that an exported model was verified with, as one file.

`NAME.cases.npz` is an uncompressed zip file: `record.json`, and the arrays that
it names, each as NumPy's `.npy`, in C order. `numpy.load` opens it, and so does
any program that reads zip files: `cases.js`, `Replay.kt` and `Replay.swift` in
`export/` do. Each case has a signature, its inputs, and for each output
what the model gave:

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
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_posenc_worker import codec

RECORD = "record.json"
MOST_BYTES = 64 * 1024**2  # that are read of a stranger's file
_BUDGET = 4 * 1024**2  # of a file, unless one case of a signature is larger
_SAMPLED = 4096  # numbers kept of an output
_STEP = 2**31 - 1  # a prime
_MOST_OFF = 0.25


class CasesError(ValueError):
    """The file holds no cases that can be used."""


def pack(record: Mapping[str, Any]) -> bytes:
    """Returns a record, and the arrays in it, as the bytes of a file."""
    import numpy as np

    text, arrays = codec.encoded(record)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        # A date of its own, which is the same in each export.
        members.writestr(zipfile.ZipInfo(RECORD), text)
        for name, array in arrays.items():
            with members.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                ordered = np.asarray(array, order="C")
                np.lib.format.write_array(member, ordered, allow_pickle=False)
    return file.getvalue()


def unpack(content: bytes) -> dict[str, Any]:
    """Returns a record with its arrays.

    Raises:
        CasesError: The file is torn, or no file of cases.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as members:
            if any(each.compress_type for each in members.infolist()):
                raise CasesError("its arrays are compressed")
            left = [each.filename for each in members.infolist()]

            def array(name: str) -> Any:  # each once, or memory has no limit
                left.remove(f"{name}.npy")
                return _array(members.read(f"{name}.npy"))

            found = codec.decoded(members.read(RECORD).decode(), array)
    except (
        zipfile.BadZipFile,
        AttributeError,
        EOFError,
        KeyError,
        OverflowError,
        RuntimeError,  # also of encryption, and of deep JSON
        TypeError,
        ValueError,
    ) as error:
        raise CasesError(str(error) or type(error).__name__) from error
    if not isinstance(found, dict):
        raise CasesError("its record is not a JSON object")
    return found


def _array(content: bytes) -> Any:
    import numpy as np

    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise CasesError("an array is not of version 1.0 of the format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    # Else a header could ask for any amount of memory.
    if math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise CasesError("an array has another size than its header says")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


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

    Args:
        signature: Name of the signature.
        inputs: The inputs.
        wanted: The model's outputs.
        got: The outputs of the file that was verified.
        scales: How large each output is.
        tolerance: Largest difference allowed.
        is_sample: Whether a user gave the inputs. Then a NaN must be a NaN.

    Returns:
        The case. Outputs that are off by a quarter of their size, or of which a
        quarter differs, are named in `not_compared`: a limit would say nothing
        of them.
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


def within_budget(
    cases: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], int]:
    """Returns cases of a few MB in all, and how many are left out.

    The smallest of each signature is kept, then further ones by their size.
    """
    order = sorted(range(len(cases)), key=lambda index: _size(cases[index]))
    kept, total, seen = set(), 0, set()
    for is_first in (True, False):
        for index in order:
            name, size = cases[index]["signature"], _size(cases[index])
            if index in kept or (is_first and name in seen):
                continue
            if total + size > (MOST_BYTES // 4 if is_first else _BUDGET):
                continue
            seen.add(name)
            kept.add(index)
            total += size
    return [cases[index] for index in sorted(kept)], len(cases) - len(kept)


def _size(case: Mapping[str, Any]) -> int:
    arrays = [
        *case["inputs"].values(),
        *(each["values"] for each in case["outputs"].values()),
    ]
    return sum(
        sum(2 * len(codec.to_bytes(text)) + 8 for text in array.ravel())
        if array.dtype == object
        else array.nbytes
        for array in arrays
    )


def _some(value: Any) -> dict[str, Any]:
    """Returns an output as it is kept: see the module's text."""
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


def difference(
    wanted: Any, got: Any, scale: float, *, is_sample: bool = True
) -> float:
    """Returns how far an output is from the one that is wanted.

    Args:
        wanted: The output that is wanted.
        got: The output of a file, of the same shape.
        scale: The size below which differences are absolute.
        is_sample: Whether NaN is only equal to NaN, and infinity to infinity.
            Otherwise nothing is compared where these are wanted.

    Returns:
        Of floats the largest difference relative to the number, or to `scale`
        if that is larger; infinity if one is not finite and the other is. Of
        integers, booleans and texts the share that differs.
    """
    import numpy as np

    if wanted.size == 0:
        return 0.0
    if "float" not in wanted.dtype.name:
        if wanted.dtype == object:
            pairs = zip(wanted.ravel(), got.ravel(), strict=True)
            same = [codec.to_bytes(x) == codec.to_bytes(y) for x, y in pairs]
            return 1.0 - float(np.mean(same))
        return float(np.mean(wanted != got))
    wanted, got = (each.ravel().astype("float64") for each in (wanted, got))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - wanted) / np.maximum(scale, np.abs(wanted))
    apart[(wanted == got) | (np.isnan(wanted) & np.isnan(got))] = 0.0
    if not is_sample:
        apart[~np.isfinite(wanted)] = 0.0
    return float(np.max(np.where(np.isnan(apart), np.inf, apart)))


def compared(
    case: Mapping[str, Any], response: Mapping[str, Any]
) -> Iterator[tuple[str, float, float, str]]:
    """Yields output, difference, the difference allowed, and any error.

    Args:
        case: A case of a file.
        response: What a runtime gives: `outputs`, or `error`.
    """
    if "error" in response:
        yield "", math.inf, 0.0, " ".join(response["error"].split())
        return
    for name, wanted in case["outputs"].items():
        got = response["outputs"].get(name)
        shape, allowed = tuple(wanted["shape"]), wanted["allowed"]
        if got is None or got.shape != shape:
            shapes = "no such output" if got is None else f"shape {got.shape}"
            yield name, math.inf, allowed, f"{shapes}, and the model {shape}"
            continue
        kinds = [_kind(each.dtype) for each in (got, wanted["values"])]
        if kinds[0] != kinds[1]:
            yield name, math.inf, allowed, "{}, and the model {}".format(*kinds)
            continue
        if "places" in wanted:
            got = got.reshape(-1)[wanted["places"]]
        off = difference(
            wanted["values"],
            got,
            wanted["scale"],
            is_sample=case["is_sample"],
        )
        yield name, off, allowed, ""


def _are_places(output: Mapping[str, Any]) -> bool:
    """Returns whether the numbers that are kept have a place in the output."""
    size, values = math.prod(output["shape"]), output["values"]
    places = output.get("places")
    if places is None:
        return bool(values.shape == tuple(output["shape"]))
    return bool(
        values.shape == places.shape
        and places.dtype.name == "int32"
        and (places >= 0).all()
        and (places < size).all()
    )


def _kind(dtype: Any) -> str:
    if "float" in dtype.name:  # bfloat16 too
        return "floats"
    names = {"O": "texts", "b": "booleans", "i": "integers", "u": "integers"}
    return names.get(dtype.kind, dtype.name)


def check(record: Mapping[str, Any]) -> None:
    """Checks that a record is one that an export writes.

    Raises:
        CasesError: It is not.
    """
    try:
        is_right = (
            _are(str, record["files"].values())
            and isinstance(record["signatures"], dict)
            and _are(str, record["weights"])
            and _are(str, [record["kind"], record["processor"]])
            and _are(str, record["versions"].values())
            and isinstance(record["likelihoods"], str | None)
            and isinstance(record["quantization"], str | None)
            and isinstance(record["left_out"], int)
            and all(map(_is_case, record["cases"]))
        )
    except (AttributeError, KeyError, TypeError):
        is_right = False
    if not is_right:
        raise CasesError("it does not hold what an export writes")


def _are(kind: Any, values: Iterable[Any]) -> bool:
    return all(isinstance(each, kind) for each in values)


def _is_case(case: Mapping[str, Any]) -> bool:
    import numpy as np

    outputs = case["outputs"].values()
    return (
        _are(str, [case["signature"], *case["not_compared"]])
        and _are(bool, [case["is_sample"]])
        and _are(np.ndarray, case["inputs"].values())
        and _are(np.ndarray, [each["values"] for each in outputs])
        and all(
            _are_places(each)
            and 0 <= each["allowed"] < math.inf
            and 0 < each["scale"] < math.inf
            for each in outputs
        )
    )
