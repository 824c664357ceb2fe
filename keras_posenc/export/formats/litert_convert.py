"""Converts signatures to LiteRT with TensorFlow's converter."""

import contextlib
import functools
import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats import litert_quantize as modes
from keras_posenc.export.formats.litert_file import write
from keras_posenc.export.formats.litert_recipe import (
    Recipe,
    look_up,
    round_by_recipe,
)
from keras_posenc.export.formats.litert_round import SMALLEST, weights_of
from keras_posenc.export.formats.litert_sizes import compute_sizes_ahead
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.graphs.decompose import decompose
from keras_posenc.export.graphs.keras_int8 import int8_in_floats
from keras_posenc.export.graphs.writing import write_saved_model
from keras_posenc.export.operators import lacking, of_python
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.from_model import of_one_example
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import (
    Limits,
    WorkerError,
    spare_worker,
)
from keras_posenc.keras_internals import layers_within
from keras_posenc.publish import working_folder, writing_to
from keras_posenc_worker import codec, convert_litert
from keras_posenc_worker.formats import litert_schema
from keras_posenc_worker.runtimes import op_libraries

# The SavedModel is this process's own. A large one takes minutes.
_UNLIMITED = Limits(memory=None, seconds=None, file=2**40, timeout=2**16)


def convert(
    signatures: Sequence[Signature],
    quantization: str | Recipe | None,
    representative: Mapping[str, Sequence[Inputs]],
    allow_flex: bool,
    frozen: FrozenModel,
    path: Path,
    *,
    in_order: bool = True,
) -> tuple[list[str], dict[int, str]]:
    """Converts signatures to a LiteRT file.

    Args:
        signatures: The signatures. Layers of Keras's int8 compute in floats
            from then on, until the models are no longer frozen.
        quantization: The mode, or a recipe, or None.
        representative: Batches to calibrate each signature with, by its name.
        allow_flex: Whether operators of TensorFlow's own may remain.
        frozen: The models.
        path: The file that is written.
        in_order: Whether inputs and outputs have the model's order. MediaPipe
            needs the converter's.

    Returns:
        The paths of matrices and tables that quantization leaves in float32,
        though they are large enough; and the modes that a recipe has given the
        model's variables, by the ids of these, as far as the file has them as
        they are.

    Raises:
        ExportError: The model needs operators that LiteRT lacks, or it cannot
            be written.
    """
    # The converter writes signatures sorted, but shares their constants in the
    # given order. Sorted input makes the bytes reproducible.
    signatures = sorted(signatures, key=lambda each: each.name)
    int8_in_floats(signatures, frozen)
    rounded: dict[int, str] = {}
    if quantization is None or isinstance(quantization, str):
        model = converted(
            signatures, quantization, representative, allow_flex, in_order
        )
    else:
        model = converted(signatures, None, {}, allow_flex, in_order)
        look_up(model)
        found = variables_of(signatures, model)
        model, by_buffer = round_by_recipe(model, quantization)
        rounded = {
            id(variable): by_buffer[number]
            for number, variable in found.items()
            if number in by_buffer
        }
    with writing_to(path.parent):
        write(model, path)
    if quantization is None:
        return [], rounded
    return [*_in_float32(model, signatures)], rounded


def variables_of(
    signatures: Sequence[Signature], model: Any
) -> dict[int, keras.Variable]:
    """Returns the models' variables, by the indices of their buffers.

    Only those of several axes, which the file of float32 has as they are, or
    with their axes in another order.
    """
    found = {}
    for signature in signatures:
        for variable in signature.model.weights:
            if len(variable.shape) > 1:
                value = keras.ops.convert_to_numpy(variable)
                # As it is, or as kernels and convolutions are laid out.
                moved = (np.moveaxis(value, axis, 0) for axis in (-1, -2))
                for laid in (value, *moved):
                    found[_digest(laid)] = variable
    return {
        number: found[name]
        for number in weights_of(model)
        if (name := _digest(model.buffers[number].data)) in found
    }


