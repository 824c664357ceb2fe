"""Returns free memory of the C library to the system."""

import ctypes
import sys


def give_back() -> None:
    """Returns free memory to the system, if the C library is glibc.

    glibc keeps memory between and below what is in use: as much as the weights
    of a model that was loaded and dropped.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # musl has none
            trim(0)
