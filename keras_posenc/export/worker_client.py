"""Runs functions in worker processes, with limits of memory and time."""

import atexit
import base64
import contextlib
import dataclasses
import json
import os
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras_posenc_worker
from keras_posenc.export.errors import ExportVerificationError, in_words
from keras_posenc.publish import working_folder, writing_to
from keras_posenc_worker import codec, run
from keras_posenc_worker.cases import pack
from keras_posenc_worker.process import memory
from keras_posenc_worker.runtimes import op_libraries

MIB = 2**20
# TensorFlow needs 250 MiB of data after loading, and 300 MiB of mapped files.
MEMORY = 704 * MIB
_LONGEST = 600  # seconds by the clock, enough on a busy machine
_MOST_USES = 8  # of a worker: what a runtime leaks, and keeps, ends with it
_MOST_AHEAD = 2**15  # characters of requests: they must not fill the pipe


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
    """Limits of a worker; None for no limit.

    `memory` are bytes of data; `seconds` of processor time; `file` bytes of a
    file that it writes, or a response; `timeout` seconds by the clock.
    """

    memory: int | None = MEMORY
    seconds: int | None = 8
    file: int = 64 * MIB
    timeout: int = 60


def limits_for(size: int, data: int = 0, seconds: float = 60.0) -> Limits:
    """Returns limits by bytes of file and data, and the model's own seconds."""
    most = 4096 * MIB + 24 * size + 64 * data + 2 * memory("VmHWM")
    return Limits(
        memory=min(most, _physical_memory() or most),
        seconds=round(60 + 10 * seconds + size / MIB),
        file=4096 * MIB + 4 * data,
        timeout=_LONGEST,
    )


def _physical_memory() -> int:
    """Returns this machine's memory in bytes; 0 if that is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return 0


class WorkerError(Exception):
    """A worker failed, crashed or met a limit; the message says which."""


class Worker:
    """A process that calls a module's functions, until its `with` block ends.

    The module has a `main`, and optionally `prepare`, which loads what takes
    time. `environment` is added to this process's.
    """

    def __init__(
        self, module: str, *, environment: Mapping[str, str] = _ENVIRONMENT
    ) -> None:
        self._errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "keras_posenc_worker", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_worker_path(), **environment},
            # A terminal's signals go only to this process, which kills the
            # worker.
            start_new_session=True,
        )
        self.uses = 0
        self.ahead = 0  # characters that `run_ahead` sent since a response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def call(
        self, function: str, *arguments: Any, limits: Limits | None = None
    ) -> None:
        """Starts a function of the module; if it fails, `run` raises that."""
        request = [function, arguments, limits and dataclasses.asdict(limits)]
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def run(self, *arguments: Any, limits: Limits) -> Any:
        """Returns what `main` does; raises `WorkerError` if it does not."""
        began = time.monotonic()  # before the timer does
        timer = threading.Timer(limits.timeout, self.kill)
        timer.daemon = True
        timer.start()
        try:
            self.call("main", *arguments, limits=limits)
            return self.response(limits)
        except WorkerError as error:
            if time.monotonic() - began >= limits.timeout:
                raise WorkerError(
                    f"did not respond within {limits.timeout} s"
                ) from error
            raise
        finally:
            timer.cancel()

    def response(self, limits: Limits | None = None) -> Any:
        """Waits for the next response."""
        most = -1 if limits is None else limits.file
        assert self.process.stdout is not None
        line = self.process.stdout.readline(most)
        if line.endswith(b"\n"):
            self.ahead = 0
            return json.loads(line)
        if len(line) == most:
            raise WorkerError(f"responded with more than {most:,} bytes")
        raise self._error(self.process.wait(), limits)

    def kill(self) -> None:
        """Kills the worker, and what it forked; from any thread."""
        if sys.platform == "win32":
            self.process.kill()
            return
        with contextlib.suppress(OSError):  # all have ended
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kills the worker, once no thread waits for it; closes its files."""
        # A request that it did not read would be written again.
        with contextlib.suppress(OSError), self._errors, self.process:
            self.kill()

    def _error(self, status: int, limits: Limits | None) -> WorkerError:
        """Returns why it has ended, by its exit status and what it wrote."""
        limits = limits or Limits(memory=None)
        end = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, end - 65536))
        errors = self._errors.read().decode(errors="replace")
        *_, last = ["", *errors.strip().splitlines()]
        if status == -getattr(signal, "SIGXCPU", 0):
            return WorkerError(
                f"used more than {limits.seconds} s of processor time"
            )
        if (
            "bad_alloc" in errors  # C++ writes this before it aborts
            if status < 0
            else last.startswith("MemoryError")
        ) and limits.memory is not None:
            return WorkerError(
                f"needed more than {limits.memory // MIB} MiB of memory"
            )
        if status < 0:
            return WorkerError(f"was killed by {signal.Signals(-status).name}")
        last = last or f"exit status {status}, without a response"
        return WorkerError(f"failed ({last})")


