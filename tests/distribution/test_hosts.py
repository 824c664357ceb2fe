"""Processes that train together on JAX, on this machine's processor.

What each does is in worker.py, and in examples/train_hosts.py. Coordinators
listen at 127.0.0.1 alone.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

WORKER = Path(__file__).parent / "worker.py"
ROOT = WORKER.parents[2]
EXAMPLE = ROOT / "examples" / "train_hosts.py"
# Sums of float32 in another order: gradients are below 1 here, and the longest
# sums have some hundred terms.
NEAR = 1e-6


def needs(*names):
    """Skips where a package is missing, and says which."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    reason = f"not installed: {', '.join(missing)}"
    return pytest.mark.skipif(bool(missing), reason=reason)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def start(tmp_path_factory):
    """Starts some processes together; whatever is left of them is ended."""
    started = []
    compiled = tmp_path_factory.getbasetemp() / "compiled"
    # Seconds of each process, which Keras takes for it wherever it is found.
    without = tmp_path_factory.mktemp("without")
    (without / "tensorflow.py").write_text("raise ImportError('not here')")

    def start(arguments, *, processes=1, devices=2, backend="jax"):
        path = [ROOT] if backend != "jax" else [ROOT, without]
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "JAX_PLATFORMS": "cpu",
            # Compiles faster, to the same numbers but for their rounding.
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
            # What one process has compiled, the next ones take.
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        address = f"127.0.0.1:{free_port()}"
        those = []
        for process in range(processes):
            if processes > 1:
                environment |= {
                    "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
                    "KERAS_DISTRIBUTION_NUM_PROCESSES": str(processes),
                    "KERAS_DISTRIBUTION_PROCESS_ID": str(process),
                    "JAX_COORDINATOR_BIND_ADDRESS": address,
                }
            those.append(
                subprocess.Popen(
                    [sys.executable, *map(str, arguments)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        started.extend(those)
        return those

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """Has processes do a case of worker.py; returns what each printed last."""

    def run(case, options, **kwargs):
        arguments = (WORKER, case, json.dumps(options))
        return [
            json.loads(printed.splitlines()[-1])
            for printed in finished(start(arguments, **kwargs))
        ]

    return run


def finished(processes):
    """What processes printed, of which none failed."""
    outputs = [process.communicate(timeout=500) for process in processes]
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-5000:]
    return [printed for printed, _ in outputs]


# ---- Steps


def check(reports, count):
    for report in reports:
        assert len(report) == count
        for name, found in report.items():
            assert found["loss"] <= NEAR, name
            assert found["weights"] <= NEAR, name
            assert (found["sharded"] > 0) == (not name.endswith(" data")), name
            assert found["astray"] == [], name


@needs("jax")
def test_a_step_on_four_devices_is_that_on_one(run):
    options = {"kinds": ["dropout"], "distributions": [(2, 2)]}
    check(run("compare", options, devices=4), 1)


@pytest.mark.slow
@needs("jax")
def test_a_step_of_two_processes_is_that_of_one(run):
    """With the model axis within processes, and across."""
    options = {
        "kinds": ["encoder", "transformer"],
        "distributions": ["data", (2, 2), (1, 4)],
    }
    check(run("compare", options, processes=2), 6)


# ---- Files


@pytest.mark.slow
@needs("jax")
@pytest.mark.parametrize("mesh", [(2, 2), (1, 4)])
def test_a_gathered_file_is_the_model(run, mesh, tmp_path):
    path = tmp_path / "model.keras"
    run("save", {"path": str(path), "mesh": mesh}, processes=2)
    assert {file.name for file in tmp_path.iterdir()} == {
        "model.keras",
        "model.npz",
    }
    (report,) = run("load", {"path": str(path)}, devices=1)
    assert report["difference"] == 0
    assert report["iterations"] == 1
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("not installed: tensorflow, which exports")
    options = {"path": str(path), "export": str(tmp_path / "exported")}
    (report,) = run("load", options, backend="tensorflow")
    assert report["difference"] == 0
    assert report["passed"]


@pytest.mark.slow
@needs("jax")
def test_all_processes_hear_of_a_failure(run, tmp_path):
    path = tmp_path / "model.keras"
    options = {"path": str(path), "mesh": (2, 2), "fail": True}
    first, second = run("save", options, processes=2)
    assert (first, second) == ("ExportError", "RuntimeError")
    assert [*tmp_path.iterdir()] == []


# ---- Resuming

TRAINING = ["--epochs", "4", "--rows", "256", "--model-parallel", "2"]


def weights_of(path):
    """Those in a file, of the optimizer too."""
    with zipfile.ZipFile(path) as archive:
        found = {}
        with archive.open("model.weights.h5") as file, h5py.File(file) as h5:
            h5.visititems(
                lambda name, item: (
                    found.update({name: item[()]})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
    return found


@pytest.mark.slow
@needs("jax", "orbax")
def test_restores_what_it_can_go_on_with(run, tmp_path):
    (report,) = run("restore", {"folder": str(tmp_path)}, devices=1)
    assert report.pop("epochs") == 3
    for name, text in {
        "width": "dense/kernel: (3, 4) float32",
        "optimizer": "Missing there: ['optimizer_variables/loss_scale",
        "torn": "torn/2' is not a checkpoint of `OrbaxCheckpoint`, or is",
    }.items():
        assert text in report.pop(name), name
    assert not report


@pytest.mark.slow
@needs("jax", "orbax")
@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_killed_goes_on_as_if_nothing_had_been(
    start, processes, tmp_path
):
    def train(folder, processes=processes, devices=2):
        arguments = [EXAMPLE, "--folder", folder, *TRAINING]
        return start(arguments, processes=processes, devices=devices)

    finished(train(tmp_path / "whole"))
    killed = train(tmp_path / "killed")
    checkpoints = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 300
    while not (checkpoints / "0").exists():
        assert time.monotonic() < deadline
        assert killed[0].poll() is None, killed[0].communicate()
        time.sleep(0.05)
    killed[-1].send_signal(signal.SIGKILL)
    for process in killed:  # the others end by themselves
        process.communicate(timeout=300)
        assert process.returncode != 0
    assert not (tmp_path / "killed" / "model.keras").exists()
    left = checkpoints / "9.orbax-checkpoint-tmp"
    left.mkdir()

    (printed, *_) = finished(train(tmp_path / "killed"))
    assert "Epoch 1/" not in printed
    assert "Epoch 4/4" in printed
    assert not left.exists()
    model = tmp_path / "killed" / "model.keras"
    whole = weights_of(tmp_path / "whole" / "model.keras")
    assert len(whole) > 20

    def check():
        found = weights_of(model)
        assert whole.keys() == found.keys()
        for name, values in whole.items():
            np.testing.assert_array_equal(values, found[name], err_msg=name)

    check()
    # Nothing is left to do, and other devices do it.
    model.unlink()
    finished(train(tmp_path / "killed", processes=1, devices=4))
    check()
