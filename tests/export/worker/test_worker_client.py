"""Modules in workers, and what these may use."""

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
from keras_posenc.export import check, worker_client
from keras_posenc.export.worker_client import (
    Limits,
    Worker,
    WorkerError,
    run_in_worker,
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


SPAWNED, FORKED = [None], [None, []]  # how a worker is prepared


@pytest.mark.parametrize(
    ("source", "message", "prepare"),
    [
        pytest.param(source, message, prepare, id=f"{source}-{prepare}")
        for kinds, source, message in [
            (SPAWNED, "while True: pass", "used more than 1 s"),
            (FORKED, "x = bytearray(10**9)", "needed more than 704 MiB of"),
            (FORKED, "return 'x' * 10**6", r"OSError: \[Errno 27\] File too"),
            (FORKED, "import time; time.sleep(99)", "did not respond within 1"),
            (FORKED, "import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
            (FORKED, "import os; os.abort()", "was killed by SIGABRT"),
            (
                FORKED,
                "import os; os._exit(3)",
                r"failed \(exit status 3, without a response\)",
            ),
            (
                SPAWNED,
                "import os; os._exit(0)",
                r"failed \(without a response\)",
            ),
            # What is printed is no reason.
            (
                SPAWNED,
                "print('done'); raise SystemExit(3)",
                r"failed \(SystemExit: 3\)",
            ),
            (FORKED, "1 / 0", r"\(ZeroDivisionError: division by zero\)"),
        ]
        for prepare in kinds
    ],
)
def test_limit(tmp_path, source, message, prepare):
    script = tmp_path / "script.py"
    script.write_text(f"def prepare(): pass\ndef main():\n    {source}\n")
    timeout = 1 if "sleep" in source else 60
    limits = Limits(seconds=1, file=10**5, timeout=timeout)
    with pytest.raises(WorkerError, match=message):
        run_in_worker(SCRIPT, limits=limits, prepare=prepare)


def test_script_within_its_limits(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "def main(*words):\n"
        "    x = bytearray(10**8)\n"
        "    print('no response')\n"
        "    return [words, os.environ['WORD']]\n"
    )
    with Worker(SCRIPT, environment={"WORD": "kept"}) as worker:
        found = worker.run("a b", ["é"], 1, limits=Limits())
    assert found == [["a b", ["é"], 1], "kept"]


AHEAD = """
import time

found = []


def prepare(size):
    found.append(len(bytearray(size)))
    while time.process_time() < 1.6:
        pass


def main():
    began = time.process_time()
    while len(found) == 3 or time.process_time() - began < 0.3:
        pass
    return found
"""


@pytest.mark.slow
def test_preparation_has_no_limits_and_is_kept(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)
    limits = Limits(memory=128 * 2**20, seconds=1)
    with Worker(SCRIPT) as process:
        process.prepare(1)
        process.prepare(256 * 2**20)
        assert process.run(limits=limits) == [1, 256 * 2**20]
    with Worker(SCRIPT) as process:
        for _ in range(3):
            process.prepare(1)
        with pytest.raises(WorkerError, match="used more than 1 s"):
            process.run(limits=limits)


def test_preparation_within_limits_of_its_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)
    with Worker(SCRIPT) as process:
        process.prepare(256 * 2**20, limits=Limits(memory=128 * 2**20))
        process._process.wait(60)
        with pytest.raises(WorkerError, match="needed more than"):
            process.run(limits=Limits())
    with Worker(SCRIPT) as process:  # which the run may raise
        process.prepare(1, limits=Limits(memory=128 * 2**20, seconds=1))
        assert process.run(limits=Limits()) == [1]


def test_preparation_that_fails_is_told_by_the_run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)
    with Worker(SCRIPT) as process:
        process.prepare("7")
        process._process.wait(60)
        process.prepare(1)  # nobody listens any more
        with pytest.raises(WorkerError, match=r"failed \(TypeError: "):
            process.run(limits=Limits())


