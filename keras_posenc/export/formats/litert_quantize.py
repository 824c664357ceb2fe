"""Quantization of LiteRT files."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats.litert_file import read
from keras_posenc.export.formats.litert_recipe import (
    Recipe,
    mode_of,
    recipe_of,
    require_quantizer,
    round_by_recipe,
    round_to_int4,
)
from keras_posenc.export.formats.litert_round import round_to_int8
from keras_posenc.export.probes.samples import Inputs, fit_samples
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.signatures.from_model import of_one_example
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import trace
from keras_posenc_worker.convert_litert import WEIGHTED
from keras_posenc_worker.formats import litert_schema


def resolve_quantization(quantization: Any) -> tuple[str | None, Recipe | None]:
    """Returns the mode of quantization, and the caller's own recipe or None.

    A recipe's mode is the one that rounds as coarsely as it does somewhere.

    Raises:
        ValueError: An unknown mode, or no recipe.
        ImportError: ai-edge-quantizer is needed and not installed.
    """
    if quantization is None or quantization in MODES:
        if quantization == "int4":
            require_quantizer()
        return quantization, None
    is_name = isinstance(quantization, str) and not quantization.endswith(
        ".json"
    )
    if is_name or not isinstance(quantization, str | Path | list):
        raise ValueError(
            "`quantization` must be one of 'auto', "
            f"{', '.join(map(repr, MODES))}, the path of a "
            "recipe of ai-edge-quantizer (.json), a list of its "
            f"dicts, or None. Received: quantization={quantization!r}"
        )
    recipe = recipe_of(quantization)
    require_quantizer()
    return mode_of(recipe), recipe


def check_quantization(
    quantization: str | None,
    representative: Any,
    signatures: Sequence[Signature],
) -> Mapping[str, list[Inputs]]:
    """Returns the batches that calibrate each signature, for `int8-static`.

    Args:
        quantization: The mode.
        representative: The caller's inputs, or None.
        signatures: The signatures.

    Raises:
        ValueError: Batches that are not needed, missing, empty, of another
            shape, or not finite.
    """
    if quantization != "int8-static":
        if representative is not None:
            raise ValueError(
                "`representative` is to calibrate quantization='int8-static' "
                f"with. Received: quantization={quantization!r}"
            )
        return {}
    if representative is None:
        raise ValueError(
            "quantization='int8-static' needs `representative`: some hundred "
            "real inputs, such as texts[:200] (strings) or an array of ids"
        )
    fitted = fit_samples(signatures, representative, "representative")
    batches = {}
    for signature in signatures:
        fitting = fitted[signature.name]
        batches[signature.name] = [
            inputs
            for inputs in fitting
            if all(array.size for array in inputs.values())
        ]
        if not batches[signature.name]:
            shapes = ", ".join(
                f"{name} of shape {tuple(spec.shape)}"
                for name, spec in signature.specs.items()
            )
            raise ValueError(
                "`representative` must hold batches of numbers to calibrate "
                f"signature '{signature.name}' with: {shapes}. Received: "
                f"{'empty ones only' if fitting else 'none of that shape'}"
            )
        for inputs in batches[signature.name]:
            for name, array in inputs.items():
                # With NaN or infinity the calibrator crashes this process.
                if not np.all(np.isfinite(array)):
                    raise ValueError(
                        "`representative` must be finite numbers. Received: "
                        f"NaN or infinity in input '{name}'"
                    )
        shapes_given = {
            tuple(array.shape for array in inputs.values())
            for inputs in batches[signature.name]
        }
        # LiteRT's calibrator resizes inputs one by one, and fails if a batch
        # has two new shapes.
        if len(signature.specs) > 1 and len(shapes_given) > 1:
            raise ValueError(
                "`representative` must be of one shape for signature "
                f"'{signature.name}', which has several inputs: pad the "
                f"batches. Received: {len(shapes_given)} shapes"
            )
    return batches


def refuse_loops(signatures: Sequence[Signature]) -> None:
    """Raises `ExportError` for a loop, in which LiteRT's calibrator crashes.

    The crash would end this process.
    """
    fixed = of_one_example(signatures)
    for signature in signatures:
        graph = trace(signature).graph.as_graph_def()
        bodies = (function.node_def for function in graph.library.function)
        for node in itertools.chain(graph.node, *bodies):
            if node.op in ("While", "StatelessWhile"):
                raise ExportError(
                    f"Model '{signature.model.name}' has a loop, "
                    f"'{node.name}', as a recurrent layer has, which cannot "
                    "be calibrated for quantization='int8-static'. Give "
                    "`quantization='int8', representative=None` "
                    f"(--quantization int8) and {fixed}, or build the layer "
                    "with unroll=True and its input with a fixed length"
                )


def quantized(content: bytes, quantization: str | Recipe | None) -> Any:
    """Returns a converted file as an object, in a mode or by a recipe."""
    model = read(content)
    if quantization == "int8-static":  # the converter has rounded it
        return _without_detours(model)
    return rounded(model, quantization)


def rounded(model: Any, quantization: str | Recipe | None) -> Any:
    """Returns an unpacked file of float32 in a mode, or by a recipe."""
    if quantization == "float16":
        _round_to_float16(model)
    elif quantization in ("int8", "int8-weights"):
        round_to_int8(model, is_dynamic=quantization == "int8")
    elif quantization == "int4":
        model = round_to_int4(model)
    elif quantization is not None:
        assert not isinstance(quantization, str)
        model, _ = round_by_recipe(model, quantization)
    return model


def _round_to_float16(model: Any) -> None:
    """Rounds a file's weights to float16; it casts them as it is loaded.

    The converter's own mode rounds every constant, also an encoding that it has
    folded to one.
    """
    schema = litert_schema()
    kinds, types = schema.BuiltinOperator, schema.TensorType
    weighted = {getattr(kinds, name) for name in (*WEIGHTED, "BATCH_MATMUL")}
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = kinds.DEQUANTIZE
    code.version = 3  # the first version that takes float16
    model.operatorCodes.append(code)
    halves: dict[int, int] = {}
    for graph in model.subgraphs:
        readers: dict[int, set[int]] = {}
        for operator in graph.operators:
            kind = model.operatorCodes[operator.opcodeIndex].builtinCode
            for index in operator.inputs:
                readers.setdefault(int(index), set()).add(kind)
        added = []
        for index, tensor in enumerate(list(graph.tensors)):
            data = model.buffers[tensor.buffer].data
            # Round only constants that are read by products alone.
            if (
                data is None
                or tensor.type != types.FLOAT32
                or not readers.get(index)
                or not readers[index] <= weighted
            ):
                continue
            if tensor.buffer not in halves:
                values = np.asarray(data).view("float32")
                # Larger weights would become infinite.
                if not np.all(np.abs(values) <= np.finfo("float16").max):
                    continue
                buffer = schema.BufferT()
                buffer.data = values.astype("float16").view("uint8")
                model.buffers.append(buffer)
                halves[tensor.buffer] = len(model.buffers) - 1
            half = copy.copy(tensor)
            half.name = b"float16/" + bytes(tensor.name)
            half.type, half.buffer = types.FLOAT16, halves[tensor.buffer]
            tensor.buffer = 0  # buffer 0 is always empty
            graph.tensors.append(half)
            operator = schema.OperatorT()
            operator.opcodeIndex = len(model.operatorCodes) - 1
            operator.inputs = [len(graph.tensors) - 1]
            operator.outputs = [index]
            added.append(operator)
        graph.operators = [*added, *graph.operators]
    used = {t.buffer for graph in model.subgraphs for t in graph.tensors}
    for index in halves:
        if index not in used:
            model.buffers[index].data = None


def _without_detours(model: Any) -> Any:
    """Returns a file without Quantize operators that Dequantize follows.

    The quantizer leaves such pairs next to operators that it must not quantize;
    they only cost precision.
    """
    schema = litert_schema()
    kinds = schema.BuiltinOperator
    conversions = (kinds.QUANTIZE, kinds.DEQUANTIZE)

    def kind(operator: Any) -> int:
        return model.operatorCodes[operator.opcodeIndex].builtinCode

    for index, graph in enumerate(model.subgraphs):
        rounded = {
            operator.outputs[0]: operator.inputs[0]
            for operator in graph.operators
            if kind(operator) == kinds.QUANTIZE
        }
        source = {}
        for operator in graph.operators:
            tensor = operator.inputs[0] if len(operator.inputs) else -1
            if kind(operator) == kinds.DEQUANTIZE and tensor in rounded:
                while tensor in rounded:
                    tensor = rounded[tensor]
                if graph.tensors[tensor].type == schema.TensorType.FLOAT32:
                    source[operator.outputs[0]] = tensor
        for operator in graph.operators:
            operator.inputs = [source.get(i, i) for i in operator.inputs]
        graph.outputs = [source.get(i, i) for i in graph.outputs]
        for signature in model.signatureDefs:
            if signature.subgraphIndex == index:
                for entry in signature.outputs:
                    entry.tensorIndex = source.get(
                        entry.tensorIndex, entry.tensorIndex
                    )
        while True:  # removing an operator may make those before it unused
            used = {*graph.outputs}.union(
                *(operator.inputs for operator in graph.operators)
            )
            kept = [
                operator
                for operator in graph.operators
                if kind(operator) not in conversions
                or operator.outputs[0] in used
            ]
            if len(kept) == len(graph.operators):
                break
            graph.operators = kept
    return model
