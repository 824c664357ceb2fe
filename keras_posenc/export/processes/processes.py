"""Processes that run scripts: begun anew, or copied from a prepared one."""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

from keras_posenc.export.processes import runner


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
            [sys.executable, "-P", runner.__file__, *arguments],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
            env={**os.environ, **environment},
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
        script: str,
        environment: Mapping[str, str],
        files: Sequence[IO[bytes]],
    ) -> None:
        stdin, given = os.pipe()
        self._ended, alive = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # as in runner
            self.pid = os.fork()
        if not self.pid:
            os.close(given)
            _begin_anew(
                script,
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
    script: str, environment: Mapping[str, str], files: Sequence[int]
) -> NoReturn:
    """Runs a script in the copy, of which nothing else goes on."""
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
        runner.limit({})
        runner.obey(script)
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
        script: str,
        prepared: tuple[Any, ...],
        environment: Mapping[str, str],
    ) -> None:
        self._control, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            self._process = Spawned(
                [script, json.dumps(prepared), str(theirs.fileno())],
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
    script: str,
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
        *(os.getpid(), script, prepared),
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
        _servers[key] = _ForkServer(script, prepared, environment)
        return _servers[key].fork(files)


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
