"""What an isolated process does: obeys orders on standard input, in limits.

An order is a line of JSON: the name of a function of the process's module, its
arguments, and the limits from then on, by the names that `resource` has for
them. A module has a function `main` of strings, and perhaps `prepare`, which
loads what takes time.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

_UNUSED = 600  # seconds after which a process that only forks others ends


def limit(limits: dict[str, int]) -> None:
    """Limits this process, by the names that `resource` has."""
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


def obey(name_of_module: str) -> None:
    """Calls the functions that standard input names, up to `main`."""
    module = importlib.import_module(name_of_module)
    for line in sys.stdin:
        name, arguments, limits = json.loads(line)
        limit(limits)
        getattr(module, name)(*arguments)
        if name == "main":  # the last: others may have the pipe's end, too
            return


def serve(module: str, prepared: Sequence[Any], control: socket.socket) -> None:
    """Calls `prepare` once, forks whenever asked, and in the copy returns."""
    with contextlib.suppress(Exception):  # each copy will say so itself
        importlib.import_module(module).prepare(*prepared)
    gc.collect()
    gc.freeze()  # or each copy would write to, and so have, all of it
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
            control.shutdown(socket.SHUT_RD)  # from here on nobody can ask
            is_used, ready = False, [control]  # but some may have
        if awake in ready:
            os.read(awake, 4096)
            for pid, status in _ended(links):
                with links.pop(pid) as link, contextlib.suppress(OSError):
                    link.send(str(os.waitstatus_to_exitcode(status)).encode())
        for pid, link in links.items():
            if link in ready:  # it was closed: there is nothing else to say
                os.kill(pid, signal.SIGKILL)
        if control not in ready:
            continue
        order, passed, flags, _ = socket.recv_fds(control, 16, 4)
        if not order and is_used:  # who asked has ended, or wants no more
            break
        if not order:
            is_open = False
            continue
        # Without room for all the files, or for a process, who asked finds its
        # link closed, and the others go on.
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
            os.setsid()
            for own, file in enumerate(files):
                os.dup2(file, own)
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
    """As `os.fork`; None where the system has no room for a process."""
    with warnings.catch_warnings():
        # Python warns where there are threads. Those of OpenBLAS, which
        # NumPy has begun, are made for it, and TensorFlow has none yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return os.fork()
        except OSError:
            return None


def _end_with(parent: int) -> None:
    """Lets Linux end this process when its parent has ended, however."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _ended(pids: Mapping[int, Any]) -> list[tuple[int, int]]:
    return [
        found
        for pid in pids
        if (found := os.waitpid(pid, os.WNOHANG)) != (0, 0)
    ]
