"""Runs functions in worker processes, with limits of memory and time.

A worker calls functions of one module, usually of `keras_posenc_worker`.
`keras_posenc_worker.process` is the worker's side of this file.
"""

import atexit
import contextlib
import dataclasses
import json
import os
import re
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Self

import keras_posenc_worker
from keras_posenc.export.errors import ExportVerificationError, in_words
from keras_posenc.publish import working_folder, writing_to
from keras_posenc_worker import codec, process, run
from keras_posenc_worker.runtimes import op_libraries

MIB = 2**20
# TensorFlow needs 250 MiB of data after loading, and 300 MiB of mapped files.
MEMORY = 704 * MIB
_OUTPUT = 64 * MIB
_IDLE = 20  # seconds by the clock without processor time
_POLL = 1.0  # seconds between two looks at a worker
_TIMES = 5  # timed runs of a batch


def threads_environment(count: int) -> dict[str, str]:
    """Returns the environment variables that limit libraries' threads."""
    names = (
        *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    )
    return dict.fromkeys(names, str(count))


_ENVIRONMENT = {
    # Each thread's stack counts as 8 MiB of data, and by default there are
    # several threads for each core: on a large machine, more than all the rest.
    **threads_environment(min(os.cpu_count() or 1, 8)),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # This process already has the GPU's memory.
    "CUDA_VISIBLE_DEVICES": "-1",
    # Without this, oneDNN keeps all memory that it ever used.
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a worker, where its system supports them.

    Attributes:
        memory: Bytes of data; None for no limit.
        seconds: Further seconds of processor time, so that a busy machine does
            not count. None for no limit.
        file: Size of the largest file that it writes, in bytes.
        timeout: Seconds by the clock, on every system.
    """

    memory: int | None = MEMORY
    seconds: int | None = 8
    file: int = _OUTPUT
    timeout: int = 60

    def by_name(self) -> dict[str, int]:
        """Returns the limits by the names that `resource` has."""
        found = {"DATA": self.memory, "CPU": self.seconds, "FSIZE": self.file}
        return {name: most for name, most in found.items() if most is not None}


_NO_LIMITS = Limits(memory=None, seconds=None)


class WorkerError(Exception):
    """A worker failed, crashed or met a limit; the message says which."""


class Worker:
    """A process that calls functions of a module.

    It ends with its `with` block, whatever it is doing.

    Args:
        module: The module's name. It has a function `main`, and optionally
            `prepare`, which loads what takes time.
        prepare: Arguments of `prepare`, none of which names an exported file.
            On Linux a fork server calls it, once for all workers with the same
            arguments: from the second worker on, nothing is imported again.
        is_fork: Whether to fork this process, if the system can. It must have
            done nothing but import: threads are not copied.
        streams: Whether responses are read one by one with `response`.
            Otherwise `run` reads one.
        passed: Descriptors that it inherits, unless it is a fork.
        environment: Environment variables to add to this process's; by default
            those of a runtime on the CPU.
    """

    def __init__(
        self,
        module: str,
        *,
        prepare: Sequence[Any] | None = None,
        is_fork: bool = False,
        streams: bool = False,
        passed: Sequence[int] = (),
        environment: Mapping[str, str] = _ENVIRONMENT,
    ) -> None:
        with contextlib.ExitStack() as own, contextlib.ExitStack() as given:
            stdin, self._input = _pipe(given, own)
            self._errors = own.enter_context(tempfile.TemporaryFile())
            if streams:
                self._output, stdout = _pipe(own, given)
            else:
                # A file, whose size is limited: output of a pipe would fill
                # this process's memory.
                stdout = own.enter_context(tempfile.TemporaryFile())
                self._output = stdout
            files = [each.fileno() for each in (stdin, stdout, self._errors)]
            self._process: subprocess.Popen[bytes] | _Fork | _ServerFork
            if is_fork:
                self._process = _Fork(module, environment, files, self._input)
                own.callback(self._process.close)
            elif prepare is not None and sys.platform == "linux":
                self._process = _fork_prepared(
                    *(module, tuple(prepare), environment, files, self._input)
                )
                own.callback(self._process.close)
                prepare = None
            else:
                self._process = _spawn([module], environment, files, passed)
            self._files = own.pop_all()
        if prepare is not None:
            self.prepare(*prepare)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def prepare(self, *arguments: Any, limits: Limits | None = None) -> None:
        """Starts the module's `prepare`, without waiting for it.

        If that fails, `run` raises the error.

        Args:
            *arguments: Whatever JSON can hold.
            limits: Limits until `run`; None for none, if no argument comes from
                an exported file.
        """
        self.call("prepare", *arguments, limits=limits)

    def call(
        self, function: str, *arguments: Any, limits: Limits | None = None
    ) -> None:
        """Starts a function of the module, without waiting for it."""
        by_name = {} if limits is None else limits.by_name()
        request = json.dumps([function, arguments, by_name])
        with contextlib.suppress(OSError, ValueError):  # it has ended
            self._input.write(request.encode() + b"\n")

    def run(
        self,
        *arguments: Any,
        limits: Limits,
        show: Callable[[int], None] | None = None,
    ) -> Any:
        """Calls the module's `main`, the worker's last call, and waits for it.

        Args:
            *arguments: Arguments of `main`: whatever JSON can hold.
            limits: The worker's limits.
            show: Takes how much is done, about every second, of a `main` that
                sends `{"done": number}` before its return value.

        Returns:
            The return value of `main`.

        Raises:
            WorkerError: It failed, crashed, or met a limit.
        """
        # In a thread: writing blocks once the pipe is full.
        writer = threading.Thread(
            target=self.call,
            args=("main", *arguments),
            kwargs={"limits": limits},
            daemon=True,
        )
        writer.start()
        status = self._wait_within(limits, show)
        writer.join()
        try:
            if status == 0:
                self._output.seek(0)
                if show is None:
                    return json.load(self._output)
                *_, last = self._output
                return json.loads(last)
        except ValueError:  # it ended itself
            pass
        raise self._error(status, limits)

    def response(self) -> Any:
        """Waits for the next response of a worker that `streams`.

        Raises:
            WorkerError: It has ended.
        """
        line = self._output.readline()
        if not line.endswith(b"\n"):
            raise self._error(self._process.wait(), _NO_LIMITS)
        return json.loads(line)

    def kill(self) -> None:
        """Kills the worker; from any thread."""
        self._process.kill()

    def end(self) -> None:
        """Kills the worker, once no thread waits for it; closes its files."""
        with self._files:
            self.kill()
            self._process.wait()

    def _done(self) -> int | None:
        """Returns how much the worker has last said to be done, if it did."""
        if sys.platform == "win32":
            return None
        # Not by `seek`: the worker writes where this file is.
        file = self._output.fileno()
        start = max(0, os.fstat(file).st_size - 64)
        lines = os.pread(file, 64, start).split(b"\n")
        found = re.fullmatch(rb'{"done": (\d{1,9})}', [b"", *lines][-2])
        return int(found[1]) if found else None

    def _wait_within(
        self, limits: Limits, show: Callable[[int], None] | None = None
    ) -> int:
        """Waits for the exit status; raises `WorkerError` at a limit."""
        began = worked = time.monotonic()
        used: float | None = None
        while True:
            left = limits.timeout - (time.monotonic() - began)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(max(0.001, min(_POLL, left)))
            if show is not None and (done := self._done()) is not None:
                show(done)
            now = time.monotonic()
            if now - began >= limits.timeout:
                raise WorkerError(f"did not respond within {limits.timeout} s")
            before, used = used, _processor_seconds(self._process.pid)
            if used is None or used != before:
                worked = now
            elif now - worked > _IDLE:
                raise WorkerError(
                    f"did nothing for {_IDLE} s, as if it waited for input"
                )

    def _error(self, status: int, limits: Limits) -> WorkerError:
        """Returns why it has ended, by its exit status and what it wrote."""
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - 65536))
        errors = self._errors.read()
        *_, last = ["", *errors.decode(errors="replace").strip().splitlines()]
        if status == -getattr(signal, "SIGXCPU", 0):
            return WorkerError(
                f"used more than {limits.seconds} s of processor time"
            )
        if (
            b"bad_alloc" in errors  # C++ writes this before it aborts
            if status < 0
            else last.startswith("MemoryError")
        ) and limits.memory is not None:
            return WorkerError(
                f"needed more than {limits.memory // MIB} MiB of memory"
            )
        if status < 0:
            return WorkerError(f"was killed by {signal.Signals(-status).name}")
        if not status:  # it ended itself
            return WorkerError("failed (without a response)")
        last = last or f"exit status {status}, without a response"
        return WorkerError(f"failed ({last})")


def run_in_worker(
    module: str,
    *arguments: Any,
    limits: Limits,
    prepare: Sequence[Any] | None = None,
    show: Callable[[int], None] | None = None,
) -> Any:
    """Runs a module's `main` in a worker, and returns its return value.

    See `Worker`, and `Worker.run`.
    """
    with Worker(module, prepare=prepare) as worker:
        return worker.run(*arguments, limits=limits, show=show)


def load_soon(module: str) -> None:
    """Starts the fork server of a module's workers, which loads meanwhile."""
    if sys.platform == "linux":
        Worker(module, prepare=()).end()


def worker_path() -> dict[str, str]:
    """Returns the variable that lets Python find a worker not installed."""
    folder = str(Path(keras_posenc_worker.__file__).parents[1])
    # Installed packages are found anyway, after the standard library; adding
    # their folder would put them before it.
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    paths = [folder, os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _pipe(
    reader: contextlib.ExitStack, writer: contextlib.ExitStack
) -> tuple[IO[bytes], IO[bytes]]:
    """Returns the ends of a pipe, each to be closed by its stack."""
    ends = os.pipe()
    return (
        reader.enter_context(open(ends[0], "rb")),
        # Unbuffered, so that closing it waits for no other thread.
        writer.enter_context(open(ends[1], "wb", buffering=0)),
    )


def _processor_seconds(pid: int | None) -> float | None:
    """Returns the processor time used, or None while it waits for its turn.

    Also None where the system does not report it.
    """
    used = 0.0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            # The fields after the process's name, which may contain anything.
            state, *fields = (
                task.joinpath("stat").read_text().rpartition(")")[2].split()
            )
            if state in "RD":  # it waits for the processor, or for a disk
                return None
            used += int(fields[10]) + int(fields[11])
    except OSError:
        return None
    return used


# ---- How a worker begins: as a process, a fork of this one, or of a server


def _spawn(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int],
    passed: Sequence[int],
) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = files
    return subprocess.Popen(
        [*(sys.executable, "-P", "-m", "keras_posenc_worker"), *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **worker_path(), **environment},
        pass_fds=passed,
        # A terminal's signals go only to this process, which kills the worker.
        start_new_session=True,
    )


class _Fork:
    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        files: Sequence[int],
        stdin: IO[bytes],
    ) -> None:
        import multiprocessing  # late: few workers begin so

        self._process = multiprocessing.get_context("fork").Process(
            target=_become_worker,
            args=(module, environment, files, stdin),
            daemon=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads
            self._process.start()
        self.pid = self._process.pid

    def wait(self, seconds: float | None = None) -> int:
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("fork", seconds or 0)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.close()


def _become_worker(
    module: str,
    environment: Mapping[str, str],
    files: Sequence[int],
    stdin: IO[bytes],
) -> NoReturn:
    stdin.close()  # the caller's end
    process.begin(files)
    # New streams: the old ones may hold text that the caller will write.
    sys.stdin, sys.stderr = open(0), open(2, "w", buffering=1)
    os.environ.update(environment)
    process.limit({})
    process.obey(module)


class _ServerFork:
    """A worker that is a fork of a fork server.

    The server sends its process id and later its exit status by a socket, and
    kills it when this end of the socket is closed.
    """

    pid: int | None = None  # None while the server prepares

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._status: int | None = None

    def wait(self, seconds: float | None = None) -> int:
        self._link.settimeout(seconds)
        try:
            while self._status is None:
                message = self._link.recv(16)
                if message and self.pid is None:
                    self.pid = int(message)
                else:  # an empty message if the server was killed
                    self._status = int(message or -signal.SIGKILL)
        except TimeoutError:
            raise subprocess.TimeoutExpired("fork", seconds or 0) from None
        return self._status

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        if self.pid is None:  # the server will kill it right after the fork
            self._status = -signal.SIGKILL

    def close(self) -> None:
        self._link.close()


class _ForkServer:
    """A process that has called `prepare`, and forks at each request."""

    def __init__(
        self,
        module: str,
        prepare: tuple[Any, ...],
        environment: Mapping[str, str],
    ) -> None:
        self._environment = environment
        self._control, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with theirs:
            self._process = _spawn(
                [module, json.dumps(prepare), str(theirs.fileno())],
                environment,
                [subprocess.DEVNULL] * 3,
                [theirs.fileno()],
            )

    def fork(self, files: Sequence[int], stdin: IO[bytes]) -> _ServerFork:
        """Returns a fork; raises `ConnectionError` if the server has ended."""
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                passed = [theirs.fileno(), *files]
                socket.send_fds(self._control, [b"fork"], passed)
        except OSError:
            link.close()
            raise
        # The fork needs today's folder and environment, not the server's.
        state = {
            "environment": {**os.environ, **self._environment},
            "folder": _folder(),
        }
        with contextlib.suppress(OSError):  # it has ended
            stdin.write(json.dumps(state).encode() + b"\n")
        return _ServerFork(link)

    def leave(self) -> None:
        """Closes this process's end; without open ends the server ends."""
        self._control.close()

    def end(self) -> None:
        self.leave()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # it kills its forks first
        self._process.kill()
        self._process.wait()


_servers: dict[Any, _ForkServer] = {}
_lock = threading.Lock()
# Prefixes of variables that libraries read once, on loading: a change needs a
# new server. Each fork gets the current values of all other variables.
_READ_ONCE = (
    *("ABSL_", "BLIS_", "CUDA_", "DNNL_", "GLIBC_", "GLOG_", "GOMP_", "GRPC_"),
    *("KMP_", "LD_", "LIBC_", "MALLOC_", "MKL_", "NPY_", "NUMEXPR_", "NUMPY_"),
    *("OMP_", "ONEDNN_", "OPENBLAS_", "ORT_", "PYTHON", "TF_", "XLA_"),
)


def _fork_prepared(
    module: str,
    prepare: tuple[Any, ...],
    environment: Mapping[str, str],
    files: Sequence[int],
    stdin: IO[bytes],
) -> _ServerFork:
    """Returns a fork of the server that called `prepare`, started if needed."""
    read_once = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_READ_ONCE)
    }
    # The process id, since a fork of this process does not own its servers.
    key = (
        *(os.getpid(), module, prepare),
        tuple(sorted({**read_once, **environment}.items())),
    )
    with _lock:
        if key in _servers:
            try:
                return _servers[key].fork(files, stdin)
            # The server ended after a long time without use, or was killed.
            # Other errors, such as too many open files, do not end it.
            except ConnectionError:
                _servers.pop(key).end()
        _servers[key] = _ForkServer(module, prepare, environment)
        return _servers[key].fork(files, stdin)


