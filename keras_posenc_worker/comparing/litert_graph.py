"""A LiteRT file as graphs of operators, tensors and constants."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_posenc_worker.formats import (
    by_value,
    litert_schema,
    unpack,
)

# Metadata by which no runtime goes: versions, and MediaPipe's, which is read
# apart. Others may allow half precision, or another order of operators.
_NOTES = ("min_runtime_version", "CONVERSION_METADATA", "TFLITE_METADATA")


class OtherGraph(Exception):
    """Operators, or their inputs, differ; the message says how."""


class File:
    """A LiteRT file, with its constants as arrays."""

    def __init__(self, path: str) -> None:
        with Path(path).open("rb") as file:  # need not be in memory
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.model = unpack(self._content)
        self.graphs = self.model.subgraphs
        self.signatures = {
            each.signatureKey.decode(): each
            for each in self.model.signatureDefs or []
        }
        if len(self.signatures) != len(self.model.signatureDefs or []):
            raise ValueError("a signature is in the file twice")

    def metadata(self) -> list[tuple[str, list[int]]]:
        """What a runtime may go by beside the graphs."""
        return sorted(
            (name, as_list(self.model.buffers[each.buffer].data))
            for each in self.model.metadata or []
            if (name := each.name.decode()) not in _NOTES
        )

    def kind(self, operator: Any) -> tuple[int, str]:
        """What an operator does, in whatever version."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        return (
            max(code.builtinCode, code.deprecatedBuiltinCode),
            (code.customCode or b"").decode(),
        )

    def name(self, signature: Any, index: int) -> str:
        """What a tensor of a signature's graph is called."""
        name = self.graphs[signature.subgraphIndex].tensors[index].name
        return (name or b"").decode()

    def constant(self, tensor: Any) -> "Constant | None":
        """What a tensor holds before anything runs."""
        buffer = self.model.buffers[tensor.buffer]
        data, begin = buffer.data, buffer.offset
        if begin > 1:  # behind the flatbuffer, in files beyond its size
            if data is not None and len(data):
                raise OtherGraph("a constant is stored twice")
            data = self._content[begin : begin + buffer.size]
        if data is None or not len(data):
            return None
        return Constant(tensor, bytes(data))


class Constant:
    """Numbers of a file, and how they are meant."""

    def __init__(self, tensor: Any, data: bytes) -> None:
        import numpy as np

        self.content = data
        self.type = tensor.type
        names = by_value(litert_schema().TensorType)
        try:
            dtype = np.dtype(names[tensor.type].lower())
            shape = as_list(tensor.shape)
            self.array = np.frombuffer(data, dtype).reshape(shape)
        except (KeyError, TypeError, ValueError):  # such as strings
            self.array = np.frombuffer(data, "uint8")
        self.scale, self.zero, self.axis = scale_of(tensor)

    @property
    def is_rounded(self) -> bool:
        """Whether these are integers that stand for real numbers."""
        return len(self.scale) > 0 and self.array.dtype.kind == "i"

    def by_channel(self, values: list[Any]) -> Any:
        """Values, one or one for each channel, laid out for the array."""
        import numpy as np

        if len(values) == 1:
            return np.float64(values[0])
        shape = [1] * self.array.ndim
        shape[self.axis] = len(values)
        return np.reshape(np.asarray(values, "float64"), shape)

    def real(self) -> Any:
        """The numbers that the integers stand for."""
        return (self.array - self.by_channel(self.zero)) * self.by_channel(
            self.scale
        )

    def is_whole(self) -> bool:
        """Whether it has as many scales as it needs."""
        return len(self.zero) == len(self.scale) and (
            len(self.scale) == 1
            or (
                0 <= self.axis < self.array.ndim
                and len(self.scale) == self.array.shape[self.axis]
            )
        )


class Graph:
    """What makes each tensor of a graph.

    Operators run in their order. An order in which each tensor is written once,
    and before it is read, is as good as any other.
    """

    def __init__(self, file: File, graph: Any) -> None:
        self.file, self.graph = file, graph
        self.inputs = [*as_list(graph.inputs)]
        self.makers: dict[int, tuple[Any, int]] = {}
        self.changing = []  # variables, say, and so in an order of their own
        resource = litert_schema().TensorType.RESOURCE
        read: set[int] = set()
        for operator in graph.operators:
            sources = [
                index for index in as_list(operator.inputs) if index >= 0
            ]
            outputs = as_list(operator.outputs)
            if not outputs or any(
                graph.tensors[index].type == resource for index in sources
            ):
                self.changing.append(operator)
            read.update(sources)
            for place, index in enumerate(outputs):
                if (
                    index in read
                    or index in self.makers
                    or index in self.inputs
                    or self.constant(index) is not None
                ):
                    raise OtherGraph(f"tensor {index} is written twice")
                self.makers[index] = operator, place

    def constant(self, index: int) -> Constant | None:
        """What a tensor holds before anything runs."""
        return self.file.constant(self.graph.tensors[index])


def scale_of(tensor: Any) -> tuple[list[float], list[int], int]:
    """The scales of a tensor's integers, their zeros, and the axis of both."""
    found = tensor.quantization
    if found is None or found.scale is None:
        return [], [], 0
    scale, zero = as_list(found.scale), as_list(found.zeroPoint)
    return scale, zero or [0] * len(scale), found.quantizedDimension


def require_same(what: str, one: Any, other: Any) -> None:
    """Raises `OtherGraph` where two are not the same."""
    if one != other:
        raise OtherGraph(f"{what}: {other}, not {one}")


def plain(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers and texts of a message, by the names of its fields."""
    if hasattr(value, "__dict__"):
        for key, each in vars(value).items():
            yield from plain(f"{name}.{key}", each)
    else:
        yield name, plain_value(value)


def plain_value(value: Any) -> Any:
    """A value that can be compared, without arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list):
        return [list(plain("", each)) for each in value]
    return value


def as_list(values: Any) -> list[Any]:
    """A list, whatever the format has for it."""
    return [] if values is None else [*plain_value(values)]
