"""Changes a graph of an unpacked LiteRT file."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc_worker.formats import litert_schema

_OLDEST = 127  # largest code of the field that older runtimes read
# Of operators that are added here; the first that takes int8 and float16.
_VERSIONS = {"DEQUANTIZE": 3, "GATHER": 2}


def kinds_of(model: Any) -> list[str]:
    """Returns the names of a file's operators, by the indices of their codes.

    Custom ones are called CUSTOM.
    """
    names = {
        number: name
        for name, number in vars(litert_schema().BuiltinOperator).items()
        if isinstance(number, int)
    }
    return [names[code.builtinCode] for code in model.operatorCodes]


class Editor:
    """Adds tensors to a graph, and makes operators for it.

    Args:
        model: The file.
        graph: One of its graphs.
    """

    def __init__(self, model: Any, graph: Any) -> None:
        self._model, self._graph = model, graph
        self._schema = litert_schema()

    def tensor(self, like: Any, suffix: str, **changed: Any) -> int:
        """Adds a tensor like another one; returns its index."""
        tensor = copy.copy(like)
        tensor.name = bytes(like.name) + suffix.encode()
        for name, value in changed.items():
            setattr(tensor, name, value)
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def buffer(self, values: np.ndarray) -> int:
        """Adds a constant's numbers; returns the buffer's index."""
        buffer = self._schema.BufferT()
        buffer.data = values.reshape(-1).view("uint8")
        self._model.buffers.append(buffer)
        return len(self._model.buffers) - 1

    def operator(
        self,
        kind: str,
        inputs: Sequence[int],
        output: int,
        options: Any = None,
    ) -> Any:
        """Returns an operator of one output."""
        operator = self._schema.OperatorT()
        operator.opcodeIndex = self.code(kind, _VERSIONS.get(kind, 1))
        operator.inputs, operator.outputs = [*inputs], [output]
        if options is not None:
            name = type(options).__name__.removesuffix("T")
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(
                self._schema.BuiltinOptions, name
            )
        return operator

    def code(self, kind: str, version: int) -> int:
        """Returns the index of an operator's code; adds it if missing."""
        number = getattr(self._schema.BuiltinOperator, kind)
        codes = self._model.operatorCodes
        for index, code in enumerate(codes):
            if (code.builtinCode, code.version) == (number, version):
                return index
        code = self._schema.OperatorCodeT()
        code.builtinCode, code.version = number, version
        code.deprecatedBuiltinCode = min(number, _OLDEST)
        codes.append(code)
        return len(codes) - 1
