"""Reads what an exported file contains, in a worker, without running it."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litertlm_package import require_builder
from keras_posenc.export.operators import ALLOWED, BY_PLACE, of_python
from keras_posenc.export.regular_files import entries, open_regular
from keras_posenc.export.versions import versions
from keras_posenc.export.worker_client import (
    MEMORY,
    MIB,
    Limits,
    WorkerError,
    spare_worker,
)
from keras_posenc.progress import printable, printable_errors
from keras_posenc.publish import as_path
from keras_posenc_worker import read


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
    """The contents of an exported file.

    `str(inspection)` is one line, followed by lines for what needs attention;
    `inspection.details()` has tables of all inputs, outputs and operators.

    Attributes:
        path: The LiteRT or ONNX file, LiteRT-LM package, or the SavedModel's
            version folder.
        kind: `"saved_model"`, `"litert"`, `"litertlm"` or `"onnx"`.
        size_bytes: Size of the file, or of all files of the folder.
        weight_bytes: Size of the variables and constants of a SavedModel, the
            constant buffers of a LiteRT file, or an ONNX file's initializers.
        signatures: For each signature its `"inputs"` and `"outputs"`, each a
            dict of `Tensor` by name; those of a SavedModel sorted by name.
        operators: Number of uses of each operator in the graph.
        foreign_operators: Operators that the plain runtime lacks: custom ones,
            or operators of TensorFlow's add-ons.
        unsafe_operators: Operators not known to only compute (see
            `operators.py`), or that read or write files in an unusual place. A
            file that has any is neither published nor run, unless
            `allow_operators` names them.
        has_variables: Whether the weights of a SavedModel are variables, and
            not constants.
        quantization: The mode of a LiteRT or ONNX file's weights, as
            `export_litert` or `export_onnx` takes it, or None. Of several the
            one of fewest bits.
        metadata: Of a LiteRT file for a text task of MediaPipe: its `task` and
            its `labels`, or None. Empty for another task. Or `error`, why it
            cannot be read.
        package: Of a LiteRT-LM package: the types of its `models`, and what
            its metadata says, such as `max_tokens` and `template`.
        sections: Where its parts are in the file, as dicts.
    """

    path: Path
    kind: str
    size_bytes: int
    weight_bytes: int
    signatures: dict[str, dict[str, dict[str, Tensor]]]
    operators: dict[str, int]
    foreign_operators: list[str]
    unsafe_operators: list[str]
    has_variables: bool = False
    quantization: str | None = None
    metadata: dict[str, Any] | None = None
    package: dict[str, Any] | None = None
    sections: Sequence[dict[str, Any]] = ()

    def __str__(self) -> str:
        names = ", ".join(self.signatures) or "none"
        lines = [
            f"{self.path}: {self.kind}, "
            + f"{self.quantization}, " * bool(self.quantization)
            + f"{units.size(self.size_bytes)}, "
            f"{'UNSAFE' if self.unsafe_operators else 'safe'}, "
            f"signatures: {names}"
        ]
        if self.metadata is not None:
            lines.append(_line("metadata for MediaPipe", self.metadata))
        if self.package:
            lines.append(_line("package", self.package))
        for what, operators in (
            ("may do more than compute", self.unsafe_operators),
            ("the plain runtime lacks", self.foreign_operators),
        ):
            if operators:
                lines.append(f"operators that {what}: {', '.join(operators)}")
        return "\n".join(map(printable, lines))

    def details(self) -> str:
        """Returns `str` with all tensors and operators."""
        lines = [f"weights: {units.size(self.weight_bytes)}"]
        for name, sides in self.signatures.items():
            lines += [
                f"{name}, {side.removesuffix('s')} {tensor}: {known}"
                for side, tensors in sides.items()
                for tensor, known in tensors.items()
            ]
        for name, count in self.operators.items():
            is_foreign = name in self.foreign_operators
            is_unsafe = name in self.unsafe_operators
            remarks = " (not builtin)" * is_foreign + " (unsafe)" * is_unsafe
            lines.append(f"{name}{remarks}: {count}")
        return "\n".join([str(self), *map(printable, lines)])


def inspect_export(path: str | Path) -> Inspection:
    """Reads what an exported file contains, without running it.

    >>> import keras_posenc as kp
    >>> print(kp.inspect_export("order.tflite"))  # doctest: +SKIP
    order.tflite: litert, 114 kB, safe, signatures: serving_default

    The file may come from anyone: a separate process reads it, with limits of
    seconds and some hundred megabytes.

    Args:
        path: A LiteRT or ONNX file, a LiteRT-LM package, a SavedModel folder,
            or the folder of a SavedModel's versions, of which the highest is
            read. Of a package, the signatures are those of its models, and
            `package` has its tokenizer's kind and its metadata.

    Returns:
        An `Inspection`.

    Raises:
        ValueError: There is no exported file at the path, or it cannot be read,
            or its folder has links.
    """
    return _inspect(path)


@printable_errors()
def _inspect(path: str | Path, is_own: bool = False) -> Inspection:
    """Only files that this process has written share the one that reads."""
    path, kind = locate(path)
    if kind == "onnx" and util.find_spec("onnx") is None:
        raise ImportError(
            "ONNX files need onnx: pip install 'keras-posenc[onnx]'"
        )
    if kind == "litertlm":
        require_builder()
    sizes = {path: path.stat().st_size}
    if kind == "saved_model":
        sizes = {Path(x.path): x.stat().st_size for x in files(path)}
    # The weights may be in the message that is parsed; none has 2 GiB.
    message = {"onnx": path, "saved_model": path / "saved_model.pb"}.get(kind)
    size = sizes[message] if message else 0
    size *= size < 2**31
    limits = Limits(memory=MEMORY + 4 * size, seconds=8 + size // (50 * MIB))
    try:
        with spare_worker(read.__name__, is_own=is_own) as worker:
            found = worker.run(kind, os.path.abspath(path), limits=limits)
        if "error" in found:
            raise ValueError(found["error"])
    except (ValueError, WorkerError) as error:
        who = "the process that reads it " * isinstance(error, WorkerError)
        raise ValueError(
            f"'{path}' is no readable {_KINDS[kind]}: {who}{error}"
        ) from error
    if kind == "saved_model":
        import tensorflow as tf

        names = found["operators"].keys()
        found["custom"] = sorted(x for x in names if not hasattr(tf.raw_ops, x))
        found["unsafe"] += names - ALLOWED - BY_PLACE
        found["weight_bytes"] += sum(
            size
            for file, size in sizes.items()
            if found["has_variables"] and file.parent == path / "variables"
        )
    signatures = {
        name: {
            side: {key: _tensor(**each) for key, each in tensors.items()}
            for side, tensors in sides.items()
        }
        for name, sides in found.pop("signatures").items()
    }
    return Inspection(
        path=path,
        kind=kind,
        size_bytes=sum(sizes.values()),
        signatures=signatures,
        foreign_operators=found.pop("custom"),
        unsafe_operators=sorted({*found.pop("unsafe")}),
        **found,
    )


_KINDS = {
    "litert": "LiteRT file",
    "litertlm": "LiteRT-LM package",
    "onnx": "ONNX file",
    "saved_model": "SavedModel",
}


def _line(what: str, values: Mapping[str, Any]) -> str:
    parts = []
    for name, value in values.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        parts.append(f"{name.replace('_', ' ')}: {text!s:.200}")
    return f"{what}: {'; '.join(parts)}"


def _tensor(shape: list[int] | None, dtype: str) -> Tensor:
    if shape is None:
        return Tensor(None, dtype)
    return Tensor(tuple(None if x < 0 else x for x in shape), dtype)


# Paths in the folder that TensorFlow, Keras and this package write, and that
# servers read.
_PARTS = re.compile(
    r"(saved_model|fingerprint|keras_metadata)\.pb"
    r"|variables/variables\.(index|data-\d{5}-of-\d{5})|assets/.+"
    r"|assets\.extra/(tf_serving_warmup_requests|cases\.npz)"
    r"|debug/saved_model_debug_info\.pb|MODEL_CARD\.md|batching_params\.pbtxt",
    re.DOTALL,
)
# Users may keep their own files there: no runtime reads them.
_OF_USERS = "assets.extra/"


def files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yields every file of a version folder, also in its subfolders.

    Files that users added to `assets.extra`, and hidden ones, are left out.
    """
    try:
        for entry in entries(folder):
            name = Path(entry.path).relative_to(folder).as_posix()
            if not entry.is_file(follow_symlinks=False):
                kind = "link" if entry.is_symlink() else "device"
                raise ValueError(
                    "it may hold files and folders only, and "
                    f"'{entry.path}' is a {kind}"
                )
            if _PARTS.fullmatch(name):
                yield entry
            elif not name.startswith(_OF_USERS):
                # Some runtimes would read saved_model.cpb or model.tflite.
                raise ValueError(
                    f"'{name}' is no part of one. Move it out of the folder, "
                    f"or to {_OF_USERS}, which no runtime reads"
                )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"'{folder}' is no readable SavedModel: {reason}"
        ) from error


