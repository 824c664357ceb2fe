"""Modules in workers, and what these may use."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import keras_posenc
from keras_posenc.export import worker_client
from keras_posenc.export.worker_client import (
    Limits,
    Worker,
    WorkerError,
    run_in_worker,
    spare_worker,
)

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


@pytest.fixture
def write(tmp_path):
    return (tmp_path / "script.py").write_text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("while True: pass", "used more than 1 s"),
        ("x = bytearray(10**9)", "needed more than 704 MiB of"),
        ("open('x', 'wb').write(bytes(10**6))", r"OSError: \[Errno 27\] File"),
        ("return 'x' * 10**6", "responded with more than 100,000 bytes"),
        ("import time; time.sleep(99)", "did not respond within 1"),
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
        ("import os; os._exit(0)", r"\(exit status 0, without a response\)"),
        # What is printed is no reason.
        ("print('done'); raise SystemExit(3)", r"failed \(SystemExit: 3\)"),
        ("1 / 0", r"\(ZeroDivisionError: division by zero\)"),
    ],
    ids=lambda value: value.partition("(")[0],
)
def test_limit(write, tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    write(f"def main():\n    {source}\n")
    timeout = 1 if "sleep" in source else 60
    limits = Limits(seconds=1, file=10**5, timeout=timeout)
    with pytest.raises(WorkerError, match=message):
        run_in_worker(SCRIPT, limits=limits)


def test_script_within_its_limits(write):
    write(
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


def test_preparation_within_limits_of_its_own(write):
    write(AHEAD)
    with Worker(SCRIPT) as process:
        process.call("prepare", 256 * 2**20, limits=Limits(memory=128 * 2**20))
        process.process.wait(60)
        with pytest.raises(WorkerError, match="needed more than"):
            process.run(limits=Limits())
    with Worker(SCRIPT) as process:  # which the run may raise
        process.call("prepare", 1, limits=Limits(memory=128 * 2**20, seconds=1))
        assert process.run(limits=Limits()) == [1]


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
process.call("prepare")
print(process.process.pid, flush=True)
signal.pause()
"""


def test_process_ends_with_who_started_it(write):
    """... whatever it does then."""
    write("import time\ndef prepare(): time.sleep(300)\n")
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


def test_signals_of_the_terminal_do_not_reach_a_process(write):
    write(
        "import os\n"
        "def main(): return os.getpgrp() == os.getsid(0) == os.getpid()\n"
    )
    assert run_in_worker(SCRIPT, limits=Limits()) is True


@pytest.mark.slow
def test_threads_of_a_large_machine_are_within_the_limits(write, monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.setenv(name, "128")  # as where there are 128 cores
    write(
        "def main():\n"
        "    import tensorflow as tf\n"
        "    return int(tf.constant(7))\n"
    )
    assert run_in_worker(SCRIPT, limits=Limits(seconds=60)) == 7


# ---- Spare workers

WHO = """
import os, pathlib
def prepare(folder):
    path = pathlib.Path(folder, "of_a_spare")
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").replace(path)
def main(): return os.getpid()
"""


@pytest.fixture
def spare(write, tmp_path):
    """A function: runs a script in a spare worker -> its process id."""
    write(WHO)

    def run():
        with spare_worker(SCRIPT, str(tmp_path)) as worker:
            return worker.run(limits=Limits())

    yield run
    worker_client.end_spares()


def prepared(tmp_path, *earlier):
    """The process id of the spare worker, once it has prepared."""
    path, deadline = tmp_path / "of_a_spare", time.monotonic() + 20
    while not path.exists() or int(path.read_text()) in earlier:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(path.read_text())


def has_ended(pid):
    stat, deadline = Path("/proc", str(pid), "stat"), time.monotonic() + 20
    while stat.exists() and stat.read_text().split()[2] not in "ZX":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_worker_serves_several_runs_unless_one_fails(spare, tmp_path):
    first = spare()
    assert [spare() for _ in range(worker_client._MOST_USES - 1)] == [first] * 7
    assert has_ended(first)
    second = spare()
    with (
        pytest.raises(KeyboardInterrupt),
        spare_worker(SCRIPT, str(tmp_path)) as worker,
    ):
        raise KeyboardInterrupt
    assert worker.process.pid == second != spare()
    assert has_ended(second)


def test_limits_are_those_of_one_run(spare, tmp_path):
    low = Limits(seconds=0, file=1)
    with spare_worker(SCRIPT, str(tmp_path)) as worker:
        first = worker.run(limits=Limits(file=10**6))
    with (
        pytest.raises(WorkerError, match="more than 1 bytes"),
        spare_worker(SCRIPT, str(tmp_path)) as worker,
    ):
        worker.run(limits=low)
    assert worker.process.pid == first != spare()


def test_error_of_the_preparation_is_raised_by_each_run(write, spare):
    write("def prepare(x): 1 / 0\n")
    for _ in range(2):
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            spare()


# Waits until its spare worker has prepared.
KEEPS = """
import os, pathlib, signal, time
from keras_posenc.export.worker_client import Limits, keep_spare, spare_worker

folder = pathlib.Path(sys.argv[1])
keep_spare("script", str(folder))
while not (folder / "of_a_spare").exists():
    time.sleep(0.01)
"""


def keeper(tmp_path, code):
    (tmp_path / "script.py").write_text(WHO)
    return subprocess.Popen(
        [sys.executable, "-c", PARTS + KEEPS + code, tmp_path],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def test_spare_worker_ends_with_who_started_it(tmp_path):
    """... though its fork lives on, and has a copy of each pipe."""
    end = "if os.fork(): os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(300)"
    with keeper(tmp_path, end) as starter:
        starter.wait(60)
        try:
            assert has_ended(prepared(tmp_path))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(starter.pid, signal.SIGKILL)


USES = """
def use():
    with spare_worker("script", str(folder)) as worker:
        print(worker.run(limits=Limits()), flush=True)

child = os.fork()
use()
if child:
    os.waitpid(child, 0)
"""


def test_what_a_worker_forks_ends_with_it(write, spare):
    """As OpenVINO forks a process that reports to its makers."""
    write(
        "import os, time\n"
        "def prepare(folder): pass\n"
        "def main():\n"
        "    child = os.fork()\n"
        "    if not child: time.sleep(300)\n"
        "    return child\n"
    )
    child = spare()
    worker_client.end_spares()
    assert has_ended(child)


def test_fork_of_the_caller_leaves_its_spare_worker(tmp_path):
    with keeper(tmp_path, USES + "use()") as starter:
        pids = starter.communicate(timeout=60)[0].split()
    assert starter.returncode == 0
    assert len({*pids}) == 2


def test_memory_for_constants():
    """436 MB of them needed 7.0 GB."""
    assert worker_client.limits_for(436 * 10**6).memory > 7.0e9
