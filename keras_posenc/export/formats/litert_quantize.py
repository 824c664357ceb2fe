"""Quantization of LiteRT files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.formats.litert_file import read
from keras_posenc.export.formats.litert_recipe import (
    Recipe,
    recipe_of,
    require_quantizer,
    round_by_recipe,
    round_to_int4,
)
from keras_posenc.export.formats.litert_round import round_weights
from keras_posenc.export.probes.samples import Inputs, fit_samples
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.signatures.signature import Signature
from keras_posenc_worker.formats import litert_schema


def resolve_quantization(quantization: Any) -> str | Recipe | None:
    """Returns the mode of quantization, or the recipe that a file may hold.

    Raises:
        ValueError: An unknown mode, or no recipe.
        ImportError: ai-edge-quantizer is needed and not installed.
    """
    if quantization is not None and quantization not in MODES:
        is_name = isinstance(quantization, str) and not quantization.endswith(
            ".json"
        )
        if is_name or not isinstance(quantization, str | Path | list):
            raise ValueError(
                f"`quantization` must be one of {', '.join(map(repr, MODES))}, "
                "the path of a recipe of ai-edge-quantizer (.json), a list of "
                "its dicts, or None; kp.quantize finds a recipe. Received: "
                f"quantization={quantization!r}"
            )
        quantization = recipe_of(quantization)
        require_quantizer()
    elif quantization == "int4":
        require_quantizer()
    return quantization


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
        ValueError: Batches that are not needed, missing, empty, or of another
            shape.
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


def quantized(content: bytes, quantization: str | Recipe | None) -> Any:
    """Returns a converted file as an object, in a mode or by a recipe."""
    model = read(content)
    if quantization == "int8-static":  # the converter has rounded it
        return _without_detours(model)
    return rounded(model, quantization)


def rounded(model: Any, quantization: str | Recipe | None) -> Any:
    """Returns an unpacked file of float32 in a mode, or by a recipe."""
    if quantization in ("float16", "int8", "int8-weights"):
        round_weights(model, quantization)
    elif quantization == "int4":
        model = round_to_int4(model)
    elif quantization is not None:
        assert not isinstance(quantization, str)
        model = round_by_recipe(model, quantization)
    return model


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
