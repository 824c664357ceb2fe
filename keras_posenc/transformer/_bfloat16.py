"""Processors that are slower in bfloat16 than in float32."""

import functools
import re
import warnings
from pathlib import Path

import keras

_PROCESSOR = Path("/proc/cpuinfo")


@functools.cache
def warn_of_slow_bfloat16() -> None:
    """Warns, once in a process, where TensorFlow computes bfloat16 slowly.

    Slow are x86 processors without bfloat16 units, as Linux describes them,
    without a GPU: oneDNN has only slower code for them.
    """
    if keras.config.backend() != "tensorflow" or has_bfloat16():
        return
    warnings.warn(
        "bfloat16 is slower than float32 on this processor, which has no units "
        "for it (avx512_bf16, amx_bf16). Use float32 here, and bfloat16 on a "
        "processor with such units or on a GPU",
        stacklevel=2,
    )


def has_bfloat16() -> bool:
    """Returns whether bfloat16 is fast: a GPU or unit for it, or unknown."""
    try:
        text = _PROCESSOR.read_text()
    except OSError:  # not Linux
        return True
    flags = re.search(r"(?m)^flags\s*:(.*)", text)  # only of x86 processors
    if flags is None or {"avx512_bf16", "amx_bf16"} & {*flags[1].split()}:
        return True
    return bool(keras.distribution.list_devices("gpu"))