def test_process_ends_with_its_block(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time\ndef prepare(): time.sleep(300)\n")
    with Worker(SCRIPT) as process:
        process.prepare()
    assert process._process.wait(0) == -signal.SIGKILL


def test_preparation_that_fails_on_windows(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(AHEAD)

    def fail(order):
        raise OSError(errno.EINVAL, "Invalid argument")

    with Worker(SCRIPT) as process:
        # What a pipe that is not read raises there.
        monkeypatch.setattr(
            process, "_input", types.SimpleNamespace(write=fail)
        )
        process.prepare(1)
        monkeypatch.undo()
        assert process.run(limits=Limits()) == []


def test_preparation_that_crashes_leaves_no_core(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import resource\n"
        "found = []\n"
        "def prepare():\n"
        "    found.extend(resource.getrlimit(resource.RLIMIT_CORE))\n"
        "def main(): return found[0]\n"
    )
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        with Worker(SCRIPT) as process:
            process.prepare()
            assert process.run(limits=Limits()) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)


def test_order_that_is_never_read_leaves_no_pipe(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time\ntime.sleep(300)\n")
    with Worker(SCRIPT) as process:
        with pytest.raises(WorkerError, match="did not respond within 1 s"):
            process.run("longer than a pipe" * 10**5, limits=Limits(timeout=1))
    assert process._input.closed


# The package without its layers, as Keras takes seconds to be imported.
PARTS = f"""
import sys, types

sys.modules["keras_posenc"] = package = types.ModuleType("keras_posenc")
package.__path__ = {list(keras_posenc.__path__)!r}
"""
STARTS = """
import signal, sys
from keras_posenc.export.worker_client import Worker

process = Worker(sys.argv[1])
process.prepare()
print(process._process.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def served(tmp_path):
    """A function: a script's text -> a function that runs it, prepared."""

    def serve(text):
        script = tmp_path / "script.py"
        script.write_text(text)

        def run(*arguments):
            return run_in_worker(
                SCRIPT, *arguments, limits=Limits(), prepare=[7]
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
        "    found.append(0)\n"
        "    return found, os.getppid(), os.getcwd(), os.environ['WORD']\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        outputs = []
        for word in ("one", "two"):
            (tmp_path / word).mkdir()
            patch.chdir(tmp_path / word)
            patch.setenv("WORD", word)
            found, parent, folder, variable = run()
            assert folder == str(tmp_path / word)
            assert variable == word
            outputs.append((found, parent))
    one, two = outputs
    assert one == two
    assert one[0] == [[7, one[1]], 0]


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
        "    return found, os.environ['WORD'], os.getppid()\n"
    )
    endings = {
        "fails": (60, "ZeroDivisionError"),
        "waits": (1, "did not respond within 1 s"),
        "ends": (60, "was killed by SIGTERM"),
    }
    for what, (timeout, message) in endings.items():
        with (
            Worker(SCRIPT, is_fork=True) as process,
            pytest.raises(WorkerError, match=message),
        ):
            process.run(what, limits=Limits(memory=2**40, timeout=timeout))
    environment = {"WORD": "kept"}
    with Worker(SCRIPT, is_fork=True, environment=environment) as process:
        process.prepare(7)
        found = process.run("returns", limits=Limits(memory=2**40))
    assert found == [[7], "kept", os.getpid()]
    assert "WORD" not in os.environ


def test_what_is_read_once_is_read_anew(served, monkeypatch):
    run = served(
        "import os\n"
        "found = []\n"
        "def prepare(x): found.append(os.environ.get('TF_OF_A_TEST'))\n"
        "def main(): return [*found, os.getppid()]\n"
    )
    monkeypatch.delenv("TF_OF_A_TEST", raising=False)
    first = run()
    assert first[0] is None
    monkeypatch.setenv("TF_OF_A_TEST", "1")
    assert run()[0] == "1"
    monkeypatch.delenv("TF_OF_A_TEST")
    assert run() == first  # by the same server


def test_error_of_one_caller_ends_no_other_copy(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(PROMPT)

    def fail(*arguments):
        raise OSError(errno.EMFILE, "Too many open files")

    with Worker(SCRIPT, prepare=[7]) as process:
        monkeypatch.setattr(worker_client.socket, "send_fds", fail)
        with pytest.raises(OSError, match="Too many open files"):
            Worker(SCRIPT, prepare=[7])
        assert process.run(limits=Limits())


@pytest.fixture
def fork(request, tmp_path):
    """A function: -> a fork of a server that has prepared what was given."""
    script = tmp_path / "script.py"
    script.write_text(f"{request.param}\ndef main(): pass\n")
    with contextlib.ExitStack() as stack:
        server = worker_client._ForkServer(SCRIPT, (), {})
        stack.callback(server.end)

        def fork():
            out = stack.enter_context((tmp_path / "out").open("wb"))
            reader, writer = os.pipe()
            stdin = stack.enter_context(open(writer, "wb", buffering=0))
            with open(reader, "rb") as given:
                files = [given.fileno(), out.fileno(), out.fileno()]
                process = server.fork(files, stdin)
            stack.callback(process.close)
            stack.callback(process.kill)
            return process, stdin

        yield fork


def status_of(process, stdin):
    stdin.write(b'["main", [], {}]\n')
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
    "fork",
    [ROOM_FOR_ONE, ONE_PROCESS_AT_A_TIME],
    ids=["files", "processes"],
    indirect=True,
)
def test_where_there_is_no_room_no_other_is_ended(fork):
    first = fork()
    with pytest.raises(subprocess.TimeoutExpired):
        first[0].wait(0.1)
    assert fork()[0].wait(20) == -signal.SIGKILL
    assert status_of(*first) == 0
    assert status_of(*fork()) == 0


@pytest.mark.parametrize(
    "fork",
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
    ids=["requested"],
    indirect=True,
)
def test_all_requests_before_a_server_ends_are_served(fork):
    forks = [fork() for _ in range(3)]
    for each in forks:
        assert status_of(*each) == 0


def test_preparation_that_fails_is_told_by_each_copy(served):
    run = served("def prepare(x): 1 / 0\ndef main(): prepare(7)\n")
    for _ in range(2):
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            run()


def test_who_is_asked_for_a_copy_may_have_ended(served):
    run = served(
        "import os\ndef prepare(x): pass\ndef main(): return os.getppid()\n"
    )
    first = run()
    os.kill(first, signal.SIGKILL)
    while Path(f"/proc/{first}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    assert run() != first


def test_idle_process_is_ended(served, monkeypatch):
    """... long before its time is over, and none that works."""
    monkeypatch.setattr(worker_client, "_IDLE", 0.5)
    run = served(
        "import time, threading\n"
        "def prepare(x): pass\n"
        "def main(what):\n"
        "    if what == 'waits': threading.Event().wait()\n"
        "    end = time.monotonic() + 1.5\n"
        "    while time.monotonic() < end: pass\n"
    )
    with pytest.raises(WorkerError, match=r"did nothing for 0\.5 s"):
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
        PARTS + "from keras_posenc.export.worker_client import "
        "Limits, run_in_worker\n"
        "run_in_worker(sys.argv[1], limits=Limits(), prepare=[7])\n"
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
    """... whatever it does then."""
    script = tmp_path / "script.py"
    script.write_text("import time\ndef prepare(): time.sleep(300)\n")
    with subprocess.Popen(
        [sys.executable, "-c", PARTS + STARTS, SCRIPT], stdout=subprocess.PIPE
    ) as starter:
        stat = Path("/proc", starter.stdout.readline().decode().strip(), "stat")
        assert stat.exists()
        starter.kill()
    deadline = time.monotonic() + 60
    while stat.exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_signals_of_the_terminal_do_not_reach_a_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "def main(): return os.getpgrp() == os.getsid(0) == os.getpid()\n"
    )
    assert run_in_worker(SCRIPT, limits=Limits()) is True


def test_what_is_done_is_shown(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from keras_posenc_worker.process import respond\n"
        "def main():\n"
        "    for number in (1, 2):\n"
        "        respond({'done': number})\n"
        "        time.sleep(1.2)\n"
        "    return 'end'\n"
    )
    shown = []
    found = run_in_worker(SCRIPT, limits=Limits(), show=shown.append)
    assert found == "end"
    assert sorted({*shown}) == [1, 2]


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
        "    return int(tf.constant(7))\n"
    )
    assert run_in_worker(SCRIPT, limits=Limits(seconds=60)) == 7


def test_limits_need_no_resource_module(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    limit({"CPU": 1})  # as on Windows: nothing happens
    assert check._peak_memory() == 0


# ---- Callers of all kinds

PROMPT = "import os\ndef prepare(x=0): pass\ndef main(): return os.getcwd()\n"


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
@pytest.mark.parametrize("prepare", [None, []], ids=["spawned", "forked"])
def test_copy_of_the_caller_has_the_pipe_too(
    tmp_path, monkeypatch, copy, prepare
):
    """As those of multiprocessing have it, which live as long as they like."""
    monkeypatch.setattr(worker_client, "_IDLE", 2)
    script = tmp_path / "script.py"
    script.write_text(PROMPT)
    with Worker(SCRIPT, prepare=prepare) as process:
        copy(signal.pause)
        assert process.run(limits=Limits())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_copy_of_the_caller_while_another_thread_begins(served, copy):
    run = served(PROMPT)
    run()
    with worker_client._lock:
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
    run = served("def prepare(x): pass\ndef main(): return 'here'\n")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run() == "here"


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
    with pytest.raises(WorkerError, match="was killed by SIGKILL"):
        run()
    stat = Path("/proc", (tmp_path / "id").read_text(), "stat")
    deadline = time.monotonic() + 20
    while stat.exists() and stat.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_memory_for_constants(monkeypatch):
    """436 MB of them needed 7.0 GB; more than the machine has is no limit."""
    monkeypatch.setattr(
        check.os,
        "sysconf",
        lambda name: {"SC_PAGE_SIZE": 2**12, "SC_PHYS_PAGES": 2**22}[name],
        raising=False,
    )

    monkeypatch.setattr(check, "_peak_memory", lambda: 0)  # other tests' too

    def memory(size):
        file = types.SimpleNamespace(
            kind="saved_model",
            has_variables=False,
            weight_bytes=size,
            size_bytes=size,
        )
        return check.limits_of(None, file).memory

    assert memory(436 * 10**6) > 7.0e9
    assert memory(2 * 10**9) - memory(10**9) == 4 * 10**9
    assert memory(2 * 10**9) < 2**34 + 4 * 2e9 + 4e9
