"""Modules in workers, and what these may use."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_posenc.export import worker_client
from keras_posenc.export.worker_client import (
    Limits,
    Worker,
    WorkerError,
    run_in_worker,
    spare_worker,
)
from keras_posenc_worker import run

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
        ("while True: pass", "used more than 0 s"),
        ("x = bytearray(10**9)", "needed more than 704 MiB of"),
        ("open('x', 'wb').write(bytes(10**6))", r"OSError: \[Errno 27\] File"),
        ("return 'x' * 10**6", "responded with more than 100,000 bytes"),
        ("import time; time.sleep(99)", "did not respond within 0.2 s"),
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
    timeout = 0.2 if "sleep" in source else 60
    seconds = 0 if "while" in source else 1  # what it used is rounded up
    limits = Limits(seconds=seconds, file=10**5, timeout=timeout)
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


def test_preparation_within_limits_of_its_own(write):
    write(
        "import time\n"
        "found = []\n"
        "def prepare(size):\n"
        "    found.append(len(bytearray(size)))\n"
        "    while time.process_time() < 0.8: pass\n"
        "def main():\n"
        "    end = time.process_time() + 0.3\n"
        "    while time.process_time() < end: pass\n"
        "    return found\n"
    )
    with Worker(SCRIPT) as process:
        process.call("prepare", 256 * 2**20, limits=Limits(memory=128 * 2**20))
        with pytest.raises(WorkerError, match="needed more than"):
            process.run(limits=Limits())
    with Worker(SCRIPT) as process:  # which the run may raise
        process.call("prepare", 1, limits=Limits(memory=128 * 2**20, seconds=2))
        assert process.run(limits=Limits(seconds=1)) == [1]


STARTS = """
import signal, sys
sys.modules["keras"] = None  # as in a worker
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
        [sys.executable, "-c", STARTS, SCRIPT], stdout=subprocess.PIPE
    ) as starter:
        pid = int(starter.stdout.readline())
        starter.kill()
    assert has_ended(pid)


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


@pytest.fixture
def spare(write):
    """A function: runs a script in a spare worker -> its process id."""
    write(
        "import os\ndef prepare(word): pass\ndef main(): return os.getpid()\n"
    )

    def run(**limits):
        with spare_worker(SCRIPT, "word") as worker:
            return worker.run(limits=Limits(**limits))

    yield run
    worker_client.end_spares()


def has_ended(pid):
    stat, deadline = Path("/proc", str(pid), "stat"), time.monotonic() + 60
    while stat.exists() and stat.read_text().split()[2] not in "ZX":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_worker_serves_several_runs_unless_one_fails(spare):
    first = spare()
    assert [spare() for _ in range(worker_client._MOST_USES - 1)] == [first] * 7
    assert has_ended(first)
    second = spare(file=10**6)
    with pytest.raises(WorkerError, match="more than 1 bytes"):
        spare(seconds=0, file=1)  # limits are those of one run
    assert has_ended(second)
    third = spare()
    with pytest.raises(KeyboardInterrupt), spare_worker(SCRIPT, "word"):
        raise KeyboardInterrupt
    assert has_ended(third)


def test_file_of_others_shares_its_worker_with_none(spare):
    first = spare()
    with spare_worker(SCRIPT, "word", is_own=False) as worker:
        assert worker.run(limits=Limits()) != first
    assert has_ended(first)
    assert has_ended(worker.process.pid)


def test_cases_are_sent_ahead(write, monkeypatch):
    """No more than a pipe holds; they end with an export that fails."""
    write("def main(): pass\n")
    spare, packed, sent = Worker(SCRIPT), [], []
    key = (os.getpid(), run.__name__, "saved_model")
    monkeypatch.setattr(worker_client, "_spares", {key: spare})
    monkeypatch.setattr(spare, "call", lambda *x, limits: sent.append(limits))
    monkeypatch.setattr(
        worker_client, "pack", lambda case: packed.append(case) or bytes(1000)
    )
    for size in (2**16, *[9] * 99):
        worker_client.run_ahead(Path("m"), 0, "f", {"x": np.zeros(size)})
    assert len(packed) == 99  # the large one is not even looked at
    assert 9 < len(sent) < 25
    assert {limits.seconds for limits in sent} == {None}
    with pytest.raises(KeyError), worker_client.ending_ahead():
        raise KeyError
    assert has_ended(spare.process.pid)


def test_error_of_the_preparation_is_raised_by_each_run(write, spare):
    write("def prepare(x): 1 / 0\n")
    for _ in range(2):
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            spare()


def test_what_a_worker_forks_ends_with_it(write, spare):
    """As OpenVINO forks a process that reports to its makers."""
    write(
        "import os, time\n"
        "def prepare(word): pass\n"
        "def main():\n"
        "    child = os.fork()\n"
        "    if not child: time.sleep(300)\n"
        "    return child\n"
    )
    child = spare()
    worker_client.end_spares()
    assert has_ended(child)
