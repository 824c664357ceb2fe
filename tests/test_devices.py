"""The encodings on every device that TensorFlow lists.

This file is also the program that does the work: a second virtual CPU can be
made only before TensorFlow first looks at its devices.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
SEQ, DIM = 130, 63
STARTS = np.array([5000, -70], "int32")
REALS = np.random.default_rng(0).uniform(-5e3, 5e3, (2, SEQ)).astype("float32")
IDS = np.repeat(np.array([[3, 3, 5, 5, 1], [2, 2, 2, 4, 4]], "int32"), 26, 1)
MASK = np.random.default_rng(1).random((2, SEQ)) < 0.7
DTYPES = {
    "float32": "float32",
    "mixed_float16": "float16",
    "mixed_bfloat16": "bfloat16",
    "float64": "float64",
}


def main():
    """Prints what every case gives on every device, as one line of JSON."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    report = {
        device.name: run_on(device.name)
        for device in tf.config.list_logical_devices()
        if device.device_type in ("CPU", "GPU")
    }
    print(json.dumps(report))


def run_on(device):
    import tensorflow as tf

    results = {}
    with tf.device(device):
        for name, case in cases().items():
            outputs = case()
            results[name] = {
                "device": outputs.device,
                "values": np.asarray(outputs).astype("float64").tolist(),
            }
    return results


def cases():
    """Each case by its name: something to call on a device."""
    import tensorflow as tf

    import keras_posenc as kp

    inputs = np.zeros((2, SEQ, DIM), "float32")

    def layer(call, graph=False, **config):
        def run():
            encode = kp.PositionalEncoding(merge_mode=None, **config)
            if graph:
                encode = tf.function(encode)
            return encode(tf.constant(inputs), **call)

        return run

    return {
        "table": lambda: kp.positional_encoding(SEQ, DIM),
        "start": layer({"start_index": STARTS}),
        "graph": layer({"start_index": STARTS}, graph=True),
        "reals": layer({"positions": REALS}),
        "segments": layer({"segment_ids": IDS}),
        "skip_masked": layer({"mask": MASK}, skip_masked=True),
        **{policy: layer({}, dtype=policy) for policy in DTYPES},
    }


def expected():
    """Positions of each case, whose encodings the oracle knows."""
    from tests import reference

    rows = np.broadcast_to(np.arange(SEQ), (2, SEQ))
    started = STARTS[:, np.newaxis] + rows
    return {
        "table": rows[:1],
        "start": started,
        "graph": started,
        "reals": REALS,
        "segments": reference.positions_from_segments(IDS),
        "skip_masked": reference.positions_from_mask(MASK),
        **dict.fromkeys(DTYPES, rows),
    }


@pytest.fixture(scope="module")
def report():
    pytest.importorskip("tensorflow")
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        ),
    }
    process = subprocess.run(
        [sys.executable, __file__],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def check(results, device, near, encoding_bound):
    from tests import reference

    for name, positions in expected().items():
        result = results[name]
        assert result["device"].endswith(device), name
        want = reference.positional_encoding(positions, DIM)
        bound = encoding_bound(positions, want, DTYPES.get(name, "float32"))
        near(result["values"], want, bound)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("index", [0, 1])
def test_cpu(index, report, near, encoding_bound):
    device = f"/device:CPU:{index}"
    check(report[device], device, near, encoding_bound)


@pytest.mark.tensorflow
@pytest.mark.gpu
def test_every_gpu(request, near, encoding_bound):
    tf = pytest.importorskip("tensorflow")
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow lists no GPU on this machine")
    report = request.getfixturevalue("report")
    for device in (device for device in report if "GPU" in device):
        check(report[device], device, near, encoding_bound)


if __name__ == "__main__":
    main()
