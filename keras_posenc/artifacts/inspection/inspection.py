"""What is in an artifact, read from the file itself."""

import dataclasses
import json
from importlib import util
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground import units
from keras_posenc.artifacts.inspection.folders import (
    check_assets,
    check_variables,
    files,
    locate,
)
from keras_posenc.artifacts.inspection.operators import ALLOWED, BY_PLACE
from keras_posenc.artifacts.isolated.reading import reading
from keras_posenc.artifacts.processes.isolation import (
    MIB,
    IsolationError,
    Limits,
    run_isolated,
)


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

    `str(inspection)` is one line, and below it what needs attention;
    `inspection.details()` has tables of all inputs, outputs and operators.

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
        has_metadata: Whether a LiteRT file says what its inputs mean, as
            MediaPipe's tasks want it.
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
    has_metadata: bool = False

    def __str__(self) -> str:
        """One line, and below it what needs attention."""
        names = ", ".join(self.signatures) or "none"
        lines = [
            f"{self.path}: {self.kind}, "
            + f"{self.quantization}, " * bool(self.quantization)
            + f"{units.size(self.size_bytes)}, "
            f"{'UNSAFE' if self.unsafe_operators else 'safe'}, "
            f"signatures: {names}"
        ]
        if self.has_metadata:
            lines.append("with metadata, as MediaPipe's tasks want it")
        if self.unsafe_operators:
            lines.append(
                "operators that may do more than compute: "
                f"{', '.join(self.unsafe_operators)}"
            )
        if self.foreign_operators:
            lines.append(
                "operators beyond the plain runtime: "
                f"{', '.join(self.foreign_operators)}"
            )
        return "\n".join(lines)

    def details(self) -> str:
        """All of it: what `str` says, and tables of tensors and operators."""
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
            console.print(tensors)
            console.print(operators, end="")
        return "\n".join(
            [
                str(self),
                f"weights: {units.size(self.weight_bytes)}",
                capture.get().rstrip("\n"),
            ]
        )


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
            check_variables(path / "variables", sizes)
        if kind == "saved_model":
            check_assets(path, sizes, found["assets"])
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
        has_metadata=found.get("has_metadata", False),
    )


def _unknown(kind: str, found: dict[str, Any]) -> set[str]:
    """Operators that may do more than compute; LiteRT's and ONNX's do not."""
    if kind == "onnx":
        return set()
    if kind == "litert":
        return {
            name
            for name in found["custom"]
            if name.removeprefix("Flex") not in ALLOWED
        }
    return found["operators"].keys() - ALLOWED - BY_PLACE


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
