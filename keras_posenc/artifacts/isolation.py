"""Scripts in processes of their own, with limits to what they may use.

Also what starts them: `python -P isolation.py MEMORY SECONDS FILE SCRIPT ...`
sets the limits and becomes the script. Self-contained, as the scripts are.
"""

import dataclasses
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

MIB = 2**20
# TensorFlow, loaded, has 250 MiB of data, and 300 MiB of files in memory.
MEMORY = 704 * MIB
_OUTPUT = 64 * MIB
# Each thread's stack counts as data, 8 MiB of it, and by default there are
# several threads for each core: more than all the rest on a large machine.
_THREADS = dict.fromkeys(
    (
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
    ),
    str(min(os.cpu_count() or 1, 8)),
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a process may use, where its system knows such limits.

    Attributes:
        memory: Bytes of data.
        seconds: Work of the processor: that a machine is busy does not count.
        file: Size of the largest file that it writes, in bytes.
        timeout: Seconds by the clock, everywhere.
    """

    memory: int = MEMORY
    seconds: int = 8
    file: int = _OUTPUT
    timeout: int = 60


class IsolationError(Exception):
    """A process that came to no good end; the message tells which."""


def run_isolated(
    script: str | Path, *arguments: str, limits: Limits, **environment: str
) -> str:
    """Runs a Python script and returns what it printed.

    Args:
        script: The script's path.
        *arguments: Its arguments.
        limits: What it may use.
        **environment: Further variables of its environment.

    Raises:
        IsolationError: It failed, crashed, or came upon a limit.
    """
    # To files, which have a limit: a pipe would fill this process's memory.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            status = subprocess.run(
                [
                    *(sys.executable, "-P", __file__),
                    *(str(limits.memory), str(limits.seconds)),
                    *(str(limits.file), str(script), *arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                timeout=limits.timeout,
                check=False,
                env={**os.environ, **_THREADS, **environment},
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise IsolationError(
                f"did not answer within {limits.timeout} s"
            ) from error
        if status:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 65536))
            raise IsolationError(_end(status, errors.read(), limits))
        out.seek(0)
        return out.read().decode()


def _end(status: int, errors: bytes, limits: Limits) -> str:
    last = errors.decode(errors="replace").strip().splitlines()[-1:]
    memory = f"needed more than {limits.memory // MIB} MiB of memory"
    if status == -getattr(signal, "SIGXCPU", 0):
        return f"worked for more than {limits.seconds} s"
    if status < 0:
        if b"bad_alloc" in errors:  # what C++ says before it aborts
            return memory
        return f"was ended by {signal.Signals(-status).name}"
    if last and last[0].startswith("MemoryError"):
        return memory
    reason = "".join(last) or f"exit status {status}, without an answer"
    return f"failed ({reason})"


def _limit(memory: int, seconds: int, file: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, value in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, file),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY or value < hard:
            resource.setrlimit(kind, (value, hard))


if __name__ == "__main__":
    _limit(*map(int, sys.argv[1:4]))
    sys.argv = sys.argv[4:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    # TensorFlow takes most of a second to put itself away.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
