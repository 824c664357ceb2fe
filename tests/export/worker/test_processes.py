"""Scripts in processes of their own, and what these may use."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

import keras_posenc
from keras_posenc.export import processes
from keras_posenc.export import worker_client as asking
from keras_posenc.export.processes import (
    Isolated,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc_worker.process import limit

pytestmark = pytest.mark.tensorflow
resource = pytest.importorskip("resource")  # what limits a process
SCRIPT = "script"


@pytest.fixture(autouse=True)
def _path(tmp_path, monkeypatch):
    """Lets processes, and copies of this one, find a test's own module."""
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    # Without an empty entry, which is the working folder.
    paths = os.pathsep.join(filter(None, paths))
    monkeypatch.setenv("PYTHONPATH", paths)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("while True: pass", "worked for more than 1 s"),
        ("x = bytearray(10**9)", "needed more than 704 MiB of memory"),
        (
            "print('x' * 10**6)",
            r"failed \(OSError: \[Errno 27\] File too large\)",
        ),
        ("import time; time.sleep(99)", "did not answer within 1 s"),
        ("import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV"),
        ("import os; os.abort()", "was ended by SIGABRT"),
        ("raise SystemExit(3)", r"failed \(exit status 3, without an answer\)"),
        ("1 / 0", r"failed \(ZeroDivisionError: division by zero\)"),
    ],
)
@pytest.mark.parametrize("prepared", [None, []], ids=["spawned", "forked"])
def test_limit(tmp_path, source, message, prepared):
    script = tmp_path / "script.py"
    script.write_text(f"def prepare(): pass\ndef main():\n    {source}\n")
    timeout = 1 if "sleep" in source else 60
    limits = Limits(seconds=1, file=10**5, timeout=timeout)
    with pytest.raises(IsolationError, match=message):
        run_isolated(SCRIPT, limits=limits, prepared=prepared)


def test_script_within_its_limits(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "def main(*words):\n"
        "    x = bytearray(10**8)\n"
        "    print(words, os.environ['WORD'])\n"
    )
    assert (
        run_isolated(SCRIPT, "a b", "é", limits=Limits(), WORD="kept")
        == "('a b', 'é') kept\n"
    )


AHEAD = """
import time

found = []


def prepare(size):
    found.append(len(bytearray(size)))
    while time.process_time() < 1.6:
        pass


def main():
    print(found)
    began = time.process_time()
    while len(found) == 3 or time.process_time() - began < 0.3:
        pass
"""


@pytest.mark.slow
def test_preparation_has_no_limits_and_is_kept(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)
    limits = Limits(memory=128 * 2**20, seconds=1)
    with Isolated(SCRIPT) as process:
        process.prepare(1)
        process.prepare(256 * 2**20)
        assert process.run(limits=limits) == f"[1, {256 * 2**20}]\n"
    with Isolated(SCRIPT) as process:
        for _ in range(3):
            process.prepare(1)
        with pytest.raises(IsolationError, match="worked for more than 1 s"):
            process.run(limits=limits)


def test_preparation_within_limits_of_its_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)
    with Isolated(SCRIPT) as process:
        process.prepare(256 * 2**20, limits=Limits(memory=128 * 2**20))
        process._process.wait(60)
        with pytest.raises(IsolationError, match="needed more than"):
            process.run(limits=Limits())
    with Isolated(SCRIPT) as process:  # which the run may raise
        process.prepare(1, limits=Limits(memory=128 * 2**20, seconds=1))
        assert process.run(limits=Limits()) == "[1]\n"


def test_preparation_that_fails_is_told_by_the_run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)
    with Isolated(SCRIPT) as process:
        process.prepare("7")
        process._process.wait(60)
        process.prepare(1)  # nobody listens any more
        with pytest.raises(IsolationError, match=r"failed \(TypeError: "):
            process.run(limits=Limits())


