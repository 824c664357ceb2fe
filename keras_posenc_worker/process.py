"""The worker's side: calls functions that standard input names, within limits.

A request is a line of JSON, of a function's name, arguments and limits. So is a
response; `prepare` has none. It ends when its input does, or with an error.
"""

import ctypes
import gc
import importlib
import json
import math
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn, TextIO

_responses: TextIO


def forbid(*names: str) -> None:
    """Makes the import of packages fail in this process."""
    for name in names:
        sys.modules[name] = None  # type: ignore[assignment]


def import_for_good(name: str) -> None:
    """Imports a module that stays: no collection looks at what it made.

    Going through TensorFlow takes two tenths of a second each time.
    """
    if name not in sys.modules:
        gc.disable()
        importlib.import_module(name)
        gc.freeze()
        gc.enable()


def limit(limits: Mapping[str, int | None] | None) -> None:
    """Limits `seconds` of the processor, and bytes of `memory` and a `file`."""
    try:
        import resource
    except ImportError:  # Windows
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    for kind, name, spent in (
        (resource.RLIMIT_CPU, "seconds", used.ru_utime + used.ru_stime),
        (resource.RLIMIT_DATA, "memory", memory("VmData")),
        (resource.RLIMIT_FSIZE, "file", 0),
    ):
        most = (limits or {}).get(name)
        _, hard = resource.getrlimit(kind)
        value = hard if most is None else most + math.ceil(spent)
        if hard == resource.RLIM_INFINITY or value <= hard:
            resource.setrlimit(kind, (value, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core after a crash


def memory(name: str) -> int:
    """Returns bytes of this process's memory, by Linux's name; 0 elsewhere."""
    try:
        with open("/proc/self/status") as file:
            found = [x.split()[1] for x in file if x.startswith(f"{name}:")]
    except OSError:
        return 0
    return 1024 * int(found[0]) if found else 0


def give_back() -> None:
    """Returns to the system the free memory that glibc keeps."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # musl has none
            trim(0)


def obey(name: str) -> NoReturn:
    """Calls the functions of a module that requests name."""
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
    try:
        module = importlib.import_module(name)
        while True:
            function, arguments, limits = json.loads(requests.get())
            limit(limits)
            response = getattr(module, function)(*arguments)
            give_back()  # it may wait for long
            if function != "prepare":
                respond(response)
    except BaseException as error:
        # Python's own hook, which needs little memory.
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        os._exit(1)  # TensorFlow would take most of a second


def respond(response: Any) -> None:
    """Sends a response: whatever JSON can hold."""
    _responses.write(json.dumps(response) + "\n")
    _responses.flush()
