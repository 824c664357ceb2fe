"""Processors that are slower in bfloat16 than in float32."""

import functools
import re
import warnings
from pathlib import Path

import keras

_PROCESSOR = Path("/proc/cpuinfo")


@functools.cache
def warn_of_slow_bfloat16() -> None:
    """Warn, once in a process, where TensorFlow computes bfloat16 slowly.

    That is on an x86 processor without units for it, as Linux describes it,
    and without a GPU: there oneDNN leaves bfloat16 to slower code.
    """
    if keras.config.backend() != "tensorflow" or has_bfloat16():
        return
    warnings.warn(
        "bfloat16 is slower than float32 on this processor, which has no units "
        "for it (avx512_bf16, amx_bf16). Use float32 here, and bfloat16 where "
        "there are such, or a GPU",
        stacklevel=2,
    )


def has_bfloat16() -> bool:
    """Whether there is a GPU or a unit for bfloat16; True where unknown."""
    try:
        text = _PROCESSOR.read_text()
    except OSError:  # it is not Linux
        return True
    flags = re.search(r"(?m)^flags\s*:(.*)", text)  # of x86
    if flags is None or {"avx512_bf16", "amx_bf16"} & {*flags[1].split()}:
        return True
    return bool(keras.distribution.list_devices("gpu"))
