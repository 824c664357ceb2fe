"""Isolated processes, with limits to what they may use.

Each runs a module with a function `main` of strings, and perhaps `prepare`,
which loads what takes time: one of `keras_posenc_worker`.
"""

import atexit
import contextlib
import dataclasses
import json
import os
import select
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Self

import keras_posenc_worker
from keras_posenc_worker.process import limit, obey

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
    """A process for a module, which waits for what it is to do.

    It ends with its `with`, whatever it does then.

    Args:
        module: The module's name.
        prepared: Arguments of the module's `prepare`, of which no artifact is
            one: where the system can fork, a process that has called it, and
            nothing else, is kept, and each that is asked for with the same
            begins as its copy. The second one imports nothing any more.
        copied: It begins as a copy of this process, which has done nothing yet
            but import (threads are not copied), on a system that can fork.
        **environment: Further variables of its environment.
    """

    def __init__(
        self,
        module: str,
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
                self._process = Copied(module, added, files)
            elif prepared is not None and sys.platform == "linux":
                self._process = fork(module, tuple(prepared), added, files)
            else:
                self._process = Spawned([module], added, files)
            stack.pop_all()  # it has begun, and `__exit__` closes them
        if isinstance(self._process, Spawned) and prepared is not None:
            self.prepare(*prepared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._out, self._errors:
            self._process.end()

    def prepare(self, *arguments: Any, limits: Limits | None = None) -> None:
        """Makes it call the module's `prepare` in the meantime.

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
        """Makes it call the module's `main`, and returns what was printed.

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
    module: str,
    *arguments: str,
    limits: Limits,
    prepared: Sequence[Any] | None = None,
    **environment: str,
) -> str:
    """Runs a module and returns what it printed; see `Isolated`."""
    with Isolated(module, prepared, **environment) as process:
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


class Spawned:
    """A process that began with Python's own start."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        files: Sequence[IO[bytes]] = (),
        passed: Sequence[int] = (),
    ) -> None:
        out, errors = files or (subprocess.DEVNULL, subprocess.DEVNULL)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "keras_posenc_worker"),
                *arguments,
            ],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
            env={**os.environ, **worker_path(), **environment},
            pass_fds=passed,
            # A terminal's signals are for who started it, who ends it.
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.input: Any = self._process.stdin

    def wait(self, seconds: float | None) -> int | None:
        """Its exit status, or None where it has not ended by then."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self.input.close()


class Copied:
    """A process that began as a copy of this one, where Python can fork."""

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        files: Sequence[IO[bytes]],
    ) -> None:
        stdin, given = os.pipe()
        self._ended, alive = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # as there
            self.pid = os.fork()
        if not self.pid:
            os.close(given)
            _begin_anew(
                module,
                environment,
                [stdin, *(file.fileno() for file in files)],
            )
        os.close(stdin)
        os.close(alive)  # from here on the copy's alone
        self.input: Any = os.fdopen(given, "wb", buffering=0)
        self._status: int | None = None

    def wait(self, seconds: float | None) -> int | None:
        """Its exit status, or None where it has not ended by then."""
        if self._status is None:
            ended = select.poll()  # `select` knows no number above 1023
            ended.register(self._ended)
            if ended.poll(None if seconds is None else 1000 * seconds):
                _, status = os.waitpid(self.pid, 0)
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def end(self) -> None:
        """Ends it, whatever it does."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(None)
        os.close(self._ended)
        with contextlib.suppress(OSError):
            self.input.close()


def _begin_anew(
    module: str, environment: Mapping[str, str], files: Sequence[int]
) -> NoReturn:
    """Runs a module in the copy, of which nothing else goes on."""
    status = 1
    try:
        import fcntl

        os.setsid()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        # Above 2 first, for this process may have had its own ones closed.
        above = [fcntl.fcntl(file, fcntl.F_DUPFD, 3) for file in files]
        for own, file in enumerate(above):
            os.dup2(file, own)
            os.close(file)
        # What they still hold is the other's to write.
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
        os.environ.update(environment)
        limit({})
        obey(module)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Forked:
    """A process that began as the copy of a prepared one.

    Its parent there tells its number and then its exit status by a socket, and
    ends it when this side of that socket is closed.
    """

    pid: int | None = None  # as long as its parent is not prepared yet

    def __init__(self, link: socket.socket, stdin: int) -> None:
        self.input: Any = os.fdopen(stdin, "wb", buffering=0)
        self._link = link
        self._status: int | None = None

    def wait(self, seconds: float | None) -> int | None:
        """Its exit status, or None where it has not ended by then."""
        self._link.settimeout(None if seconds is None else max(seconds, 0.001))
        try:
            while self._status is None:
                message = self._link.recv(16)
                if message and self.pid is None:
                    self.pid = int(message)
                else:  # nothing where its parent itself was ended
                    self._status = int(message or -signal.SIGKILL)
        except TimeoutError:
            pass
        return self._status

    def end(self) -> None:
        """Ends it, whatever it does."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        if self.pid is not None:  # else it ends as soon as it has begun
            self.wait(None)
        self._link.close()
        with contextlib.suppress(OSError):
            self.input.close()


