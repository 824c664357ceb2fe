"""Quantization of LiteRT files: modes, and recipes of ai-edge-quantizer."""

import contextlib
import dataclasses
import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats.litert_edit import kinds_of
from keras_posenc.export.formats.litert_file import read, variables_in, write
from keras_posenc.export.formats.litert_round import (
    SMALLEST,
    look_up,
    place_of,
    round_weights,
    weights_of,
)
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.publish import working_folder

_BLOCK = 32  # numbers of a row that share a scale, in 4 bits
_BLOCKWISE = ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")
_STATIC = "activation_tensor_config"
# 8 bits are too few for positions, norms and scores.
_STATICALLY = (
    *("FULLY_CONNECTED", "CONV_2D", "CONV_2D_TRANSPOSE"),
    "DEPTHWISE_CONV_2D",
)
_OF_BITS = {4: "int4", 8: "int8", 16: "float16"}
_KEYS = ("regex", "operation", "algorithm_key")

# Bits of a number in each mode. "int8-weights" has as many as "int8": one more,
# so that the faster one is taken if both are good enough. In "int4" a block has
# a scale of 16 bits.
BITS = {
    "int4": 4.5,
    "int8": 8.0,
    "int8-weights": 9.0,
    "float16": 16.0,
    "float32": 32.0,
}
# By the names of ai-edge-quantizer.
_NAMES = {"TRANSPOSE_CONV": "CONV_2D_TRANSPOSE"}
_CONVOLUTIONS = {"CONV_2D", "CONV_2D_TRANSPOSE", "DEPTHWISE_CONV_2D"}
_IN_MODE = {
    "int4": {*_BLOCKWISE},
    "int8": {*_BLOCKWISE, *_CONVOLUTIONS, "BATCH_MATMUL"},
    # Not tables, which have no product.
    "int8-weights": {"FULLY_CONNECTED", *_CONVOLUTIONS, "BATCH_MATMUL"},
    "float16": {*_BLOCKWISE, *_CONVOLUTIONS},
}

Recipe = Sequence[Mapping[str, Any]]
Samples = Mapping[str, Sequence[Inputs]]  # by signature


