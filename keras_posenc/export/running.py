"""Reading and running an exported file, within limits, while it stays as it is.

Exports, `verify` with and without the model, and rollbacks do it so.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from keras_posenc.export.inspect import Inspection, inspect_safe
from keras_posenc.export.versions import check_unchanged, stamp
from keras_posenc.export.worker_client import MIB, Limits

_TIMEOUT = 600  # seconds by the clock, long enough on a busy machine


def limits_for(size: int, data: int = 0, seconds: float = 60.0) -> Limits:
    """Returns limits of a process that runs an exported file.

    They stop a file that never ends or fills the machine, and are far from what
    a right file needs: TensorFlow needs up to 16 times the size of constants.

    Args:
        size: Bytes of the file.
        data: Bytes of all inputs and outputs.
        seconds: Processor time of the model itself for the same inputs, or a
            guess of it.
    """
    memory = 4096 * MIB + 24 * size + 64 * data + 2 * _peak_memory()
    return Limits(
        memory=min(memory, _physical_memory() or memory),
        seconds=round(60 + 10 * seconds + size / MIB),
        file=4096 * MIB + 4 * data,
        timeout=_TIMEOUT,
    )


def _peak_memory() -> int:
    """Returns the most memory that this process had; 0 if that is unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _physical_memory() -> int:
    """Returns this machine's memory in bytes; 0 if that is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return 0


@contextlib.contextmanager
def opened(
    path: Path, allow_operators: Sequence[str], step: Callable[[str], object]
) -> Iterator[Inspection]:
    """Inspects a file, and checks after its use that it is still the same."""
    step(f"Reading {path}")
    before = stamp(path)
    yield inspect_safe(path, allow_operators)
    check_unchanged(path, before)
