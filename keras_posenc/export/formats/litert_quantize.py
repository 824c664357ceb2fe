"""Quantization of LiteRT files: modes, and recipes of ai-edge-quantizer."""

import contextlib
import dataclasses
import io
import json
import math
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
_STATIC = "activation_tensor_config"
_OF_BITS = {4: "int4", 8: "int8", 16: "float16"}
_KEYS = ("regex", "operation", "algorithm_key", "op_config")

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
    "int4": {"FULLY_CONNECTED", "EMBEDDING_LOOKUP"},
    "int8": {
        *("FULLY_CONNECTED", "EMBEDDING_LOOKUP", "BATCH_MATMUL"),
        *_CONVOLUTIONS,
    },
    # Not tables, which have no product.
    "int8-weights": {"FULLY_CONNECTED", "BATCH_MATMUL", *_CONVOLUTIONS},
    # 8 bits are too few for positions, norms and scores.
    "int8-static": {"FULLY_CONNECTED", *_CONVOLUTIONS},
    "float16": {"FULLY_CONNECTED", "EMBEDDING_LOOKUP", *_CONVOLUTIONS},
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
    mode_of(recipe)
    require_quantizer()
    return recipe


def mode_of(quantization: str | Recipe | None) -> str | None:
    """Returns a mode, or the one that rounds as coarsely as a recipe does."""
    if quantization is None or isinstance(quantization, str):
        return quantization
    try:
        entries = [{key: each[key] for key in _KEYS} for each in quantization]
        configs = [each["op_config"] or {} for each in entries]
        is_static = any(config.get(_STATIC) for config in configs)
        bits = {
            int(config["weight_tensor_config"]["num_bits"])
            for config in configs
            if config.get("weight_tensor_config")
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "A recipe in `quantization` must be a list of dicts with the keys "
            f"{', '.join(_KEYS)}, such as "
            "`ai_edge_quantizer.recipe.dynamic_wi8_afp32()`. Received: "
            f"quantization={quantization!r}"
        ) from error
    if is_static:
        raise ValueError(
            "A recipe in `quantization` must not fix the ranges of activations "
            f"('{_STATIC}'): give `quantization='int8-static'`"
        )
    if not bits or not bits <= _OF_BITS.keys():
        raise ValueError(
            "A recipe in `quantization` must quantize weights to 4, 8 or 16 "
            f"bits. Received: {', '.join(map(str, sorted(bits))) or 'none'}"
        )
    return _OF_BITS[min(bits)]


def require_quantizer() -> None:
    """Raises `ImportError` if ai-edge-quantizer is not installed."""
    try:
        import ai_edge_quantizer  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "`quantization='int4'`, 'int8-static' and recipes need "
            "ai-edge-quantizer: pip install 'keras-posenc[quantize]'"
        ) from error


def rounded(
    model: Any,
    quantization: str | Recipe | None,
    samples: Samples | None = None,
) -> Any:
    """Returns a file in a mode or by a recipe; in int4 some have 8 bits."""
    if quantization in ("int4", "int8-static"):
        if quantization == "int4":
            weights = [x for x in weights_in(model) if x.takes("int4")]
            recipe = [entry for x in weights for entry in x.recipe("int4")]
        else:
            names = sorted(_IN_MODE["int8-static"])
            recipe = [_entry(each, "int8-static") for each in names]
        model = _by_recipe(model, recipe, samples)
        quantization = "int8"
    if isinstance(quantization, str):
        round_weights(model, quantization)
    elif quantization is not None:
        model = _by_recipe(model, quantization)
    return model


def _by_recipe(
    model: Any, recipe: Recipe, samples: Samples | None = None
) -> Any:
    """Finds ranges of activations, if it needs any, by running the samples."""
    from ai_edge_quantizer import quantizer

    look_up(model)
    if not recipe:
        return model
    with working_folder() as folder:
        path = folder / "float32.tflite"
        write(model, path)
        # It shows the progress of its own.
        with (
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(action="ignore"),
        ):
            try:
                found = quantizer.Quantizer(str(path), [*recipe])
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


def _entry(operation: str, mode: str, regex: str = ".*") -> dict[str, Any]:
    is_float, is_static = mode == "float16", mode == "int8-static"
    is_product = mode in ("int4", "int8", "int8-static")
    granularity = "CHANNELWISE"
    if is_float or operation == "BATCH_MATMUL":
        granularity = "TENSORWISE"
    elif mode == "int4":
        granularity = f"BLOCKWISE_{_BLOCK}"

    def numbers(bits: int, is_symmetric: bool, each: str) -> dict[str, Any]:
        return {
            "num_bits": bits,
            "symmetric": is_symmetric,
            "granularity": each,
            "dtype": "FLOAT" if is_float else "INT",
        }

    bits = {"int4": 4, "float16": 16}.get(mode, 8)
    config = {
        "weight_tensor_config": numbers(bits, True, granularity),
        "compute_precision": "INTEGER" if is_product else "FLOAT",
        "explicit_dequantize": not is_product,
        "skip_checks": False,
        "min_weight_elements": 0 if is_static else SMALLEST,
    }
    if is_static:
        config[_STATIC] = numbers(8, False, "TENSORWISE")
    algorithm = "float_casting" if is_float else "min_max_uniform_quantize"
    return dict(zip(_KEYS, (regex, operation, algorithm, config), strict=True))


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight of a file, and the kinds and outputs of what reads it."""

    name: str
    shape: tuple[int, ...]
    operators: list[tuple[str, str]]

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def takes(self, mode: str) -> bool:
        """Returns whether its operators have a mode."""
        if mode == "float32":
            return True
        has_blocks = mode != "int4" or self.shape[-1] % _BLOCK == 0
        return has_blocks and {x for x, _ in self.operators} <= _IN_MODE[mode]

    def recipe(self, mode: str) -> Iterator[dict[str, Any]]:
        """Yields the entries of a recipe that has it in a mode."""
        for kind, output in self.operators if mode != "float32" else ():
            # ai-edge-quantizer calls an operator by the name of its output, and
            # ends it by a semicolon.
            yield _entry(kind, mode, f"^{re.escape(output)};?$")


def weights_in(model: Any, variables: Sequence[Any] = ()) -> list[Weight]:
    """Returns the weights of an unpacked file that a recipe may quantize."""
    look_up(model)
    kinds, names = kinds_of(model), variables_in(model, variables)
    found: dict[int, Weight] = {}
    weights = weights_of(model)
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            place = place_of(kind, operator)
            if place is None:
                continue
            tensor = graph.tensors[operator.inputs[place]]
            if tensor.buffer in weights:
                output = graph.tensors[operator.outputs[0]]
                reader = _NAMES.get(kind, kind), bytes(output.name).decode()
                known = names.get(tensor.buffer)
                name = reader[1] if known is None else known.path
                shape = tuple(map(int, tensor.shape))
                each = Weight(name, shape, [])
                found.setdefault(tensor.buffer, each).operators.append(reader)
    return [found[buffer] for buffer in sorted(found)]