def resolve_quantization(quantization: Any) -> str | Recipe | None:
    """Returns a mode, or a recipe: a list, or that of a JSON file."""
    if quantization is None or quantization in MODES:
        if quantization in ("int4", "int8-static"):
            require_quantizer()
        return quantization
    recipe = quantization
    if isinstance(recipe, Path) or str(recipe).endswith(".json"):
        try:
            recipe = json.loads(Path(recipe).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(
                "`quantization` is the path of a recipe of ai-edge-quantizer, "
                f"a JSON file, which cannot be read: {error}"
            ) from error
    elif not isinstance(recipe, list):
        raise ValueError(
            f"`quantization` must be one of {', '.join(map(repr, MODES))}, "
            "the path of a recipe of ai-edge-quantizer (.json), a list of "
            "its dicts, or None; kp.quantize finds a recipe. Received: "
            f"quantization={quantization!r}"
        )
    if (
        not isinstance(recipe, list)
        or not recipe
        or not all(
            isinstance(each, Mapping) and {*_KEYS} <= {*each} for each in recipe
        )
    ):
        raise ValueError(
            "A recipe in `quantization` must be a list of dicts with the keys "
            f"{', '.join(_KEYS)} and op_config, such as "
            "`ai_edge_quantizer.recipe.dynamic_wi8_afp32()`. Received: "
            f"quantization={quantization!r}"
        )
    require_quantizer()
    return recipe


def rounded(
    model: Any,
    quantization: str | Recipe | None,
    samples: Samples | None = None,
) -> Any:
    """Returns an unpacked file of float32 in a mode, or by a recipe."""
    if quantization in ("float16", "int8", "int8-weights"):
        round_weights(model, quantization)
    elif quantization == "int4":
        model = round_to_int4(model)
    elif quantization == "int8-static":
        recipe = [entry_of(each, quantization) for each in _STATICALLY]
        model = round_by_recipe(model, recipe, samples)
        round_weights(model, "int8")
    elif quantization is not None:
        assert not isinstance(quantization, str)
        model = round_by_recipe(model, quantization)
    return model


def mode_of(quantization: str | Recipe | None) -> str | None:
    """Returns a mode, or the one that rounds as coarsely as a recipe does."""
    if quantization is None or isinstance(quantization, str):
        return quantization
    configs = [each.get("op_config") or {} for each in quantization]
    try:
        is_static = any(config.get(_STATIC) for config in configs)
        bits = {
            int(config["weight_tensor_config"]["num_bits"])
            for config in configs
            if config.get("weight_tensor_config")
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "A recipe in `quantization` must have `op_config`, with a "
            "`weight_tensor_config` of `num_bits`, as those of "
            "`ai_edge_quantizer.recipe` have. Received: "
            f"{type(error).__name__}: {error}"
        ) from error
    if is_static:
        raise ValueError(
            "A recipe in `quantization` must not fix the ranges of activations "
            f"('{_STATIC}'): give quantization='int8-static', or export the "
            "model in float32, quantize that file with ai-edge-quantizer, and "
            "verify it: kp.verify_export(path, model, samples=...)"
        )
    if not bits or not bits <= _OF_BITS.keys():
        raise ValueError(
            "A recipe in `quantization` must quantize weights to 4, 8 or 16 "
            f"bits. Received: {', '.join(map(str, sorted(bits))) or 'none'}"
        )
    return _OF_BITS[min(bits)]


def round_by_recipe(
    model: Any, recipe: Recipe, samples: Samples | None = None
) -> Any:
    """Returns an unpacked file of float32, quantized by a recipe.

    A recipe with ranges of activations finds these by running the samples.
    """
    require_quantizer()
    from ai_edge_quantizer import quantizer

    look_up(model)
    with working_folder() as folder:
        path = folder / "float32.tflite"
        write(model, path)
        # It shows the progress of its own.
        with (
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(action="ignore"),
        ):
            try:
                found = quantizer.Quantizer(str(path), list(recipe))
                ranges = None
                if found.need_calibration:
                    ranges = found.calibrate(dict(samples or {}))
                content = found.quantize(
                    ranges,
                    enable_progress_bar=False,
                    enable_progress_report=False,
                ).quantized_model
            except (ValueError, KeyError, TypeError, RuntimeError) as error:
                raise ExportError(
                    f"ai-edge-quantizer refuses the recipe: {error}"
                ) from error
    return read(bytes(content))


def round_to_int4(model: Any) -> Any:
    """Returns an unpacked file with weights of 4 bits, in blocks of 32.

    Weights without whole blocks, or of other operators, get 8 bits.
    """
    look_up(model)
    recipe = [entry_of(each, "int4") for each in _BLOCKWISE]
    recipe += _without_blocks(model)
    model = round_by_recipe(model, recipe)
    round_weights(model, "int8")
    return model


def entry_of(operation: str, mode: str, regex: str = ".*") -> dict[str, Any]:
    """Returns the entry of a recipe for an operator's weights in a mode.

    Args:
        operation: The operator, as ai-edge-quantizer calls it.
        mode: The mode.
        regex: Which of these operators.
    """
    is_float = mode == "float16"
    is_product = mode in ("int4", "int8", "int8-static")
    activations = {
        "num_bits": 8,
        "symmetric": False,
        "granularity": "TENSORWISE",
        "dtype": "INT",
    }
    granularity = "CHANNELWISE"
    if is_float or operation == "BATCH_MATMUL":
        granularity = "TENSORWISE"
    elif mode == "int4":
        granularity = f"BLOCKWISE_{_BLOCK}"
    return {
        "regex": regex,
        "operation": operation,
        "algorithm_key": "float_casting"
        if is_float
        else "min_max_uniform_quantize",
        "op_config": {
            **({_STATIC: activations} if mode == "int8-static" else {}),
            "weight_tensor_config": {
                "num_bits": {"int4": 4, "float16": 16}.get(mode, 8),
                "symmetric": True,
                "granularity": granularity,
                "dtype": "FLOAT" if is_float else "INT",
            },
            "compute_precision": "INTEGER" if is_product else "FLOAT",
            "explicit_dequantize": not is_product,
            "skip_checks": False,
            "min_weight_elements": 0 if mode == "int8-static" else SMALLEST,
        },
    }


def _without_blocks(model: Any) -> Iterator[dict[str, Any]]:
    """Yields recipes that leave out operators whose weights have no blocks.

    ai-edge-quantizer calls an operator by the name of its output.
    """
    kinds = kinds_of(model)
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            if kind in _BLOCKWISE:
                weight = graph.tensors[operator.inputs[1]]
                output = graph.tensors[operator.outputs[0]]
                if weight.shape[-1] % _BLOCK:
                    yield {
                        "regex": re.escape(bytes(output.name).decode()),
                        "operation": kind,
                        "algorithm_key": "no_quantize",
                        "op_config": {},
                    }


def require_quantizer() -> None:
    """Raises `ImportError` if ai-edge-quantizer is not installed."""
    try:
        import ai_edge_quantizer  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "quantization='int4', 'int8-static' and recipes need "
            "ai-edge-quantizer: pip install 'keras-posenc[quantize]'"
        ) from error


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight of a file of float32, which a recipe may quantize.

    Attributes:
        name: Its path in the model, or else the operator that reads it.
        numbers: How many numbers it has.
        width: How many of them are in a row.
        operators: The kind and the output of each operator that reads it.
    """

    name: str
    numbers: int
    width: int
    operators: list[tuple[str, str]]

    def takes(self, mode: str) -> bool:
        """Returns whether its operators have a mode."""
        if mode == "float32":
            return True
        has_blocks = mode != "int4" or self.width % _BLOCK == 0
        return has_blocks and {x for x, _ in self.operators} <= _IN_MODE[mode]

    def recipe(self, mode: str) -> Iterator[dict[str, Any]]:
        """Yields the entries of a recipe that has it in a mode."""
        for kind, output in self.operators if mode != "float32" else ():
            # ai-edge-quantizer calls an operator by the name of its output, and
            # ends it by a semicolon.
            yield entry_of(kind, mode, f"^{re.escape(output)};?$")


def weights_in(path: Path, variables: Sequence[Any]) -> list[Weight]:
    """Returns the weights of a file of float32 that a recipe may quantize."""
    model = read(path.read_bytes())
    look_up(model)
    kinds, weights = kinds_of(model), weights_of(model)
    names = variables_in(model, variables)
    readers: dict[int, list[tuple[str, str]]] = {}
    widths: dict[int, int] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            place = place_of(kind, operator)
            if place is not None:
                tensor = graph.tensors[operator.inputs[place]]
                output = graph.tensors[operator.outputs[0]]
                readers.setdefault(tensor.buffer, []).append(
                    (_NAMES.get(kind, kind), bytes(output.name).decode())
                )
                if tensor.buffer in weights:
                    widths[tensor.buffer] = int(tensor.shape[-1])
    return [
        Weight(
            names[buffer].path if buffer in names else readers[buffer][0][1],
            len(model.buffers[buffer].data) // 4,
            widths[buffer],
            readers[buffer],
        )
        for buffer in sorted(weights)
    ]
