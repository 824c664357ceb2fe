"""Memory that is free in a process, and that its C library keeps."""

import ctypes
import sys


def give_back() -> None:
    """Gives free memory back to the system, where the C library is glibc.

    It keeps what it once had, below and between what is in use: as much as the
    weights of a model, after they were loaded and dropped.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # musl has none
            trim(0)
