"""Limits of the difference between a file's outputs and the model's."""

import math
from collections.abc import Mapping

from keras_posenc.checks import is_number

TOLERANCE = 1e-5  # of files that compute in float32

MODES = ("float16", "int8", "int8-weights", "int8-static", "int4")

# Least signal to quantization noise ratio in dB. Right files of nine models had
# at least 51 dB (float16), 27 (int8), 28 (int8-weights), 8 (int8-static, on
# inputs outside its calibration) and 5 (int4). ONNX's int8 has about 10 dB less
# than LiteRT's. A kernel times 1.5 left 21 dB at most, a shifted one 6.
LEAST_SQNR = {
    "float16": 40.0,
    "int8": 10.0,
    "int8-weights": 20.0,
    "int8-static": 6.0,
    "int4": 4.0,
}
# The other limits, of every mode.
_LIMITS = {"agreement": 0.6, "cosine": 0.7, "kl": 0.1, "perplexity": 1.1}
_RANGES = {
    "sqnr": (-math.inf, math.inf),
    "agreement": (0.0, 1.0),
    "cosine": (-1.0, 1.0),
    "kl": (0.0, math.inf),
    "perplexity": (1.0, math.inf),
}


def limits_of(
    quantization: str | None,
    given: Mapping[str, float] | None,
    tolerance: float | None,
) -> dict[str, float]:
    """Returns the limits of a quantized file by name; none for float32."""
    if quantization is None:
        if given is not None:
            raise ValueError(
                "`limits` can be given for quantized files only, and this "
                "one is not: give `tolerance` instead. "
                f"Received: limits={given!r:.80}"
            )
        return {}
    if tolerance is not None:
        raise ValueError(
            "`tolerance` is of files in float32, and this file is quantized "
            f"({quantization}): leave it out, or give, say, "
            f"`limits={{'sqnr': 3.0}}`. Received: tolerance={tolerance!r}"
        )
    is_right = isinstance(given or {}, Mapping) and all(
        name in _RANGES
        and is_number(value)
        and _RANGES[name][0] <= value <= _RANGES[name][1]
        for name, value in (given or {}).items()
    )
    if not is_right:
        raise ValueError(
            "`limits` must be numbers by name, such as `limits={'sqnr': 3.0}`: "
            "sqnr, agreement (0 to 1), cosine (-1 to 1), kl (at least 0) and "
            f"perplexity (at least 1). Received: limits={given!r}"
        )
    default = {"sqnr": LEAST_SQNR.get(quantization, 4.0), **_LIMITS}
    return {**default, **(given or {})}