class _ForkServer:
    """A prepared process, which forks another for each that it is asked for."""

    def __init__(
        self,
        module: str,
        prepared: tuple[Any, ...],
        environment: Mapping[str, str],
    ) -> None:
        self._control, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            self._process = Spawned(
                [module, json.dumps(prepared), str(theirs.fileno())],
                environment,
                passed=[theirs.fileno()],
            )
        self._environment = environment

    def fork(self, files: Sequence[IO[bytes]]) -> Forked:
        """Raises `ConnectionError` where the server has ended."""
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdin, given = os.pipe()
        passed = [theirs.fileno(), stdin, *(file.fileno() for file in files)]
        try:
            with theirs:
                socket.send_fds(self._control, [b"fork"], passed)
        except OSError:
            link.close()
            os.close(given)
            raise
        finally:
            os.close(stdin)
        process = Forked(link, given)
        # As both are now, and not as they were when the server began.
        state = {
            "environment": {**os.environ, **self._environment},
            "folder": _folder(),
        }
        with contextlib.suppress(OSError):  # it has ended
            process.input.write(json.dumps(state).encode() + b"\n")
        return process

    def leave(self) -> None:
        """Lets go of it, which ends when nobody has it any more."""
        self._control.close()

    def end(self) -> None:
        self.leave()
        self._process.wait(1)  # it first ends those that it forked
        self._process.end()


_servers: dict[Any, _ForkServer] = {}
_lock = threading.Lock()
# Variables that are read once, as a library is loaded, and so when a server is
# prepared, begin with these. The others each copy has as they are then.
_READ_ONCE = (
    *("ABSL_", "BLIS_", "CUDA_", "DNNL_", "GLIBC_", "GLOG_", "GOMP_", "GRPC_"),
    *("KMP_", "LD_", "LIBC_", "MALLOC_", "MKL_", "NPY_", "NUMEXPR_", "NUMPY_"),
    *("OMP_", "ONEDNN_", "OPENBLAS_", "ORT_", "PYTHON", "TF_", "XLA_"),
)


def fork(
    module: str,
    prepared: tuple[Any, ...],
    environment: Mapping[str, str],
    files: Sequence[IO[bytes]],
) -> Forked:
    """A copy of the prepared process, which is started if need be."""
    read_once = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_READ_ONCE)
    }
    # A copy of this process has no children of its own.
    key = (
        *(os.getpid(), module, prepared),
        tuple(sorted({**read_once, **environment}.items())),
    )
    with _lock:
        if key in _servers:
            try:
                return _servers[key].fork(files)
            # It was not used for long, or somebody ended it. Anything else,
            # such as too many open files, does not concern its other copies.
            except ConnectionError:
                _servers.pop(key).end()
        _servers[key] = _ForkServer(module, prepared, environment)
        return _servers[key].fork(files)


def worker_path() -> dict[str, str]:
    """Returns the variable that lets Python find a worker not installed."""
    folder = str(Path(keras_posenc_worker.__file__).parents[1])
    # Whose folder comes behind the standard library's, and must stay there.
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    paths = [folder, os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _folder() -> str | None:
    """The working folder, or None where somebody has removed it."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _leave_all() -> None:
    """Lets a copy of this process have no part in its servers.

    Nor in the lock, which another thread may have held then.
    """
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        server.leave()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_all)


@atexit.register
def _end_servers() -> None:
    for key in list(_servers):
        if key[0] == os.getpid():
            _servers.pop(key).end()
