"""Scripts in processes of their own, with limits to what they may use.

A script is a file with a function `main` of strings. Also what runs them:
`python -P isolation.py SCRIPT` reads lines of JSON, each the name of one of the
script's functions, its arguments, and the limits from then on, by the names
that `resource` has for them.
Self-contained, as the scripts are.
"""

import atexit
import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path
from typing import Any, Self

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
        seconds: Work of the processor from then on: that a machine is busy
            does not count.
        file: Size of the largest file that it writes, in bytes.
        timeout: Seconds by the clock, everywhere.
    """

    memory: int = MEMORY
    seconds: int = 8
    file: int = _OUTPUT
    timeout: int = 60


class IsolationError(Exception):
    """A process that came to no good end; the message tells which."""


class Isolated:
    """A process for a Python script, which waits for what it is to do.

    It ends with its `with`, whatever it does then.

    Args:
        script: The script's path.
        **environment: Further variables of its environment.
    """

    def __init__(self, script: str | Path, **environment: str) -> None:
        # To files, which have a limit: a pipe would fill this process's memory.
        self._out = tempfile.TemporaryFile()
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(script)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._errors,
            env={**os.environ, **_THREADS, **environment},
            # A terminal's signals are for who started it, who ends it.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._out, self._errors, self._process:
            self._process.kill()

    def prepare(self, *arguments: Any) -> None:
        """Lets it call the script's `prepare`, without limits, meanwhile.

        That is for what takes time and comes from nowhere else, such as
        imports. If it fails, `run` does.

        Args:
            *arguments: Whatever JSON knows.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write(_line("prepare", arguments, {}))

    def run(self, *arguments: str, limits: Limits) -> str:
        """Lets it call the script's `main`, and returns what was printed.

        Args:
            *arguments: Those of `main`.
            limits: What it may use.

        Raises:
            IsolationError: It failed, crashed, or came upon a limit.
        """
        by_name = {
            "DATA": limits.memory,
            "CPU": limits.seconds,
            "FSIZE": limits.file,
        }
        try:
            self._process.communicate(
                _line("main", arguments, by_name), limits.timeout
            )
        except subprocess.TimeoutExpired as error:
            raise IsolationError(
                f"did not answer within {limits.timeout} s"
            ) from error
        if status := self._process.returncode:
            end = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, end - 65536))
            raise IsolationError(_end(status, self._errors.read(), limits))
        self._out.seek(0)
        return self._out.read().decode()


def run_isolated(
    script: str | Path, *arguments: str, limits: Limits, **environment: str
) -> str:
    """Runs a Python script and returns what it printed; see `Isolated`."""
    with Isolated(script, **environment) as process:
        return process.run(*arguments, limits=limits)


def _line(name: str, *order: Any) -> bytes:
    return json.dumps([name, *order]).encode() + b"\n"


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


def _limit(limits: dict[str, int]) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, value in {"CORE": 0, **limits}.items():
        if name == "CPU":  # of which the system counts all that it ever did
            used = resource.getrusage(resource.RUSAGE_SELF)
            value += math.ceil(used.ru_utime + used.ru_stime)
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY or value < hard:
            resource.setrlimit(kind, (value, hard))


def _obey(script: str) -> None:
    spec = util.spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for line in sys.stdin:
        name, arguments, limits = json.loads(line)
        _limit(limits)
        getattr(module, name)(*arguments)


if __name__ == "__main__":
    _obey(sys.argv[1])
    # TensorFlow takes most of a second to put itself away.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