def run_in_worker(module: str, *arguments: Any, limits: Limits) -> Any:
    """Runs a module's `main` in a worker of its own; see `Worker.run`."""
    with Worker(module) as worker:
        return worker.run(*arguments, limits=limits)


def _worker_path() -> dict[str, str]:
    """Returns the variable that lets Python find a worker not installed."""
    folder = str(Path(keras_posenc_worker.__file__).parents[1])
    # Installed packages are found anyway, after the standard library; adding
    # their folder would put them before it.
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return {}
    paths = [folder, os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


# ---- Workers of several calls: most of a call is importing a runtime

_spares: dict[tuple[Any, ...], Worker] = {}
_RUNS_AHEAD = run.__name__, "saved_model"


def keep_spare(module: str, *prepare: str) -> None:
    """Starts a worker that calls `prepare`, for the next `spare_worker`."""
    key = (os.getpid(), module, *prepare)  # a fork leaves those of its parent
    if key not in _spares:
        _keep(key, _start(module, prepare))


@contextlib.contextmanager
def spare_worker(
    module: str, *prepare: str, is_own: bool = True
) -> Iterator[Worker]:
    """Yields a worker that has called `prepare`, or is calling it.

    It serves later calls too, except after an error or a stranger's file.
    """
    key = (os.getpid(), module, *prepare)
    worker = _spares.pop(key, None) or _start(module, prepare)
    if worker.process.poll() is not None or (worker.uses and not is_own):
        worker.end()
        worker = _start(module, prepare)
    try:
        yield worker
    except BaseException:
        worker.end()
        raise
    worker.uses += 1 if is_own else _MOST_USES
    _keep(key, worker)


def run_ahead(exported: Path, size: int, *case: Any) -> None:
    """Lets the spare worker load a SavedModel of this process, or run a case.

    A case is the name of a signature, and its inputs: `run_model` will have it.
    """
    spare = _spares.get((os.getpid(), *_RUNS_AHEAD))
    numbers = sum(x.nbytes for inputs in case[1:] for x in inputs.values())
    if spare is None or numbers > _MOST_AHEAD:
        return
    given = ["saved_model", str(exported.resolve())]
    if case:
        given.append(base64.b64encode(pack(case)).decode())
    length = len(json.dumps(given))
    if spare.ahead + length < _MOST_AHEAD:
        spare.ahead += length
        # A limit of `main` ends what takes too long, by the clock.
        limits = dataclasses.replace(limits_for(size), seconds=None)
        spare.call("prepare", *given, limits=limits)


@contextlib.contextmanager
def ending_ahead() -> Iterator[None]:
    """Ends the spare worker, if cases wait in it, where the block fails."""
    try:
        yield
    except BaseException:
        key = (os.getpid(), *_RUNS_AHEAD)
        if (spare := _spares.pop(key, None)) is not None:
            spare.uses += _MOST_USES * (spare.ahead > 0)
            _keep(key, spare)
        raise


def _start(module: str, prepare: Sequence[str]) -> Worker:
    worker = Worker(module)
    worker.call("prepare", *prepare)
    return worker


def _keep(key: tuple[Any, ...], worker: Worker) -> None:
    """Keeps a worker, unless it is worn out or another thread has kept one."""
    if (
        worker.uses >= _MOST_USES
        or _spares.setdefault(key, worker) is not worker
    ):
        worker.end()


@atexit.register
def end_spares() -> None:
    """Ends the workers that wait for a call of this process."""
    for key in [key for key in _spares if key[0] == os.getpid()]:
        _spares.pop(key).end()


def _leave_spares() -> None:
    """Leaves the workers of a fork's parent to it: they end with its pipes."""
    for worker in _spares.values():
        if worker.process.stdin is not None:
            worker.process.stdin.close()
    _spares.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_spares)


# ---- Exported models in a worker


def run_model(
    kind: str,
    exported: Path,
    cases: Sequence[tuple[str, Mapping[str, Any]]],
    limits: Limits,
    *,
    is_own: bool = False,
    times: int = 5,
) -> dict[str, Any]:
    """Runs an exported model in a worker, each case up to `times` times."""
    request = {
        "kind": kind,
        "exported": str(exported.resolve()),
        "times": times,
        "cases": cases,
    }
    with working_folder() as folder, writing_to(folder.parent):
        codec.write(folder / run.REQUEST, request)
        try:
            with spare_worker(run.__name__, kind, is_own=is_own) as worker:
                worker.run(str(folder), limits=limits)
        except WorkerError as error:
            raise ExportVerificationError(
                f"The runtime {error} while it ran '{exported}'"
            ) from error
        response: dict[str, Any] = codec.read(folder / run.RESPONSE)
    if "error" not in response:
        return response
    advice = ""
    if "Op type not registered" in response["error"] and not op_libraries():
        advice = (
            ". If the operator is TensorFlow Text's: pip install "
            "tensorflow-text, of the same minor version as tensorflow"
        )
    raise ExportVerificationError(
        f"'{exported}' does not load: {in_words(response['error'])}" + advice
    )