def _folder() -> str | None:
    """Returns the working folder, or None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _leave_all() -> None:
    """Detaches a fork of this process from its servers and their lock.

    Another thread may have held the lock when the process was forked.
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


# ---- Exported models in a worker


def start_tensorflow() -> Worker:
    """Returns a worker for SavedModels, which imports TensorFlow meanwhile."""
    return Worker(run.__name__, prepare=["saved_model"])


def load_ahead(
    worker: Worker, exported: Path, limits: Limits | None = None
) -> None:
    """Lets a worker load a SavedModel before it is run.

    Args:
        worker: From `start_tensorflow`.
        exported: The SavedModel.
        limits: None if this process wrote it.
    """
    worker.prepare(
        "saved_model",
        str(exported.resolve()),
        op_libraries(),
        limits=limits,
    )


def run_model(
    kind: str,
    exported: Path,
    cases: Sequence[tuple[str, Mapping[str, Any]]],
    limits: Limits,
    worker: Worker | None = None,
    *,
    times: int = _TIMES,
    show: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Runs an exported model in a worker.

    Args:
        kind: As `Inspection.kind`, or `"litert_flex"`.
        exported: Its file or folder.
        cases: For each batch the name of a signature, and the inputs by name.
        limits: The worker's limits.
        worker: From `start_tensorflow`; by default a new one.
        times: Number of timed runs of each batch.
        show: Takes how many batches are done, where there is no `worker`.

    Returns:
        The response of `keras_posenc_worker.run`: `"cases"` has the outputs of
        each batch as arrays by name, or the error.

    Raises:
        ExportVerificationError: It does not load, crashes, or meets a limit.
    """
    with working_folder() as folder, writing_to(folder.parent):
        request = {
            "kind": kind,
            "exported": str(exported.resolve()),
            "op_libraries": op_libraries(),
            "times": times,
            "counts": show is not None,
            "cases": cases,
        }
        codec.write(folder, "request", request)
        try:
            if worker is None:
                run_in_worker(
                    run.__name__,
                    str(folder),
                    limits=limits,
                    prepare=[kind],
                    show=show,
                )
            else:
                worker.run(str(folder), limits=limits)
            if not (folder / "response.json").exists():
                raise WorkerError("failed (without a response)")
        except WorkerError as error:
            raise ExportVerificationError(
                f"The runtime {error} while it ran '{exported}'"
            ) from error
        response: dict[str, Any] = codec.read(folder, "response")
    if "error" not in response:
        return response
    _, _, reason = response["error"].partition(": ")
    missing = re.search(r"Op type not registered '([^']+)'", reason)
    if missing and not op_libraries():
        raise ExportVerificationError(
            f"'{exported}' does not load: its operator {missing[1]} is "
            "TensorFlow Text's or another package's, and TensorFlow Text is "
            "not installed: pip install tensorflow-text, of the same minor "
            "version as tensorflow"
        )
    raise ExportVerificationError(
        f"'{exported}' does not load: {in_words(response['error'])}"
    )
