"""Scripts in processes of their own, with limits to what they may use.

A script is a file with a function `main` of strings, and perhaps `prepare`,
which loads what takes time; `runner.py` runs it.
"""

import contextlib
import dataclasses
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from keras_posenc.export.processes.processes import (
    Copied,
    Forked,
    Spawned,
    fork,
)

MIB = 2**20
# TensorFlow, loaded, has 250 MiB of data, and 300 MiB of files in memory.
MEMORY = 704 * MIB
_OUTPUT = 64 * MIB
_IDLE = 20  # seconds by the clock without any of the processor
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
    """A process failed, crashed or met a limit; the message says which."""


class Isolated:
    """A process for a Python script, which waits for what it is to do.

    It ends with its `with`, whatever it does then.

    Args:
        script: The script's path.
        prepared: Arguments of the script's `prepare`, of which no artifact is
            one: where the system can fork, a process that has called it, and
            nothing else, is kept, and each that is asked for with the same
            begins as its copy. The second one imports nothing any more.
        copied: It begins as a copy of this process, which has done nothing yet
            but import (threads are not copied), on a system that can fork.
        **environment: Further variables of its environment.
    """

    def __init__(
        self,
        script: str | Path,
        prepared: Sequence[Any] | None = None,
        copied: bool = False,
        /,
        **environment: str,
    ) -> None:
        # To files, which have a limit: a pipe would fill this process's memory.
        self._out = tempfile.TemporaryFile()
        self._errors = tempfile.TemporaryFile()
        added = {**_THREADS, **environment}
        files = self._out, self._errors
        self._process: Spawned | Forked | Copied
        with contextlib.ExitStack() as stack:
            for file in files:
                stack.enter_context(file)
            if copied:
                self._process = Copied(str(script), added, files)
            elif prepared is not None and sys.platform == "linux":
                self._process = fork(str(script), tuple(prepared), added, files)
            else:
                self._process = Spawned([str(script)], added, files)
            stack.pop_all()  # it has begun, and `__exit__` closes them
        if isinstance(self._process, Spawned) and prepared is not None:
            self.prepare(*prepared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._out, self._errors:
            self._process.end()

    def prepare(self, *arguments: Any, limits: Limits | None = None) -> None:
        """Makes it call the script's `prepare` in the meantime.

        That is for what takes time, such as imports. If it fails, `run` does.

        Args:
            *arguments: Whatever JSON knows.
            limits: What it may use until `run`. None for no limits, where all
                comes from nowhere else.
        """
        by_name = {} if limits is None else _by_name(limits)
        with contextlib.suppress(OSError):  # it has ended
            self._process.input.write(_line("prepare", arguments, by_name))

    def run(self, *arguments: str, limits: Limits) -> str:
        """Makes it call the script's `main`, and returns what was printed.

        Args:
            *arguments: Those of `main`.
            limits: What it may use.

        Raises:
            IsolationError: It failed, crashed, or came upon a limit.
        """
        order = _line("main", arguments, _by_name(limits))
        # Beside the watch, since a pipe that nobody reads takes no more.
        writer = threading.Thread(
            target=_write_last, args=(self._process.input, order), daemon=True
        )
        writer.start()
        status = self._watch(limits)
        writer.join()
        if status:
            end = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, end - 65536))
            raise IsolationError(_end(status, self._errors.read(), limits))
        self._out.seek(0)
        return self._out.read().decode()

    def _watch(self, limits: Limits) -> int:
        """Waits for its exit status; ends it when its time is over."""
        began = worked = time.monotonic()
        used: float | None = None
        while True:
            left = limits.timeout - (time.monotonic() - began)
            status = self._process.wait(max(0.0, min(1.0, left)))
            if status is not None:
                return status
            now = time.monotonic()
            if now - began >= limits.timeout:
                raise IsolationError(
                    f"did not answer within {limits.timeout} s"
                )
            before, used = used, _processor_seconds(self._process.pid)
            if used is None or used != before:
                worked = now
            elif now - worked > _IDLE:
                raise IsolationError(
                    f"did nothing for {_IDLE} s, as if it waited for input"
                )


def run_isolated(
    script: str | Path,
    *arguments: str,
    limits: Limits,
    prepared: Sequence[Any] | None = None,
    **environment: str,
) -> str:
    """Runs a Python script and returns what it printed; see `Isolated`."""
    with Isolated(script, prepared, **environment) as process:
        return process.run(*arguments, limits=limits)


def _write_last(pipe: Any, line: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it has ended
        pipe.write(line)
    with contextlib.suppress(OSError):
        pipe.close()


def _processor_seconds(pid: int | None) -> float | None:
    """Processor seconds that it has used; None while it waits for its turn.

    Also where the system does not tell.
    """
    used = 0.0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            # After the name, which may hold anything.
            state, *fields = (
                task.joinpath("stat").read_text().rpartition(")")[2].split()
            )
            if state in "RD":  # it waits for the processor, or for a disk
                return None
            used += int(fields[10]) + int(fields[11])
    except OSError:
        return None
    return used


def _by_name(limits: Limits) -> dict[str, int]:
    """Limits by the names that `resource` has."""
    return {
        "DATA": limits.memory,
        "CPU": limits.seconds,
        "FSIZE": limits.file,
    }


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
