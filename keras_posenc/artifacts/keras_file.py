"""`.keras` files that may come from anywhere."""

import contextlib
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MIB = 2**20
# Keras stores without compressing: what grows this much is a bomb.
_GROWTH = 20
_ROOM = 512 * _MIB
_SECONDS = 20  # of work, and one more for each of these bytes
_PER_SECOND = 4 * _MIB


def load_keras_file(path: Path) -> Any:
    """Loads a model, of registered layers alone, in bounded memory and time.

    The work is bounded in the main thread alone. Native code ends the process
    by a signal where it does not come back for as long again, and may where it
    finds no memory.

    Args:
        path: The file.

    Raises:
        ValueError: It is no whole `.keras` file, or one that grows or works
            beyond measure.
        Exception: Whatever Keras raises.
    """
    import keras

    packed = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ValueError("it is no .keras file, or not a whole one") from error
    if unpacked > _GROWTH * packed + _MIB:
        raise ValueError(f"it has {packed} bytes, and would grow to {unpacked}")
    # Starts the backend's threads, which are not the file's.
    keras.ops.zeros(())
    seconds = _SECONDS + unpacked // _PER_SECOND
    try:
        with _time_limit(seconds), _memory_limit(_ROOM + 8 * unpacked):
            return keras.saving.load_model(path, compile=False, safe_mode=True)
    except MemoryError as error:
        raise ValueError(
            "what it describes needs more memory than a file of its size should"
        ) from error
    except _TimeIsUpError as error:
        raise ValueError(
            "what it describes takes more work than a file of its size should: "
            f"more than {seconds} s"
        ) from error


class _TimeIsUpError(BaseException):
    """Not an `Exception`, for Keras goes on after some of those."""


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """Limits this process's work, where its system knows such limits.

    Raises:
        _TimeIsUpError: As soon as Python runs again, after so many seconds.
    """
    if (
        not hasattr(signal, "setitimer")  # Windows
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    import resource

    is_up = False

    def stop(*_: object) -> None:
        nonlocal is_up
        is_up = True
        raise _TimeIsUpError

    handler = signal.signal(signal.SIGPROF, stop)
    before, hard = resource.getrlimit(resource.RLIMIT_CPU)
    core = resource.getrlimit(resource.RLIMIT_CORE)
    last = int(time.process_time()) + 2 * seconds + 2
    if before != resource.RLIM_INFINITY:
        last = min(last, before)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))
        resource.setrlimit(resource.RLIMIT_CPU, (last, hard))
        # Each second anew: what TensorFlow calls may lose an exception.
        signal.setitimer(signal.ITIMER_PROF, seconds, 1)
        yield
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler or signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (before, hard))
        resource.setrlimit(resource.RLIMIT_CORE, core)
        if is_up:  # whatever came of it
            raise _TimeIsUpError


@contextlib.contextmanager
def _memory_limit(growth: int) -> Iterator[None]:
    """Limits this process's data, where its system knows such limits."""
    try:
        import resource
    except ImportError:  # Windows
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data() + growth
    if before != resource.RLIM_INFINITY:
        limit = min(limit, before)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _data() -> int:
    """Bytes of data that this process has, the stacks of its threads too."""
    import resource

    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmData:")[2].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
