"""The format ONNX, for the pipeline; converted with tf2onnx."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras

from keras_posenc.export import units
from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats.onnx_operators import (
    EINSUM,
    HANDLERS,
    array_of,
    graphs,
    nodes,
    with_values,
)
from keras_posenc.export.formats.onnx_quantize import (
    check_mode,
    in_float32,
    quantize,
)
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.graphs.decompose import FUNCTIONS, decompose
from keras_posenc.export.graphs.weights import check_size, to_float32
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.operators import lacking
from keras_posenc.export.pipeline import Format
from keras_posenc.export.signatures.resolve import resolve_numeric_signatures
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import tracing
from keras_posenc.export.worker_client import keep_spare
from keras_posenc.keras_internals import layers_within
from keras_posenc.publish import writing_to
from keras_posenc_worker import run

_OPSET = 18
_MOST = 2**31 - 2**10  # bytes that readers of a message accept
# Operators that tf2onnx does not know, or ONNX Runtime computes otherwise.
_DECOMPOSED = (
    *("Bucketize", "Einsum", "Erfc", "Expm1", "FloorDiv", "FloorMod"),
    *("Log1p", "Mean", "OneHot", "Sum"),
)


@dataclasses.dataclass(kw_only=True)
class Onnx(Format):
    """An ONNX file of one signature, by the arguments of `export_onnx`."""

    mode: str | None = None
    writing: ClassVar[str] = "Converting to ONNX"
    computes_first: ClassVar[bool] = True

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signature, and renames outputs with names of inputs."""
        found_in_model = resolve_numeric_signatures(model, self.given)
        self.signatures = [*map(_with_distinct_names, found_in_model)]
        if self.verify:
            keep_spare(run.__name__, "onnx")
        if found is not None:
            self.mode = found.quantization
        else:
            check_mode(self.mode)
            if len(self.signatures) != 1:
                raise ValueError(
                    "`signatures` must be one for an ONNX file. Received: "
                    f"{', '.join(each.name for each in self.signatures)}"
                )
            check_size(
                self.signatures,
                "ONNX",
                "export_saved_model keeps them in files of their own",
            )
        self.in_float32 = to_float32(self.signatures, self.frozen, "onnx")
        self.quantization = self.mode

    def write(self, path: Path) -> None:
        """Converts the model with tf2onnx."""
        (signature,) = self.signatures
        kept = _convert(signature, path, self.frozen, self.mode)
        if kept:
            note = (
                f"{self.mode} leaves in float32: {units.some(kept)}. Quantized "
                "are matrices of products outside of loops, and tables that "
                "are looked up, if there are no loops"
            )
            self.left_out = [*self.left_out, note]