def size_of(folder: Path) -> int:
    """Returns the bytes of all files of a version folder."""
    return sum(entry.stat().st_size for entry in files(folder))


def locate(path: str | Path) -> tuple[Path, str]:
    """Returns the path of an exported model, and its kind.

    The kind is `"saved_model"`, `"litert"`, `"litertlm"` or `"onnx"`.
    """
    path = as_path("path", path)
    if not os.path.exists(path):  # Path.exists raises for too long names
        raise ValueError(f"'{path}' does not exist")
    if path.is_dir():
        for each in (path, *(path / str(n) for n in versions(path)[::-1])):
            if (each / "saved_model.pb").is_file():
                return each, "saved_model"
        raise ValueError(
            f"'{path}' is no SavedModel: it has no saved_model.pb, and no "
            "numbered version that has one"
        )
    if not path.is_file():
        raise ValueError(f"'{path}' is neither a file nor a folder")
    if path.name == "saved_model.pb":
        raise ValueError(
            f"'{path}' is a part of a SavedModel: give the folder, "
            f"'{path.parent}'"
        )
    try:
        with open_regular(path) as file:
            first = file.read(8)
    except OSError as error:
        raise ValueError(
            f"'{path}' cannot be read: {error.strerror}"
        ) from error
    if first == b"LITERTLM":
        return path, "litertlm"
    if first[:1] == b"\x08":  # the tag of the version, in ONNX's protobuf
        return path, "onnx"
    if first[4:] != b"TFL3":
        raise ValueError(
            f"'{path}' is neither a LiteRT file, an ONNX file nor a LiteRT-LM "
            "package, by its first bytes. An exported model is a .tflite, "
            ".litertlm or .onnx file, a SavedModel folder, or the folder of "
            "its versions; export a .keras file first"
        )
    return path, "litert"


def inspect_safe(
    exported: Path, allow_operators: Sequence[str] = (), is_own: bool = False
) -> Inspection:
    """Inspects an exported model, and refuses one that must not be run."""
    try:
        inspection = _inspect(exported, is_own)
    except ValueError as error:  # it exists, but cannot be read
        raise ExportVerificationError(str(error)) from error
    unsafe = set(inspection.unsafe_operators).difference(allow_operators)
    if unsafe:
        names = sorted(unsafe)
        remedy = of_python(names) or (
            "If you know what they do and trust them, give "
            f"`allow_operators={names}`"
        )
        raise ExportVerificationError(
            "An exported model may only compute: not run Python, read or write "
            "files, or use the network. This one has the operators "
            f"{', '.join(names)}. {remedy}"
        )
    return inspection
