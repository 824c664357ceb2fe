"""Runs scripts by orders on standard input, and exits at once.

`python -P runner.py SCRIPT` reads lines of JSON, each the name of one of the
script's functions, its arguments, and the limits from then on, by the names
that `resource` has for them. `python -P runner.py SCRIPT PREPARED SOCKET` calls
the script's `prepare` once, and then forks such a process for each that it is
asked for.

A script of the package comes with the others of its folder, and nothing else
of the package: what they import of it they import as they are loaded.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

_SCRIPTS = Path(__file__).parents[1] / "isolated"
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


@functools.cache
def _load(script: str) -> Any:
    path = Path(script)
    if path.is_relative_to(_SCRIPTS):
        return _load_own(path.relative_to(_SCRIPTS).with_suffix("").parts)
    spec = util.spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_own(name: Sequence[str]) -> Any:
    """Loads a script of the package without the package around the scripts."""
    folders = {
        "keras_posenc": [],
        "keras_posenc.export": [],
        "keras_posenc.export.isolated": [str(_SCRIPTS)],
    }
    is_copy = "keras_posenc" in sys.modules  # of a process that has it all
    for package, paths in folders.items():
        if not is_copy:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = paths
    try:
        return importlib.import_module(".".join([[*folders][-1], *name]))
    finally:
        if not is_copy:
            for package in folders:
                del sys.modules[package]


def obey(script: str) -> None:
    """Calls the functions that standard input names, up to `main`."""
    module = _load(script)
    for line in sys.stdin:
        name, arguments, limits = json.loads(line)
        limit(limits)
        getattr(module, name)(*arguments)
        if name == "main":  # the last: others may have the pipe's end, too
            return


def _serve(
    script: str, prepared: Sequence[Any], control: socket.socket
) -> None:
    """Forks whenever asked, and in the copy returns."""
    with contextlib.suppress(Exception):  # each copy will say so itself
        _load(script).prepare(*prepared)
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


if __name__ == "__main__":
    script, *server = sys.argv[1:]
    limit({})  # no core, whatever ends it
    if sys.platform != "win32":  # what its starter's thread has blocked
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if server:
        prepared, number = server
        # A low number, whatever it was there: `select` knows those only.
        control = socket.socket(fileno=os.dup(int(number)))
        os.close(int(number))
        _serve(script, json.loads(prepared), control)
    obey(script)
    # TensorFlow takes most of a second to put itself away.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