def _with_distinct_names(signature: Signature) -> Signature:
    """Returns a signature whose outputs have no names of inputs."""
    own_names: dict[str, str] = {}  # known once it is called

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        outputs = signature.call(tensors)
        taken, named = {*signature.specs, *outputs}, {}
        for name, x in outputs.items():
            new = name
            if name in signature.specs:  # in ONNX they would be one tensor
                new = _free(f"output_{name}", taken)
                own_names[new] = name
            named[new] = x
        return named

    return dataclasses.replace(signature, call=call, own_names=own_names)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def require_onnx() -> None:
    """Raises `ImportError` if the extra `onnx` is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "ONNX files need onnx, onnxruntime and tf2onnx: "
            "pip install 'keras-posenc[onnx]'"
        ) from error


def _convert(
    signature: Signature,
    path: Path,
    frozen: FrozenModel,
    quantization: str | None = None,
) -> list[str]:
    """Writes a signature; returns the large weights that stay in float32.

    The converter never sees the weights: they are arguments of the function
    that it converts, so no optimizer can fold, merge or drop them.
    """
    import onnx
    import tensorflow as tf

    taken = {*signature.specs}
    weights = {_free(x.path, taken): x for x in signature.model.variables}
    model, constants = _converted(signature, weights, frozen)
    graph = model.graph
    with_values(graph, {**weights, **constants}, [*signature.specs])
    for node in nodes(graph):
        if node.op_type == EINSUM:
            node.op_type = "Einsum"
    for inner in graphs(graph):
        del inner.value_info[:]  # of what the converter made of it
    _check(graph, signature)
    is_quantized = quantization is not None and quantize(model, weights)
    graph.name = signature.name
    onnx.helper.set_model_props(
        model, {"tensorflow": tf.__version__, "keras": keras.__version__}
    )
    # `check_size` has counted the weights, but not the other constants.
    if (size := model.ByteSize()) > _MOST:
        raise ExportError(
            f"The ONNX file would have {units.size(size)}, and ONNX files hold "
            f"{units.size(_MOST)} at most: use export_saved_model"
        )
    with writing_to(path.parent):
        path.write_bytes(model.SerializeToString())
    if not is_quantized:
        return []
    shapes = {each.path: each.shape for each in signature.model.weights}
    return in_float32(graph, shapes)


def _converted(
    signature: Signature, weights: Mapping[str, Any], frozen: FrozenModel
) -> tuple[Any, dict[str, Any]]:
    """Returns a `ModelProto` with weights as inputs, and values of others."""
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    specs = [
        tf.TensorSpec(each.shape, each.dtype)
        for each in (*signature.specs.values(), *weights.values())
    ]

    @tf.function(input_signature=specs, autograph=False)
    def call(*arguments: Any) -> dict[str, Any]:
        count = len(signature.specs)
        inputs = dict(zip(signature.specs, arguments[:count], strict=True))
        values = zip(weights.values(), arguments[count:], strict=True)
        with frozen.reading(values):
            return signature.call(inputs)

    with tracing(signature):
        function = call.get_concrete_function()
    frozen.take_over(function)
    names = [*function.structured_outputs]
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    # TensorFlow warns of resources, which the converted graph does not have.
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        function = _rewritten(function)
        outside = function.captured_inputs
        held = {
            inner.name: array_of(outer)
            for outer, inner in zip(
                outside, function.inputs[-len(outside) :], strict=False
            )
            if outer.dtype != tf.resource
        }
        # Variables that are not Keras's become constants.
        function = convert_to_constants.convert_variables_to_constants_v2(
            function, lower_control_flow=False, aggressive_inlining=True
        )
        inputs = [x.name for x in function.inputs if x.dtype != tf.resource]
        outputs = [each.name for each in function.outputs]
        model = _in_onnx(
            function.graph.as_graph_def(add_shapes=True),
            input_names=inputs,
            output_names=outputs,
            tensors_to_rename={
                **dict(zip(inputs, (*signature.specs, *weights), strict=False)),
                # TensorFlow has sorted them by name.
                **dict(zip(outputs, sorted(names), strict=True)),
            },
        )
    except Exception as error:  # of the converter
        raise ExportError(
            f"tf2onnx refuses model '{signature.model.name}': "
            f"{next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    finally:
        logger.setLevel(level)
    model.graph.output.sort(key=lambda each: names.index(each.name))
    return model, held


def _in_onnx(graph_def: Any, *, copies: bool = False, **names: Any) -> Any:
    """Converts a graph; slow `copies` leave out an optimizer that fails."""
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader, tfonnx

    inputs, outputs = names["input_names"], names["output_names"]
    with tf.Graph().as_default() as graph:
        optimized = tf_loader.tf_optimize(inputs, outputs, graph_def)
        tf.import_graph_def(optimized, name="")
        found = tfonnx.process_tf_graph(
            graph, True, opset=_OPSET, custom_op_handlers=HANDLERS, **names
        )
    try:
        with _going_once():
            return optimizer.optimize_graph(found, copies).make_model("")
    except Exception:  # an optimizer's, of any class
        if copies:
            raise
        return _in_onnx(graph_def, copies=True, **names)


@contextlib.contextmanager
def _going_once() -> Iterator[None]:
    """Has tf2onnx go through a graph once, and not for each of its outputs.

    Loops have many, and each optimizer asks again which nodes are used.
    """
    from tf2onnx.graph import Graph

    own = Graph.extract_sub_graph_nodes

    def used(
        self: Any,
        outputs_name: Sequence[str],
        input_checker: Any = None,
        remove_unused_inputs: bool = True,
    ) -> Any:
        if input_checker is not None:
            return own(self, outputs_name, input_checker, remove_unused_inputs)
        left, found = [*outputs_name], dict[Any, None]()
        if not remove_unused_inputs:
            left += [each.output[0] for each in self.inputs]
        while left:
            node = self.get_node_by_output_in_current_graph(left.pop())
            if node is not None and node not in found:
                found[node] = None
                left += [*node.input, *node.get_implicit_inputs()]
        return [*found]

    Graph.extract_sub_graph_nodes = used
    try:
        yield
    finally:
        Graph.extract_sub_graph_nodes = own


def _rewritten(original: Any) -> Any:
    """Returns a graph function without calls for XLA and unknown operators."""
    import tensorflow as tf

    given = original.inputs[: -len(original.captured_inputs) or None]
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in given]
    # All of it becomes one function, in a library.
    function = tf.function(
        lambda *arguments: original(*arguments),
        input_signature=specs,
        autograph=False,
    ).get_concrete_function()
    graph = function.graph.as_graph_def(add_shapes=True)
    bodies = graph.library.function
    inside = (node for body in bodies for node in body.node_def)
    for each in (*graph.node, *bodies, *inside):
        if "_XlaMustCompile" in each.attr:
            del each.attr["_XlaMustCompile"]
    decompose(graph.library, {name: FUNCTIONS[name] for name in _DECOMPOSED})
    names = [tensor.name for tensor in function.inputs]
    held = function.captured_inputs

    @tf.function(input_signature=specs, autograph=False)
    def call(*arguments: Any) -> Any:
        capture = tf.compat.v1.get_default_graph().capture
        tensors = (*arguments, *map(capture, held))
        return tf.graph_util.import_graph_def(
            graph,
            dict(zip(names, tensors, strict=True)),
            [tensor.name for tensor in function.outputs],
            name="model",
        )

    rewritten = call.get_concrete_function()
    rewritten.graph.variables = function.graph.variables
    return rewritten


def _check(graph: Any, signature: Signature) -> None:
    """Raises `ExportError` if the graph does not run in any ONNX runtime."""
    import onnx

    named = {node.op_type: node.name for node in nodes(graph)}
    unknown = sorted(
        {
            node.op_type
            for node in nodes(graph)
            if node.domain
            or not onnx.defs.has(node.op_type, max_inclusive_version=_OPSET)
        }
    )
    if unknown:
        raise ExportError(
            "The model needs operators that ONNX does not have: "
            f"{lacking(unknown, named, [*layers_within(signature.model)][1:])}"
        )