def test_process_ends_with_its_block(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time\ndef prepare(): time.sleep(300)\n")
    with Isolated(SCRIPT) as process:
        process.prepare()
    assert process._process.wait(0) == -signal.SIGKILL


def test_preparation_that_fails_on_windows(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)

    def fail(order):
        raise OSError(errno.EINVAL, "Invalid argument")

    with Isolated(SCRIPT) as process:
        # What a pipe that nobody reads raises there.
        monkeypatch.setattr(
            process._process, "input", types.SimpleNamespace(write=fail)
        )
        process.prepare(1)
        monkeypatch.undo()
        assert process.run(limits=Limits()) == "[]\n"


def test_preparation_that_crashes_leaves_no_core(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import resource\n"
        "def prepare(): print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
        "def main(): pass\n"
    )
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        with Isolated(SCRIPT) as process:
            process.prepare()
            assert process.run(limits=Limits()) == "0\n"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)


def test_order_that_is_never_read_leaves_no_pipe(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(300)\n")
    with Isolated(SCRIPT) as process:
        with pytest.raises(IsolationError, match="did not answer within 1 s"):
            process.run("longer than a pipe" * 10**5, limits=Limits(timeout=1))
    assert process._process.input.closed


# The package without its layers, as Keras takes seconds to be imported.
PARTS = f"""
import sys, types

sys.modules["keras_posenc"] = package = types.ModuleType("keras_posenc")
package.__path__ = {list(keras_posenc.__path__)!r}
"""
STARTS = """
import signal, sys
from keras_posenc.export.processes import Isolated

process = Isolated(sys.argv[1])
process.prepare()
print("started", flush=True)
signal.pause()
"""


@pytest.fixture
def served(tmp_path):
    """A function: a script's text -> a function that runs it, prepared."""

    def serve(text):
        script = tmp_path / "script.py"
        script.write_text(text)

        def run(*arguments):
            return run_isolated(
                SCRIPT, *arguments, limits=Limits(), prepared=[7]
            )

        return run

    return serve


def test_copies_share_the_preparation_and_nothing_else(served, tmp_path):
    """... and have the environment and folder that there are now."""
    run = served(
        "import os\n"
        "found = []\n"
        "def prepare(x): found.append((x, os.getpid()))\n"
        "def main():\n"
        "    print(found, os.getppid(), os.getcwd(), os.environ['WORD'])\n"
        "    found.append(0)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        answers = []
        for word in ("one", "two"):
            (tmp_path / word).mkdir()
            patch.chdir(tmp_path / word)
            patch.setenv("WORD", word)
            found, parent, folder, told = run().rsplit(" ", 3)
            assert folder == str(tmp_path / word)
            assert told == f"{word}\n"
            answers.append((found, parent))
    one, two = answers
    assert one == two
    assert one[0] == f"[(7, {one[1]})]"


def test_copy_of_this_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal\n"
        "found = []\n"
        "def prepare(x): found.append(x)\n"
        "def main(what):\n"
        "    if what == 'fails': 1 / 0\n"
        "    if what == 'waits': signal.pause()\n"
        "    if what == 'ends': os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(found, os.environ['WORD'], os.getppid())\n"
    )
    endings = {
        "fails": (60, "ZeroDivisionError"),
        "waits": (1, "did not answer within 1 s"),
        "ends": (60, "was ended by SIGTERM"),
    }
    for what, (timeout, message) in endings.items():
        with (
            Isolated(SCRIPT, None, True) as process,
            pytest.raises(IsolationError, match=message),
        ):
            process.run(what, limits=Limits(memory=2**40, timeout=timeout))
    with Isolated(SCRIPT, None, True, WORD="kept") as process:
        process.prepare(7)
        answer = process.run("answers", limits=Limits(memory=2**40))
    assert answer.startswith(f"[7] kept {os.getpid()}")
    assert "WORD" not in os.environ


def test_what_is_read_once_is_read_anew(served, monkeypatch):
    run = served(
        "import os\n"
        "found = []\n"
        "def prepare(x): found.append(os.environ.get('TF_OF_A_TEST'))\n"
        "def main(): print(found, os.getppid())\n"
    )
    monkeypatch.delenv("TF_OF_A_TEST", raising=False)
    first = run()
    assert first.startswith("[None] ")
    monkeypatch.setenv("TF_OF_A_TEST", "1")
    assert run().startswith("['1'] ")
    monkeypatch.delenv("TF_OF_A_TEST")
    assert run() == first  # by the same server


def test_error_of_one_caller_ends_no_other_copy(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(PROMPT)

    def fail(*arguments):
        raise OSError(errno.EMFILE, "Too many open files")

    with Isolated(SCRIPT, [7]) as process:
        monkeypatch.setattr(processes.socket, "send_fds", fail)
        with pytest.raises(OSError, match="Too many open files"):
            Isolated(SCRIPT, [7])
        assert process.run(limits=Limits())


@pytest.fixture
def ask(request, tmp_path):
    """A function: -> a copy of a server that has prepared what was given."""
    script = tmp_path / "script.py"
    script.write_text(f"{request.param}\ndef main(): pass\n")
    with contextlib.ExitStack() as stack:
        server = processes._ForkServer(SCRIPT, (), {})
        stack.callback(server.end)

        def ask():
            out = stack.enter_context((tmp_path / "out").open("wb"))
            process = server.fork([out, out])
            stack.callback(process.end)
            return process

        yield ask


def answer(process):
    process.input.write(b'["main", [], {}]\n')
    return process.wait(20)


ROOM_FOR_ONE = """
import os, resource

def prepare():  # a pipe of its own comes yet, and for each copy four files
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 6, used + 6))
"""
ONE_PROCESS_AT_A_TIME = """
import os

fork, calls = os.fork, []

def prepare():
    def second_fails():
        calls.append(0)
        if len(calls) == 2:
            raise BlockingIOError("none")
        return fork()
    os.fork = second_fails
"""


@pytest.mark.parametrize(
    "ask",
    [ROOM_FOR_ONE, ONE_PROCESS_AT_A_TIME],
    ids=["files", "processes"],
    indirect=True,
)
def test_where_there_is_no_room_nobody_else_is_ended(ask):
    first = ask()
    assert first.wait(0.1) is None
    assert ask().wait(20) == -signal.SIGKILL
    assert answer(first) == 0
    assert answer(ask()) == 0


@pytest.mark.parametrize(
    "ask",
    [
        """
import time
from keras_posenc_worker import process

def prepare():
    select, calls = process.select.select, []
    def nothing_at_first(*arguments):
        calls.append(0)
        return ([], [], []) if len(calls) == 1 else select(*arguments)
    process.select.select = nothing_at_first
    time.sleep(0.5)
"""
    ],
    ids=["asked"],
    indirect=True,
)
def test_all_that_asked_before_a_server_ends_are_answered(ask):
    asked = [ask() for _ in range(3)]
    for process in asked:
        assert answer(process) == 0


def test_preparation_that_fails_is_told_by_each_copy(served):
    run = served("def prepare(x): 1 / 0\ndef main(): prepare(7)\n")
    for _ in range(2):
        with pytest.raises(IsolationError, match="ZeroDivisionError"):
            run()


def test_who_is_asked_for_a_copy_may_have_ended(served):
    run = served(
        "import os\ndef prepare(x): pass\ndef main(): print(os.getppid())\n"
    )
    first = int(run())
    os.kill(first, signal.SIGKILL)
    while Path(f"/proc/{first}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    assert int(run()) != first


def test_idle_process_is_ended(served, monkeypatch):
    """... long before its time is over, and none that works."""
    monkeypatch.setattr(processes, "_IDLE", 1)
    run = served(
        "import time, threading\n"
        "def prepare(x): pass\n"
        "def main(what):\n"
        "    if what == 'waits': threading.Event().wait()\n"
        "    end = time.monotonic() + 2\n"
        "    while time.monotonic() < end: pass\n"
    )
    with pytest.raises(IsolationError, match="did nothing for 1 s"):
        run("waits")
    run("works")


def test_copies_end_with_who_started_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, time\n"
        "def prepare(x): pass\n"
        "def main():\n"
        f"    path = pathlib.Path({str(tmp_path)!r})\n"
        "    path.joinpath('copy').write_text(str(os.getpid()))\n"
        "    path.joinpath('server').write_text(str(os.getppid()))\n"
        "    time.sleep(300)\n"
    )
    start = (
        PARTS + "from keras_posenc.export.processes import "
        "Limits, run_isolated\n"
        "run_isolated(sys.argv[1], limits=Limits(), prepared=[7])\n"
    )
    with subprocess.Popen([sys.executable, "-c", start, SCRIPT]) as starter:
        while not (tmp_path / "server").exists():
            time.sleep(0.05)
        starter.kill()
    deadline = time.monotonic() + 60
    for name in ("copy", "server"):
        stat = Path("/proc", (tmp_path / name).read_text(), "stat")
        while stat.exists() and stat.read_text().split()[2] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_process_ends_with_who_started_it(tmp_path):
    script, ended = tmp_path / "script.py", tmp_path / "ended"
    script.write_text(
        "import atexit, pathlib\n"
        "def prepare():\n"
        f"    atexit.register(pathlib.Path({str(ended)!r}).touch)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", PARTS + STARTS, SCRIPT], stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout.readline() == b"started\n"
        starter.kill()
    deadline = time.monotonic() + 60
    while not ended.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_signals_of_the_terminal_do_not_reach_a_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "def main(): print(os.getpgrp() == os.getsid(0) == os.getpid())\n"
    )
    assert run_isolated(SCRIPT, limits=Limits()) == "True\n"


@pytest.mark.slow
def test_threads_of_a_large_machine_are_within_the_limits(
    tmp_path, monkeypatch
):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.setenv(name, "128")  # as where there are 128 cores
    script = tmp_path / "script.py"
    script.write_text(
        "def main():\n"
        "    import tensorflow as tf\n"
        "    print(int(tf.constant(7)))\n"
    )
    assert run_isolated(SCRIPT, limits=Limits(seconds=60)) == "7\n"


def test_limits_need_no_resource_module(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    limit({"CPU": 1})  # as on Windows: nothing happens
    assert asking._peak_memory() == 0


# ---- Callers of all kinds

PROMPT = "import os\ndef prepare(x=0): pass\ndef main(): print(os.getcwd())\n"


@pytest.fixture
def copy():
    """A function: a copy of this process, in which another one is run."""
    copies = []

    def copied(run):
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                signal.alarm(20)
                run()
                os._exit(0)
            os._exit(1)
        copies.append(pid)
        return pid

    yield copied
    for pid in copies:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("prepared", [None, []], ids=["spawned", "forked"])
def test_copy_of_the_caller_has_the_pipe_too(
    tmp_path, monkeypatch, copy, prepared
):
    """As those of multiprocessing have it, which live as long as they like."""
    monkeypatch.setattr(processes, "_IDLE", 2)
    script = tmp_path / "script.py"
    script.write_text(PROMPT)
    with Isolated(SCRIPT, prepared) as process:
        copy(signal.pause)
        assert process.run(limits=Limits())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_copy_of_the_caller_while_another_thread_begins(served, copy):
    run = served(PROMPT)
    run()
    with processes._lock:
        pid = copy(run)
        assert os.waitpid(pid, 0)[1] == 0
    assert run()


def test_caller_with_a_thousand_files(served):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        number = 0
        while number < 1024:  # what `select` knows
            number = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, number)
        assert served(PROMPT)()


def test_caller_whose_folder_was_removed(served, tmp_path, monkeypatch):
    run = served("def prepare(x): pass\ndef main(): print('here')\n")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run() == "here\n"


def test_caller_that_blocks_signals(served):
    signals = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGXCPU}
    )
    try:
        assert served(PROMPT)()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def test_copy_ends_with_the_process_that_it_is_of(served, tmp_path):
    run = served(
        "import os, pathlib, signal\n"
        "def prepare(x): pass\n"
        "def main():\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'id').write_text(\n"
        "        str(os.getpid())\n"
        "    )\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    signal.pause()\n"
    )
    with pytest.raises(IsolationError, match="was ended by SIGKILL"):
        run()
    stat = Path("/proc", (tmp_path / "id").read_text(), "stat")
    deadline = time.monotonic() + 20
    while stat.exists() and stat.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.05)