def _digest(values: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()


def converted(
    signatures: Sequence[Signature],
    quantization: str | Recipe | None,
    representative: Mapping[str, Sequence[Inputs]],
    allow_flex: bool,
    in_order: bool = True,
) -> Any:
    """Returns what TensorFlow's converter makes of signatures, unpacked.

    Args:
        signatures: As for `convert`, like the next three.
        quantization: The mode, or a recipe, or None.
        representative: Batches to calibrate each signature with.
        allow_flex: Whether operators of TensorFlow's own may remain.
        in_order: As for `convert`.
    """
    batches = [
        (name, inputs)
        for name, given in representative.items()
        for inputs in given
    ]
    with working_folder() as folder:
        saved_model = folder / "saved_model"
        functions = write_saved_model(signatures, saved_model)
        rewrite_operators(saved_model)
        request = {
            "saved_model": str(saved_model),
            "signatures": [signature.name for signature in signatures],
            "allowed": allow_flex,
            "op_libraries": op_libraries(),
            "batches": batches if quantization == "int8-static" else [],
        }
        with writing_to(folder.parent):
            codec.write(folder, "request", request)
        error = _run_converter(folder)
        if error is not None:
            # Only then, since the converter fuses some of these operators.
            needed = [*itertools.chain(*_needed(error).values())]
            with _edited(saved_model) as graphs:
                is_another = any(
                    [decompose((), each.library, needed) for each in graphs]
                )
            if is_another:
                error = _run_converter(folder)
        if error is not None:
            with _edited(saved_model) as graphs:
                named = {
                    node.op: node.name
                    for graph in graphs
                    for function in graph.library.function
                    for node in function.node_def
                }
            raise _conversion_error(error, signatures, named)
        content = (folder / "model.tflite").read_bytes()
    model = modes.quantized(content, quantization)
    compute_sizes_ahead(model)
    for signature in signatures if in_order else ():
        outputs = functions[signature.name].structured_outputs
        _sort_as_model(model, signature, [*outputs])
    return model


def _run_converter(folder: Path) -> str | None:
    """Runs the converter in a worker, and returns its error or None."""
    try:
        with spare_worker(convert_litert.__name__) as worker:
            error: str | None = worker.run(str(folder), limits=_UNLIMITED)
    except WorkerError as crash:
        raise ExportError(f"LiteRT's converter {crash}") from crash
    return error


def _sort_as_model(
    model: Any, signature: Signature, outputs: Sequence[str]
) -> None:
    """Gives a signature's inputs and outputs the order of the model's.

    TensorFlow has sorted them by name, and apps that run a file without its
    signatures take them by position.
    """
    (found,) = (
        each
        for each in model.signatureDefs
        if each.signatureKey.decode() == signature.name
    )

    def tensors(entries: list[Any], names: Sequence[str]) -> list[int]:
        entries.sort(key=lambda entry: names.index(entry.name.decode()))
        return [entry.tensorIndex for entry in entries]

    graph = model.subgraphs[found.subgraphIndex]
    graph.inputs = tensors(found.inputs, [*signature.specs])
    graph.outputs = tensors(found.outputs, outputs)


def _in_float32(model: Any, signatures: Sequence[Signature]) -> Iterator[str]:
    """Yields the paths of large matrices that an unpacked file has in floats.

    Others of its constants are encodings, for example.
    """
    types = litert_schema().TensorType
    found: dict[int, list[Any]] = {}
    for number in {
        tensor.buffer
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.type == types.FLOAT32
    }:
        data = model.buffers[number].data
        if data is not None and len(data) >= 4 * SMALLEST:
            values = np.asarray(data).view("float32")
            found.setdefault(values.size, []).append(values)
    weights = {
        id(weight): weight
        for signature in signatures
        for weight in signature.model.weights
    }
    for weight in weights.values():
        if len(weight.shape) > 1 and math.prod(weight.shape) in found:
            value = keras.ops.convert_to_numpy(weight)
            if any(
                np.array_equal(laid.reshape(-1), values)
                for laid in (value, value.T)
                for values in found[value.size]
            ):
                yield weight.path


_FLEX = (
    "With `allow_flex=True, verify=False` (--allow-flex --no-verify) {what} as "
    "TensorFlow's own, in a runtime with the Flex delegate: verify the file "
    "where there is one"
)


def _needed(message: str) -> dict[str, list[str]]:
    """Returns the operators that LiteRT lacks, by who has them."""
    return {
        kind: sorted(set(re.split(r",\s*", found[1].strip())))
        for kind in ("TF Select", "Custom")
        if (found := re.search(rf"{kind} ops: ([^\n]+)", message))
    }


def _conversion_error(
    message: str,
    signatures: Sequence[Signature],
    named: Mapping[str, str],
) -> ExportError:
    needed = _needed(message)
    layers = [
        layer
        for signature in signatures
        for layer in [*layers_within(signature.model)][1:]
    ]
    if "TF Select" in needed:
        told = lacking(needed["TF Select"], named, layers)
        if not of_python(needed["TF Select"]):
            told += f". {_FLEX.format(what='they run')}"
        return ExportError(
            f"The model needs operators that LiteRT does not have: {told}"
        )
    if "Custom" in needed:
        return ExportError(
            "The model needs operators that neither LiteRT nor its Flex "
            f"delegate has: {lacking(needed['Custom'], named, layers)}"
        )
    if "TensorList" in message:
        if all(
            spec.shape[0] is not None
            for signature in signatures
            for spec in signature.specs.values()
        ):
            return ExportError(
                "The model has a loop that LiteRT's converter does not take, "
                "as of keras.ops.scan: write it as a Python loop over a known "
                f"length. {_FLEX.format(what='the loop runs')}"
            )
        return ExportError(
            "The model has a loop over its sequence, as a recurrent layer has, "
            "and loops in LiteRT need a fixed batch: give "
            f"{of_one_example(signatures)}. "
            f"{_FLEX.format(what='the loop runs')}"
        )
    reason = message.splitlines()[0]
    if found := re.search(r"'tfl\.(\w+)' op ([^\n]+)", message):
        reason = f"operator {found[1]} {found[2]}"
    return ExportError(f"LiteRT's converter refuses the model: {reason}")


def rewrite_operators(saved_model: Path) -> None:
    """Replaces operators that LiteRT or its converter compute differently.

    - Softplus: the converter writes log(1 + exp(x)), which overflows above 88.
    - Rsqrt: XNNPACK (ai-edge-litert 2.3.0) gives NaN at 0 instead of infinity,
      which `keras.layers.UnitNormalization` needs.
    - Pack of sizes: see `_join_by_concat`.
    - Comparisons of a float's sign bit, which LiteRT cannot read: Keras does so
      in `signbit`, and to have -0.0 below 0.0 in `argmax`.
    - StridedSlice that adds axes: see `_add_axes_later`.
    - Reshape to sizes that the graph computes: see `_reshape_to_known`.
    - OneHot of int64: see `_clip_ids`.
    """
    with _edited(saved_model) as graphs:
        for graph in graphs:
            for function in graph.library.function:
                _rewrite(function)


@contextlib.contextmanager
def _edited(saved_model: Path) -> Iterator[list[Any]]:
    """Yields the graphs of a SavedModel, and writes them at the end."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model / "saved_model.pb"
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(file.read_bytes())
    yield [each.graph_def for each in message.meta_graphs]
    file.write_bytes(message.SerializeToString())


# With the operators that are read for these.
_REWRITTEN = (
    *("Bitcast", "BitwiseAnd", "Less", "OneHot", "Pack", "Reshape", "Rsqrt"),
    *("Softplus", "StridedSlice"),
)


def _rewrite(function: Any) -> None:
    renamed: dict[str, str] = {}
    nodes = {node.name: node for node in function.node_def}
    for node in nodes.values():
        if node.op in _REWRITTEN:  # they have no effects to wait for
            node.input[:] = [x for x in node.input if not x.startswith("^")]
    for node in list(nodes.values()):
        if node.op == "StridedSlice":  # while its Pack is one
            _add_axes_later(function, node, nodes)
    for node in list(nodes.values()):
        if node.op == "Reshape":
            _reshape_to_known(function, node, nodes)
        elif node.op == "Pack":
            _join_by_concat(function, node)
        elif node.op == "OneHot":
            _clip_ids(function, node, nodes)
        elif number := _of_sign_bit(node, nodes):
            _sign_by_reciprocal(function, node, number)
        elif node.op == "Softplus":
            _softplus_without_overflow(function, node)
            renamed[f"{node.name}:activations:0"] = f"{node.name}:z:0"
        elif node.op == "Rsqrt" and not _is_above_zero(node, nodes):
            _rsqrt_by_sqrt(function, node)
    for node in function.node_def:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    for key, name in list(function.ret.items()):
        function.ret[key] = renamed.get(name, name)


def _softplus_without_overflow(function: Any, node: Any) -> None:
    """Writes Softplus as max(x, 0) + log(1 + exp(-|x|)); exp is at most 1."""
    (x,) = node.input
    size = _add(function, node, "Abs", "size", x)
    negative = _add(function, node, "Neg", "negative", f"{size}:y:0")
    small = _add(function, node, "Exp", "small", f"{negative}:y:0")
    one = _constant(function, node, 1)
    more = _add(function, node, "AddV2", "more", f"{small}:y:0", one)
    rest = _add(function, node, "Log", "rest", f"{more}:z:0")
    positive = _add(function, node, "Relu", "positive", x)
    node.op = "AddV2"
    node.input[:] = [f"{positive}:activations:0", f"{rest}:y:0"]


def _clip_ids(function: Any, node: Any, nodes: dict[str, Any]) -> None:
    """Clips ids of OneHot to int32, to which the converter cuts their bits.

    2**32 would be class 0.
    """
    import tensorflow as tf

    wide = tf.int64.as_datatype_enum
    if "TI" in node.attr and node.attr["TI"].type != wide:
        return
    source = nodes.get(node.input[0].partition(":")[0])
    if source is not None and source.op == "Cast":
        before = tf.as_dtype(source.attr["SrcT"].type)
        if before.is_integer and before.max <= tf.int32.max:
            return  # as Keras casts all ids
    for op, limit in (("Maximum", -1), ("Minimum", tf.int32.max)):
        value = _values(function, node, limit, f"{op}/limit", wide)
        made = _new(function, node, op, op, node.input[0], value, T=wide)
        node.input[0] = f"{made.name}:z:0"


def _rsqrt_by_sqrt(function: Any, node: Any) -> None:
    """Writes Rsqrt as 1 / sqrt(x), which is infinite at 0."""
    root = _add(function, node, "Sqrt", "root", *node.input)
    node.op = "Reciprocal"  # its output has the name of Rsqrt's
    node.input[:] = [f"{root}:y:0"]


def _of_sign_bit(node: Any, nodes: dict[str, Any]) -> str:
    """Returns the float whose sign bit a comparison reads, or ""."""
    import tensorflow as tf

    if node.op != "Less":
        return ""
    bits, zero, *_ = (nodes.get(name.partition(":")[0]) for name in node.input)
    if bits is None or bits.op != "BitwiseAnd" or _number(zero) != 0:
        return ""
    number, mask = (nodes.get(name.partition(":")[0]) for name in bits.input)
    if number is None or number.op != "Bitcast" or _number(mask) != -(2**31):
        return ""
    if number.attr["T"].type != tf.float32.as_datatype_enum:
        return ""
    return str(number.input[0])


def _number(node: Any) -> Any:
    """Returns the value of a constant scalar, or None."""
    import tensorflow as tf

    if node is None or node.op != "Const":
        return None
    value = tf.make_ndarray(node.attr["value"].tensor)
    return value.item() if value.size == 1 else None


def _sign_by_reciprocal(function: Any, node: Any, number: str) -> None:
    """Writes whether a float is below 0, or -0.0, whose reciprocal is."""
    from tensorflow.core.framework import types_pb2

    node.attr["T"].type = types_pb2.DT_FLOAT
    zero = _constant(function, node, 0)
    is_zero = _add(function, node, "Equal", "is_zero", number, zero)
    inverse = _add(function, node, "Reciprocal", "inverse", number)
    signed = _add(
        function,
        node,
        "SelectV2",
        "signed",
        f"{is_zero}:z:0",
        f"{inverse}:y:0",
        number,
    )
    node.input[:2] = [f"{signed}:output:0", zero]


def _is_above_zero(node: Any, nodes: dict[str, Any]) -> bool:
    """Returns whether a constant is added before it, as in normalizations."""
    added = nodes.get(node.input[0].partition(":")[0])
    return (
        added is not None
        and added.op == "AddV2"
        and any(
            source in nodes and nodes[source].op == "Const"
            for source in (name.partition(":")[0] for name in added.input)
        )
    )


def _join_by_concat(function: Any, node: Any) -> None:
    """Joins sizes by ConcatV2 instead of Pack.

    A LiteRT runtime computes what follows from its inputs' shapes as soon as it
    has them, by every operator of shapes except PACK. If one is left to the
    run, everything after it is prepared while the file runs. XNNPACK's delegate
    (ai-edge-litert 2.3.0) then moves memory that its parts share, but parts
    that have already run keep the old address: in the next run they read and
    write there.
    """
    from tensorflow.core.framework import types_pb2

    integer = types_pb2.DT_INT32
    if node.attr["T"].type != integer:
        return
    axis = _constant(function, node, node.attr["axis"].i)
    count = node.attr["N"].i
    del node.attr["axis"]
    # All three operators have the same name for their output.
    if count == 1:  # too few for ConcatV2
        node.op = "ExpandDims"
        node.input.insert(1, axis)
        node.attr["Tdim"].type = integer
        del node.attr["N"]
        return
    for index in range(count):
        part = _add(
            function, node, "ExpandDims", str(index), node.input[index], axis
        )
        function.node_def[-1].attr["Tdim"].type = integer
        node.input[index] = f"{part}:output:0"
    node.op = "ConcatV2"
    node.input.insert(count, axis)
    node.attr["Tidx"].type = integer


def _reshape_to_known(function: Any, node: Any, nodes: dict[str, Any]) -> None:
    """Writes the sizes of a Reshape that are known as constants.

    TensorFlow knows more of them than the converter, which takes no convolution
    whose input has an unknown number of channels, as after `UpSampling2D`.
    """
    import tensorflow as tf

    shape = nodes.get(node.input[1].partition(":")[0])
    if shape is None or shape.op == "Const" or not _is_int32(node, "Tshape"):
        return
    sizes = _known_sizes(node)
    if all(size < 1 for size in sizes) or 0 in sizes:
        return
    integer = tf.int32.as_datatype_enum
    new = functools.partial(_new, function, node)
    constant = functools.partial(_integers, function, node)

    if sizes.count(-1) < 2:
        node.input[1] = constant(sizes, "sizes")
        return
    axis, parts = constant(0, "axis"), []
    for place, size in enumerate(sizes):
        if size != -1:
            parts.append(constant([size], f"size_{place}"))
            continue
        part = new(
            *("GatherV2", f"part_{place}", node.input[1]),
            *(constant([place], f"place_{place}"), axis),
            Tparams=integer,
            Tindices=integer,
            Taxis=integer,
        )
        parts.append(f"{part.name}:output:0")
    joined = new(*("ConcatV2", "joined", *parts, axis), T=integer, Tidx=integer)
    joined.attr["N"].i = len(parts)
    node.input[1] = f"{joined.name}:output:0"


def _known_sizes(node: Any) -> list[int]:
    """Returns the sizes of a node's output, -1 where unknown, or none."""
    if "_output_shapes" not in node.attr:
        return []
    (shape,) = node.attr["_output_shapes"].list.shape
    return [dim.size for dim in shape.dim]


def _is_int32(node: Any, attribute: str) -> bool:
    from tensorflow.core.framework import types_pb2

    return attribute not in node.attr or (
        node.attr[attribute].type == types_pb2.DT_INT32
    )


def _add_axes_later(function: Any, node: Any, nodes: dict[str, Any]) -> None:
    """Adds a slice's new axes by ExpandDims, as in `x[..., None, :2]`.

    The converter takes few slices of dynamic shape that add axes: none that has
    an ellipsis or drops an axis, and none of bools.
    """
    import tensorflow as tf

    if "new_axis_mask" not in node.attr:
        return
    names = "begin_mask", "end_mask", "ellipsis_mask", "shrink_axis_mask"
    masks = {
        name: node.attr[name].i if name in node.attr else 0 for name in names
    }
    added = node.attr["new_axis_mask"].i & ~masks["ellipsis_mask"]
    if not added:
        return
    strides = nodes.get(node.input[3].partition(":")[0])
    if strides is None or strides.op not in ("Const", "Pack"):
        return
    count = (
        strides.attr["N"].i
        if strides.op == "Pack"
        else tf.make_ndarray(strides.attr["value"].tensor).size
    )
    kept = [place for place in range(count) if not added >> place & 1]
    # Axes of the output, where an ellipsis is of any number.
    axes = [p for p in range(count) if not masks["shrink_axis_mask"] >> p & 1]
    ellipsis = masks["ellipsis_mask"].bit_length() - 1
    first = [p for p in axes if ellipsis < 0 or p < ellipsis]
    last = [p for p in axes if 0 <= ellipsis < p][::-1]
    places = [axis for axis, p in enumerate(first) if added >> p & 1]
    places += [-1 - axis for axis, p in enumerate(last) if added >> p & 1]
    new = functools.partial(_new, function, node)
    constant = functools.partial(_integers, function, node)

    dtype, index = node.attr["T"].type, node.attr["Index"].type
    rows, axis = constant(kept, "kept"), constant(0, "axis")
    inputs = [node.input[0]]
    for number, name in enumerate(node.input[1:4]):
        part = new(
            *("GatherV2", f"part_{number}", name, rows, axis),
            Tparams=index,
            Tindices=tf.int32.as_datatype_enum,
            Taxis=tf.int32.as_datatype_enum,
        )
        inputs.append(f"{part.name}:output:0")
    sliced = new("StridedSlice", "sliced", *inputs, T=dtype, Index=index)
    for name, mask in masks.items():
        bits = (mask >> place & 1 for place in kept)
        sliced.attr[name].i = sum(bit << k for k, bit in enumerate(bits))
    for number, place in enumerate(places[:-1]):
        sliced = new(
            *("ExpandDims", f"axis_{number}", f"{sliced.name}:output:0"),
            *(constant(place, f"place_{number}"),),
            T=dtype,
            Tdim=tf.int32.as_datatype_enum,
        )
    node.op = "ExpandDims"
    node.input[:] = [f"{sliced.name}:output:0", constant(places[-1], "place")]
    for name in [*node.attr]:
        if name != "T" and not name.startswith("_"):
            del node.attr[name]
    node.attr["Tdim"].type = tf.int32.as_datatype_enum


def _new(
    function: Any, node: Any, op: str, name: str, *inputs: str, **types: int
) -> Any:
    """Adds an operator with the given attributes of dtypes; returns it."""
    made = function.node_def.add(
        name=f"{node.name}/rewritten/{name}", op=op, input=inputs
    )
    for key, value in types.items():
        made.attr[key].type = value
    return made


def _integers(function: Any, node: Any, values: Any, name: str) -> str:
    """Adds a constant of int32; returns the name of its tensor."""
    from tensorflow.core.framework import types_pb2

    return _values(function, node, values, name, types_pb2.DT_INT32)


def _values(
    function: Any, node: Any, values: Any, name: str, dtype: int
) -> str:
    """Adds a constant; returns the name of its tensor."""
    import tensorflow as tf

    made = _new(function, node, "Const", name, dtype=dtype)
    made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values, dtype))
    return f"{made.name}:output:0"


def _add(function: Any, node: Any, op: str, name: str, *inputs: str) -> str:
    """Adds an operator of the node's dtype; returns its name."""
    dtype = node.attr["T"].type
    return str(_new(function, node, op, name, *inputs, T=dtype).name)


def _constant(function: Any, node: Any, value: int) -> str:
    """Adds a scalar of the node's dtype; returns the name of its tensor."""
    dtype = node.attr["T"].type
    return _values(function, node, value, "constant", dtype)
