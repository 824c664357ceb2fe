"""Converts a signature to ONNX with tf2onnx."""

import dataclasses
import logging
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats.onnx_operators import (
    EINSUM,
    HANDLERS,
    graphs,
    nodes,
    with_float_tables,
    with_values,
    write_model,
)
from keras_posenc.export.formats.onnx_quantize import in_float32, quantize
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.graphs.decompose import decompose
from keras_posenc.export.graphs.keras_int8 import int8_in_floats
from keras_posenc.export.operators import lacking
from keras_posenc.export.signatures.from_model import named_outputs, output_of
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import tracing
from keras_posenc.keras_internals import layers_within
from keras_posenc.publish import writing_to


def with_distinct_names(signatures: Sequence[Signature]) -> list[Signature]:
    """Returns signatures whose outputs have no names of inputs.

    In ONNX they would be one tensor. The output `ids` of a model that takes
    `ids` becomes `output_ids`.
    """
    return [*map(_with_distinct_names, signatures)]


def _with_distinct_names(signature: Signature) -> Signature:
    whole = signature.strings
    model = signature.model if whole is None else whole.signature.model
    renamed: dict[str, str] = {}
    if getattr(model, "inputs", None):  # else known only at a call
        outputs = named_outputs(model, output_of(model))
        renamed = _distinct(outputs, [*signature.specs])
        if not renamed:
            return signature
    return dataclasses.replace(
        signature,
        call=_Renamed(signature.call, tuple(signature.specs)),
        own_names={new: name for name, new in renamed.items()},
    )


def _distinct(
    outputs: Iterable[str], inputs: Collection[str]
) -> dict[str, str]:
    """Returns new names for the outputs that have the name of an input."""
    taken = {*inputs, *outputs}
    renamed: dict[str, str] = {}
    for name in outputs:
        if name in inputs:
            new = f"output_{name}"
            while new in taken:
                new += "_"
            taken.add(new)
            renamed[name] = new
    return renamed


@dataclasses.dataclass(frozen=True)
class _Renamed:
    """A call whose outputs have no names of inputs; equal for equal calls."""

    call: Callable[[Mapping[str, Any]], dict[str, Any]]
    inputs: tuple[str, ...]

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        outputs = self.call(tensors)
        renamed = _distinct(outputs, self.inputs)
        return {
            renamed.get(name, name): value for name, value in outputs.items()
        }


_OPSET = 18


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


def convert(
    signature: Signature,
    path: Path,
    frozen: FrozenModel,
    quantization: str | None = None,
) -> list[str]:
    """Writes a signature as an ONNX file.

    The converter never sees the weights: they are arguments of the function
    that it converts, so no optimizer can fold, merge or drop them. They are
    written to the file unchanged, by their paths in the model, or quantized.

    Args:
        signature: The signature.
        path: The file.
        frozen: The model. Layers of Keras's int8 compute in floats from then
            on, until it is no longer frozen.
        quantization: The mode, or None.

    Returns:
        The paths of matrices and tables that quantization leaves in float32,
        though they are large enough.

    Raises:
        ExportError: The model needs operators that ONNX lacks, or has other
            inputs once converted; or the file cannot be written.
    """
    import onnx
    import tensorflow as tf

    int8_in_floats([signature], frozen)
    model, values = _converted(signature, frozen)
    graph = model.graph
    weights, numbers = with_values(graph, values, reserved=signature.specs)
    with_float_tables(graph, numbers)
    for node in nodes(graph):
        if node.op_type == EINSUM:
            node.op_type = "Einsum"
    for inner in graphs(graph):
        del inner.value_info[:]  # of what the converter made of it
    named = {node.op_type: node.name for node in nodes(graph)}
    if quantization is not None:
        quantize(model, numbers, weights)
        numbers = {}
    graph.name = signature.name
    onnx.helper.set_model_props(
        model, {"tensorflow": tf.__version__, "keras": keras.__version__}
    )
    _check(graph, signature, named)
    with writing_to(path.parent):
        write_model(model, numbers, path)
    if quantization is None:
        return []
    shapes = {each.path: each.shape for each in signature.model.weights}
    return in_float32(graph, shapes)


