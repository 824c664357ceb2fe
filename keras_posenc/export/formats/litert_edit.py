"""Changes a graph of an unpacked LiteRT file."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc_worker.formats import litert_schema

_OLDEST = 127  # largest code of the field that older runtimes read
# Of operators that are added here; the first that takes int8 and float16.
_VERSIONS = {"DEQUANTIZE": 3, "GATHER": 2}
# They leave the size of their output to the run if a size of their input is
# unknown in the file, although it is known before the run.
_CAUTIOUS = ("SLICE", "TOPK_V2")


def kinds_of(model: Any) -> list[str]:
    """Returns the names of a file's operators, by the places of their codes."""
    names = {
        number: name
        for name, number in vars(litert_schema().BuiltinOperator).items()
        if isinstance(number, int)
    }
    return [names[code.builtinCode] for code in model.operatorCodes]


class Editor:
    """Adds tensors to a graph, and makes operators for it."""

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
        self, kind: str, inputs: Sequence[int], output: int, options: Any = None
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

    def shape(self, index: int, output: int) -> Any:
        """Returns an operator for the sizes of a tensor, as int32."""
        options = self._schema.ShapeOptionsT()
        options.outType = self._schema.TensorType.INT32
        return self.operator("SHAPE", [index], output, options)

    def copied(self, index: int, operators: list[Any]) -> int:
        """Adds operators that copy a tensor; returns the copy."""
        tensor = self._graph.tensors[index]
        sizes = self.tensor(
            tensor,
            "/sizes",
            type=self._schema.TensorType.INT32,
            shape=[len(tensor.shape)],
            shapeSignature=None,
        )
        copied = self.tensor(tensor, "/copied")
        operators.append(self.shape(index, sizes))
        operators.append(self.operator("RESHAPE", [index, sizes], copied))
        return copied

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


def compute_sizes_ahead(model: Any) -> None:
    """Changes operators of an unpacked file that leave a size to the run.

    LiteRT's `CompiledModel` (ai-edge-litert 2.3.0) gives later tensors too
    little memory, and ends the process. Nor can one tensor be input and output.
    """
    kinds = kinds_of(model)
    for graph in model.subgraphs:
        edit, operators = Editor(model, graph), list[Any]()
        ends = {*graph.inputs, *graph.outputs}
        for operator in graph.operators:
            if kinds[operator.opcodeIndex] in _CAUTIOUS:
                index = operator.inputs[0]
                if index in ends:  # whose unknown sizes the file has to name
                    index = edit.copied(index, operators)
                    operator.inputs = [index, *operator.inputs[1:]]
                graph.tensors[index].shapeSignature = None
            operators.append(operator)
        graph.operators = operators
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]
        edit = Editor(model, graph)
        for entry in signature.outputs:
            index = entry.tensorIndex
            if index in graph.inputs:
                entry.tensorIndex = edit.copied(index, graph.operators)
                graph.outputs = [
                    entry.tensorIndex if x == index else x
                    for x in graph.outputs
                ]
