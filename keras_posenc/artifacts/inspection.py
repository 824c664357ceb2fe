"""What is in an artifact, read from the file itself."""

import dataclasses
import json
import os
import re
import stat
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

from keras_posenc.artifacts import reading
from keras_posenc.artifacts.isolation import (
    MIB,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc.artifacts.operators import ALLOWED, BY_PLACE
from keras_posenc.artifacts.staging import as_path
from keras_posenc.artifacts.versions import versions

_MAX_FILES = 10_000
_MAX_DEPTH = 100


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Shape and dtype of an input or output; None is a dynamic size."""

    shape: tuple[int | None, ...] | None
    dtype: str

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.dtype} ({sizes})"


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The contents of an artifact.

    Attributes:
        path: The SavedModel's version folder, or the LiteRT file.
        kind: `"saved_model"`, `"litert"` or `"onnx"`.
        size_bytes: Size of the file, or of all files of the folder.
        weight_bytes: Of these, the variables of a SavedModel, or the constant
            buffers of a LiteRT file.
        signatures: For each signature its `"inputs"` and `"outputs"`, each a
            dict of `Tensor` by name; those of a SavedModel sorted by name.
        operators: How often each operator stands in the graph.
        foreign_operators: Those that the plain runtime does not have: custom
            and Flex operators, or operators of TensorFlow's add-ons.
        unsafe_operators: Those of TensorFlow, and custom ones, that are not
            known to compute and do nothing else (see `operators.py`), or that
            name files where TensorFlow would not. An artifact that has any is
            neither published nor run, unless `allow_operators` names them.
        quantization: `"float16"`, `"int8"` or `"int8-static"` where weights of
            a LiteRT file are of such, else None.
    """

    path: Path
    kind: str
    size_bytes: int
    weight_bytes: int
    signatures: dict[str, dict[str, dict[str, Tensor]]]
    operators: dict[str, int]
    foreign_operators: list[str]
    unsafe_operators: list[str]
    quantization: str | None = None

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        tensors = Table()
        for heading in ("signature", "", "name", "dtype and shape"):
            tensors.add_column(heading, overflow="fold")
        for name, sides in self.signatures.items():
            for side, by_name in sides.items():
                for tensor_name, tensor in by_name.items():
                    tensors.add_row(name, side[:-1], tensor_name, str(tensor))
        operators = Table("operator", "count")
        for name, count in self.operators.items():
            is_foreign = name in self.foreign_operators
            is_unsafe = name in self.unsafe_operators
            remarks = " (not builtin)" * is_foreign + " (unsafe)" * is_unsafe
            operators.add_row(name + remarks, str(count))
        console = Console()
        with console.capture() as capture:
            console.print(
                f"{self.path}: {self.kind}, "
                + f"{self.quantization}, " * bool(self.quantization)
                + f"{self.size_bytes / 1e6:.2f} MB, "
                f"of which weights {self.weight_bytes / 1e6:.2f} MB",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            console.print(
                "unsafe operators: "
                + (", ".join(self.unsafe_operators) or "none"),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            console.print(tensors)
            console.print(operators, end="")
        return capture.get().rstrip("\n")


def inspect(artifact: str | Path) -> Inspection:
    """Reads what an artifact contains, without running it.

    It may come from anywhere: a process of its own reads it, which has seconds
    and some hundred megabytes to do so.

    Args:
        artifact: A LiteRT or ONNX file, a SavedModel folder, or the folder of a
            SavedModel's versions, of which the highest is read.

    Returns:
        An `Inspection`.

    Raises:
        ValueError: There is no artifact at the path, or it is not readable, or
            its folder holds links, or assets from outside of it.

    Example:
    >>> import keras_posenc as kp
    >>> kp.inspect("no_such_file.tflite")
    Traceback (most recent call last):
    ValueError: 'no_such_file.tflite' does not exist
    """
    path, kind = locate(artifact)
    if kind == "onnx" and util.find_spec("onnx") is None:
        raise ImportError(
            "ONNX files need onnx: pip install 'keras-posenc[onnx]'"
        )
    what = {"litert": "LiteRT file", "onnx": "ONNX file"}.get(
        kind, "SavedModel"
    )
    sizes = {path: path.stat().st_size}
    if kind == "saved_model":
        sizes = {
            Path(entry.path): entry.stat().st_size for entry in files(path)
        }
    limits = Limits()
    if kind == "onnx":  # whose weights are a part of the message
        limits = dataclasses.replace(
            limits,
            memory=limits.memory + 4 * sizes[path],
            seconds=limits.seconds + sizes[path] // (50 * MIB),
        )
    try:
        found = json.loads(
            run_isolated(
                reading.__file__,
                kind,
                str(path),
                limits=limits,
                prepared=[kind],
            )
        )
        if "error" in found:
            raise ValueError(found["error"])
        if found.get("has_variables"):
            _check_variables(path / "variables", sizes)
        signatures = {
            name: {
                side: _tensors(tensors, kind) for side, tensors in sides.items()
            }
            for name, sides in found["signatures"].items()
        }
    except IsolationError as error:
        raise ValueError(
            f"'{path}' is no readable {what}: its reading {error}"
        ) from error
    except (ValueError, TypeError) as error:  # its own, or of a strange dtype
        raise ValueError(f"'{path}' is no readable {what}: {error}") from error
    if kind != "saved_model":
        weight_bytes, foreign = found["weight_bytes"], found["custom"]
    else:
        import tensorflow as tf

        foreign = sorted(
            name for name in found["operators"] if not hasattr(tf.raw_ops, name)
        )
        weight_bytes = sum(
            size
            for file, size in sizes.items()
            if file.parent == path / "variables"
        )
    return Inspection(
        path=path,
        kind=kind,
        size_bytes=sum(sizes.values()),
        weight_bytes=weight_bytes,
        signatures=signatures,
        operators=found["operators"],
        foreign_operators=foreign,
        unsafe_operators=sorted(
            {*found["unsafe"], *_unknown(kind, found)},
        ),
        quantization=found.get("quantization"),
    )


def _unknown(kind: str, found: dict[str, Any]) -> set[str]:
    """Operators that may do anything. LiteRT's and ONNX's own compute."""
    if kind == "onnx":
        return set()
    if kind == "litert":
        return {
            name
            for name in found["custom"]
            if name.removeprefix("Flex") not in ALLOWED
        }
    return found["operators"].keys() - ALLOWED - BY_PLACE


def files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every file of a version folder, however deep.

    Raises:
        ValueError: There is anything but files and folders, or no end of them,
            or they cannot be read.
    """
    try:
        yield from _files(folder)
    except OSError as error:
        raise ValueError(
            f"'{folder}' is no readable SavedModel: {error.strerror}"
        ) from error


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    remaining, count = [(folder, 1)], 0
    while remaining:
        path, depth = remaining.pop()
        if depth > _MAX_DEPTH:
            raise ValueError(
                f"'{folder}' is no readable SavedModel: it holds more than "
                f"{_MAX_DEPTH} folders inside of one another"
            )
        with os.scandir(path) as entries:
            for entry in entries:
                count += 1
                if count > _MAX_FILES:
                    raise ValueError(
                        f"'{folder}' is no readable SavedModel: it holds more "
                        f"than {_MAX_FILES} files"
                    )
                if entry.is_dir(follow_symlinks=False):
                    remaining.append((Path(entry.path), depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    yield entry
                else:
                    kind = "link" if entry.is_symlink() else "device"
                    raise ValueError(
                        f"'{folder}' is no readable SavedModel: it may hold "
                        f"files and folders only, and '{entry.path}' is a "
                        f"{kind}"
                    )


def _check_variables(folder: Path, sizes: dict[Path, int]) -> None:
    """Raises `ValueError` where files of variables are missing, or empty."""
    shards = [
        int(found[1])
        for path in sizes
        if path.parent == folder
        and (
            found := re.fullmatch(
                r"variables\.data-\d{5}-of-(\d{5})", path.name
            )
        )
    ]
    count = max(shards, default=1)
    for name in (
        "variables.index",
        *(f"variables.data-{i:05}-of-{count:05}" for i in range(count)),
    ):
        if not sizes.get(folder / name):
            state = "empty" if folder / name in sizes else "missing"
            raise ValueError(f"variables/{name} is {state}")


def _tensors(tensors: dict[str, Any], kind: str) -> dict[str, Tensor]:
    named = {}
    for name, tensor in tensors.items():
        shape, dtype = tensor["shape"], tensor["dtype"]
        if kind == "saved_model":
            import tensorflow as tf

            dtype = tf.dtypes.as_dtype(dtype).name
        if shape is not None:
            shape = tuple(None if size < 0 else size for size in shape)
        named[name] = Tensor(shape, dtype)
    return named


def locate(artifact: str | Path) -> tuple[Path, str]:
    """The path of an artifact, and `"saved_model"`, `"litert"` or `"onnx"`.

    Raises:
        ValueError: There is no artifact at the path.
    """
    path = as_path("artifact", artifact)
    if not os.path.exists(path):  # unlike Path's, for any name
        raise ValueError(f"'{path}' does not exist")
    if path.is_dir():
        if not (path / "saved_model.pb").is_file():
            for number in reversed(versions(path)):
                if (path / str(number) / "saved_model.pb").is_file():
                    path = path / str(number)
                    break
        if not (path / "saved_model.pb").is_file():
            raise ValueError(
                f"'{path}' is no SavedModel: it has no saved_model.pb, and no "
                "numbered version that has one"
            )
        # TensorFlow would read it, and not what was looked at here.
        # Servers that prefer LiteRT would read the last one.
        for other in ("saved_model.cpb", "model.tflite"):
            if os.path.lexists(path / other):
                raise ValueError(
                    f"'{path}' is no readable SavedModel: it has a {other} "
                    "beside its saved_model.pb"
                )
        return path, "saved_model"
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"'{path}' is neither a file nor a folder")
    if path.name == "saved_model.pb":
        raise ValueError(
            f"'{path}' is a part of a SavedModel: give the folder, "
            f"'{path.parent}'"
        )
    try:
        with path.open("rb") as file:
            first = file.read(8)
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read: {error.strerror}"
        ) from error
    if first[:1] == b"\x08":  # the tag of the version, in ONNX's protobuf
        return path, "onnx"
    if first[4:] != b"TFL3":
        raise ValueError(
            f"'{path}' is no LiteRT file, as its first bytes tell, and no "
            "ONNX file. An artifact is a .tflite or .onnx file, a "
            "SavedModel folder, or the folder of a SavedModel's versions; "
            "a .keras file is a model, to export"
        )
    return path, "litert"
