"""The worker's side: calls functions that standard input names, within limits.

A request is a line of JSON: the name of a function of the worker's module, its
arguments, and the limits from then on, by the names that `resource` has. A
response is a line of JSON on standard output: the function's return value.
`prepare` loads what takes time, and has no response; after `main` the worker
ends.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import queue
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TextIO

if sys.platform != "win32":
    import fcntl

_UNUSED = 600  # seconds without use after which a fork server ends
_responses: TextIO


def forbid(*names: str) -> None:
    """Makes the import of packages fail in this process."""
    for name in names:
        sys.modules[name] = None  # type: ignore[assignment]


def limit(limits: Mapping[str, int]) -> None:
    """Limits this process, by the names that `resource` has."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, value in {"CORE": 0, **limits}.items():
        if name == "CPU":  # the system counts from the process's start
            used = resource.getrusage(resource.RUSAGE_SELF)
            value += math.ceil(used.ru_utime + used.ru_stime)
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY or value < hard:
            resource.setrlimit(kind, (value, hard))


def obey(name: str) -> NoReturn:
    """Calls the functions of a module that requests name, up to `main`.

    Then it kills the process: TensorFlow takes most of a second to exit.
    """
    status = 1
    try:
        _obey(name)
        status = 0
    except BaseException as error:
        # Python's own hook, which needs little memory.
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(status)


def _obey(name: str) -> None:
    global _responses
    _responses = os.fdopen(os.dup(1), "w")
    # Prints of modules and native code go to standard error.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(1)  # the caller has ended

    threading.Thread(target=listen, daemon=True).start()
    module = importlib.import_module(name)
    while True:
        function, arguments, limits = json.loads(requests.get())
        limit(limits)
        response = getattr(module, function)(*arguments)
        if function != "prepare":
            respond(response)
        if function == "main":
            return


def respond(response: Any) -> None:
    """Sends a response: whatever JSON can hold."""
    _responses.write(json.dumps(response) + "\n")
    _responses.flush()


def begin(files: Sequence[int]) -> None:
    """Makes a fork a process of its own, with these standard files."""
    # A terminal's signals go only to the caller, which kills the fork.
    os.setsid()
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    # If the parent had closed its standard files, these may be among 0 to 2.
    above = [
        file if file > 2 else fcntl.fcntl(file, fcntl.F_DUPFD, 3)
        for file in files
    ]
    for own, file in enumerate(above):
        os.dup2(file, own)


def serve(module: str, prepare: Sequence[Any], control: socket.socket) -> None:
    """Calls `prepare` once, and forks at each request.

    It returns only in the forks.
    """
    with contextlib.suppress(Exception):  # each fork raises it again
        importlib.import_module(module).prepare(*prepare)
    gc.collect()
    gc.freeze()  # a collection would write to, and so copy, all memory
    awake, wake = os.pipe()
    os.set_blocking(awake, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    links: dict[int, socket.socket] = {}
    server = os.getpid()
    is_open, is_used = True, True
    while is_open or links:
        watched: list[Any] = [awake, *links.values()]
        watched += [control] * is_open
        ready, _, _ = select.select(watched, [], [], _UNUSED)
        if not ready and not links:
            control.shutdown(socket.SHUT_RD)  # no more requests
            is_used, ready = False, [control]  # but some may be waiting
        if awake in ready:
            os.read(awake, 4096)
            for pid, status in _ended(links):
                with links.pop(pid) as link, contextlib.suppress(OSError):
                    link.send(str(os.waitstatus_to_exitcode(status)).encode())
        for pid, link in links.items():
            if link in ready:  # only closing makes it readable
                os.kill(pid, signal.SIGKILL)
        if control not in ready:
            continue
        order, passed, flags, _ = socket.recv_fds(control, 16, 4)
        if not order and is_used:  # the caller has ended, or closed its end
            break
        if not order:
            is_open = False
            continue
        # If the system has no room for the files or the process, the caller
        # finds its link closed, and other forks continue.
        started = None if flags & socket.MSG_CTRUNC else _fork()
        if started is None:
            for file in passed:
                os.close(file)
            continue
        pid, (number, *files) = started, passed
        link = socket.socket(fileno=number)
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _end_with(server)
            begin(files)
            for other in (control, link, *links.values()):
                other.close()
            for file in (awake, wake, *files):
                os.close(file)
            state = json.loads(sys.stdin.readline())
            os.environ.clear()
            os.environ.update(state["environment"])
            if state["folder"] is not None:
                os.chdir(state["folder"])
            return
        for file in files:
            os.close(file)
        with contextlib.suppress(OSError):
            link.send(str(pid).encode())
        links[pid] = link
    for pid in links:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _fork() -> int | None:
    """Calls `os.fork`; returns None if the system allows no more processes."""
    with warnings.catch_warnings():
        # Python warns of threads. OpenBLAS, which NumPy has loaded, handles
        # forks, and TensorFlow has no threads yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return os.fork()
        except OSError:
            return None


def _end_with(parent: int) -> None:
    """Makes Linux kill this process when its parent has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _ended(pids: Mapping[int, Any]) -> list[tuple[int, int]]:
    return [
        found
        for pid in pids
        if (found := os.waitpid(pid, os.WNOHANG)) != (0, 0)
    ]
