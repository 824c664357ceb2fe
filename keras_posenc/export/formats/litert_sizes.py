"""Has LiteRT compute every size before a run.

As soon as a runtime has the shapes of its inputs, it computes what follows from
them by operators of shapes, and allocates memory. A size that is left to the
run leaves every tensor after it to the run as well. LiteRT's `CompiledModel`
(ai-edge-litert 2.3.0) then gives the outputs too little memory and ends the
process, and delegates of GPUs and NPUs take only what is known before.

What else `CompiledModel` gets wrong is changed here, too.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

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
            elif kind == "UNSORTED_SEGMENT_PROD":
                sizes, *rest = (graph.tensors[x] for x in operator.inputs)
                groups, count = (model.buffers[x.buffer].data for x in rest)
                if (
                    sizes.type == litert_schema().TensorType.INT32
                    and len(sizes.shape) == len(rest[0].shape) == 1
                    and groups is not None
                    and count is not None
                ):
                    operators += _multiplied(
                        edit,
                        operator,
                        sizes,
                        np.asarray(groups).view("int32"),
                        int(np.asarray(count).view("int32")[0]),
                    )
                    continue
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


def _multiplied(
    edit: Editor, operator: Any, sizes: Any, groups: np.ndarray, count: int
) -> Iterator[Any]:
    """Yields operators that multiply the sizes of each group.

    The converter writes `einsum` with another one, such as the last projection
    of `keras.layers.MultiHeadAttention`, which merges two axes.
    """

    def integers(name: str, *shape: int, **changed: Any) -> int:
        return edit.tensor(
            sizes, name, shape=[*shape], shapeSignature=None, **changed
        )

    def constant(name: str, values: Any) -> int:
        values = np.asarray(values, "int32")
        return integers(name, *values.shape, buffer=edit.buffer(values))

    members = [np.flatnonzero(groups == group) for group in range(count)]
    # A 1 after the sizes fills up the groups that have fewer.
    places = np.full((count, max(map(len, members))), len(groups))
    for row, found in zip(places, members, strict=True):
        row[: len(found)] = found
    schema = litert_schema()
    filled = integers("/filled", len(groups) + 1)
    yield edit.operator(
        "CONCATENATION",
        [operator.inputs[0], constant("/one", [1])],
        filled,
        schema.ConcatenationOptionsT(),
    )
    grouped = integers("/grouped", *places.shape)
    yield edit.operator(
        "GATHER",
        [filled, constant("/places", places)],
        grouped,
        schema.GatherOptionsT(),
    )
    yield edit.operator(
        "REDUCE_PROD",
        [grouped, constant("/axis", [1])],
        operator.outputs[0],
        schema.ReducerOptionsT(),
    )
