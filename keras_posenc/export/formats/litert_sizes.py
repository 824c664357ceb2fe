"""Has LiteRT compute every size before a run.

As soon as a runtime has the shapes of its inputs, it computes what follows from
them by operators of shapes, and allocates memory. A size that is left to the
run leaves every tensor after it to the run as well. LiteRT's `CompiledModel`
(ai-edge-litert 2.3.0) then gives the outputs too little memory and ends the
process, and delegates of GPUs and NPUs take only what is known before.

What else `CompiledModel` gets wrong is changed here, too.
"""

from typing import Any

from keras_posenc.export.formats.litert_edit import Editor, kinds_of
from keras_posenc_worker.formats import litert_schema

# They leave the size of their output to the run if a size of their input is
# unknown in the file, although it is known before the run.
_CAUTIOUS = ("SLICE", "TOPK_V2")


def compute_sizes_ahead(model: Any) -> None:
    """Changes operators of an unpacked file that leave a size to the run."""
    kinds = kinds_of(model)
    for graph in model.subgraphs:
        edit = Editor(model, graph)
        operators: list[Any] = []
        ends = {*graph.inputs, *graph.outputs}
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            if kind in _CAUTIOUS:
                index = operator.inputs[0]
                if index in ends:  # whose unknown sizes the file has to name
                    index = _copied(edit, graph, index, operators)
                    operator.inputs = [index, *operator.inputs[1:]]
                graph.tensors[index].shapeSignature = None
            operators.append(operator)
        graph.operators = operators
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]
        edit = Editor(model, graph)
        for entry in signature.outputs:
            # `CompiledModel` has other memory for it than for the input.
            if entry.tensorIndex in graph.inputs:
                copied = _copied(
                    edit, graph, entry.tensorIndex, graph.operators
                )
                graph.outputs = [
                    copied if index == entry.tensorIndex else index
                    for index in graph.outputs
                ]
                entry.tensorIndex = copied


def _copied(edit: Editor, graph: Any, index: int, operators: list[Any]) -> int:
    """Adds operators that copy a tensor; returns the copy."""
    tensor = graph.tensors[index]
    schema = litert_schema()
    options = schema.ShapeOptionsT()
    options.outType = schema.TensorType.INT32
    sizes = edit.tensor(
        tensor,
        "/sizes",
        type=schema.TensorType.INT32,
        shape=[len(tensor.shape)],
        shapeSignature=None,
    )
    copied = edit.tensor(tensor, "/copied")
    operators.append(edit.operator("SHAPE", [index], sizes, options))
    operators.append(edit.operator("RESHAPE", [index, sizes], copied))
    return copied