def _converted(
    signature: Signature, frozen: FrozenModel
) -> tuple[Any, dict[str, tuple[str, Any]]]:
    """Returns the signature as a `ModelProto` that takes its weights as inputs.

    Returns:
        The model, and for each such input the path of the weight, or "" for
        another constant, and its values.
    """
    import tensorflow as tf
    import tf2onnx

    variables = {
        f"keras_posenc_weight_{index}": variable
        for index, variable in enumerate(signature.model.variables)
    }
    specs = [
        tf.TensorSpec(spec.shape, spec.dtype, name=name)
        for name, spec in (*signature.specs.items(), *variables.items())
    ]

    @tf.function(input_signature=specs, autograph=False)
    def call(*arguments: Any) -> dict[str, Any]:
        count = len(signature.specs)
        inputs, weights = arguments[:count], arguments[count:]
        mapping = list(zip(variables.values(), weights, strict=True))
        with frozen.reading(mapping):
            outputs = signature.call(
                dict(zip(signature.specs, inputs, strict=True))
            )
        # The converter takes output names from the last operators.
        return {
            name: tf.identity(value, name=name)
            for name, value in outputs.items()
        }

    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    # TensorFlow warns of resources, which the converted graph does not have.
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with tracing(signature):
            function = call.get_concrete_function(*specs)
        frozen.take_over(function)
        call = _rewritten(function, specs) or call
        model, _ = tf2onnx.convert.from_function(
            call,
            input_signature=specs,
            opset=_OPSET,
            custom_op_handlers=HANDLERS,
        )
    except ExportError:
        raise
    except Exception as error:  # of the converter
        raise ExportError(
            f"tf2onnx refuses model '{signature.model.name}': "
            f"{next(iter(str(error).splitlines()), type(error).__name__)}"
        ) from error
    finally:
        logger.setLevel(level)
    # TensorFlow has sorted the outputs by name.
    outputs = {value.name: value for value in model.graph.output}
    del model.graph.output[:]
    model.graph.output.extend(map(outputs.get, function.structured_outputs))
    return model, {
        **{
            name: (variable.path, variable)
            for name, variable in variables.items()
        },
        # Tensors that a layer holds besides its weights.
        **{
            inner.name: ("", _array_of(outer))
            for outer, inner in _captured(call.get_concrete_function(*specs))
        },
    }


# Operators that tf2onnx does not know, and `decompose` does.
_DECOMPOSED = (
    *("Bucketize", "Expm1", "InTopKV2", "Log1p", "LowerBound", "UpperBound"),
)


def _rewritten(function: Any, specs: Sequence[Any]) -> Any:
    """Returns a function of operators that tf2onnx knows, if it has others.

    Calls that XLA must compile are among these. TensorFlow does not inline
    them, and Keras computes grouped convolutions so.

    Args:
        function: A graph function that returns a dict.
        specs: What it takes.
    """
    import tensorflow as tf

    graph = function.graph.as_graph_def()
    bodies = graph.library.function
    compiled = [
        each
        for each in (
            *graph.node,
            *bodies,
            *(n for f in bodies for n in f.node_def),
        )
        if "_XlaMustCompile" in each.attr
    ]
    for each in compiled:
        del each.attr["_XlaMustCompile"]
    if not decompose(graph.node, graph.library, _DECOMPOSED) and not compiled:
        return None

    @tf.function(input_signature=specs, autograph=False)
    def call(*arguments: Any) -> dict[str, Any]:
        given = (*arguments, *map(tf.identity, function.captured_inputs))
        names = [tensor.name for tensor in function.inputs]
        outputs = tf.graph_util.import_graph_def(
            graph,
            dict(zip(names, given, strict=True)),
            [tensor.name for tensor in function.outputs],
            name="model",
        )
        # The function's outputs are sorted by name.
        return {
            name: tf.identity(value, name=name)
            for name, value in zip(
                sorted(function.structured_outputs), outputs, strict=True
            )
        }

    return call


def _array_of(tensor: Any) -> np.ndarray:
    is_text = tensor.dtype == "string"
    return np.asarray(tensor.numpy(), object if is_text else None)


def _captured(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the tensors that a graph function captures, with their inputs."""
    outside = function.captured_inputs
    inside = function.inputs[len(function.inputs) - len(outside) :]
    for outer, inner in zip(outside, inside, strict=True):
        if outer.dtype != "resource":
            yield outer, inner


def _check(graph: Any, signature: Signature, named: Mapping[str, str]) -> None:
    """Raises `ExportError` if the graph does not run in any ONNX runtime.

    Args:
        graph: The graph.
        signature: The signature that it computes.
        named: TensorFlow's name of a node of each operator.
    """
    import onnx

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
    names = [value.name for value in graph.input]
    if names != list(signature.specs):
        raise ExportError(
            f"tf2onnx converts model '{signature.model.name}' to a graph that "
            f"takes {', '.join(names) or 'nothing'}, but the model takes "
            f"{', '.join(signature.specs)}"
        )
