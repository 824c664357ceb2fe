"""What is being done, for whoever waits."""

import logging
import os
import subprocess
import sys
import threading

import keras
import pytest

import keras_posenc as kp
from keras_posenc import progress as module
from keras_posenc.progress import counting, progress

# What TensorFlow 2.21, LiteRT and MLIR wrote on exports, shortened.
NATIVE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to
I0000 00:00:1795344504.541321    4485 cpu_feature_guard.cc:227] This binary is
To enable the following instructions: AVX2 FMA, in other operations, rebuild
W0000 00:00:1795344510.418829    4485 tf_tfl_flatbuffer_helpers.cc:364] Ignored
2026-11-22 10:48:34.123456: I tensorflow/core/util/port.cc:153] oneDNN custom
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
INFO:tensorflow:Assets written to: /tmp/a/assets
fully_quantize: 0, inference_type: 6, input_inference_type: FLOAT32
"""
MLIR = """\
loc(callsite(fused["Atan:", "Atan"])): error: 'tf.Atan' op is neither a custom
error: failed while converting: 'main':
Some ops are not supported by the native TFLite runtime
\ttf.Atan(tensor<?x4xf32>) -> (tensor<?x4xf32>) : {device = ""}

"""


def write(text):
    os.write(2, text.encode())


@pytest.mark.parametrize("verbose", [False, True])
def test_steps_are_lines_on_standard_error(capsys, monkeypatch, verbose):
    with progress(verbose) as step:
        step("Writing")
        step("Verifying")
    captured = capsys.readouterr()
    assert captured.err == "Writing ...\nVerifying ...\n" * verbose
    assert captured.out == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    with progress(verbose) as step:
        step("Verifying")
    captured = capsys.readouterr()
    assert ("\x1b[" in captured.err) == verbose
    assert captured.out == ""


def test_rows_are_counted_in_a_line_now_and_then(capsys, monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(module.time, "monotonic", lambda: clock["now"])
    for verbose, lines in [
        (False, []),
        (
            True,
            [
                "20%: 2,000 rows, 200 rows/s, 0:00:40 left",
                "90%: 9,000 rows, 450 rows/s, 0:00:02 left",
                "loading the model",
            ],
        ),
    ]:
        clock["now"] = 0.0
        with counting(verbose, 100) as show:
            for clock["now"], rows, done in [
                *((9.0, 1000, 10), (10.0, 2000, 20), (19.0, 5000, 50)),
                (20.0, 9000, 90),
                (30.0, 0, 0),
            ]:
                show(rows, done)
        assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.tensorflow
def test_exports_show_their_steps(capsys, tmp_path):
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Dense(2)(x))
    kp.export_litert(model, tmp_path / "a.tflite")
    lines = capsys.readouterr().err.splitlines()
    steps = [line for line in lines if line.endswith(" ...")]
    assert steps == [
        "Computing reference outputs ...",
        "Converting to LiteRT ...",
        "Verifying it in a fresh process ...",
    ]
    kp.export_saved_model(model, tmp_path / "b", verify=False)
    assert "Writing the SavedModel ..." in capsys.readouterr().err


@pytest.mark.parametrize("verbose", [False, True])
def test_logs_of_native_code_are_not_shown(capfd, verbose):
    with progress(verbose) as step:
        write(NATIVE)
        write("what another thread has to say\n")
        step("Writing")
        write(MLIR + "and another one: I0000 of a kind\n")
    written = capfd.readouterr().err.splitlines()
    assert written == ["Writing ..."] * verbose + [
        "what another thread has to say",
        "and another one: I0000 of a kind",
    ]
    write("as it was")
    assert capfd.readouterr().err == "as it was"


def test_logs_are_shown_on_request(capfd, caplog):
    with caplog.at_level(logging.INFO, "tensorflow"):
        for verbose in (False, 2):
            with progress(verbose):
                write(NATIVE)
                logging.getLogger("tensorflow").info("said at %s", verbose)
    assert capfd.readouterr().err.startswith(NATIVE)
    assert caplog.messages == ["said at 2"]


def test_threads_share_standard_error(capfd):
    descriptor = os.fstat(2)
    begun, may_end = threading.Event(), threading.Event()

    def work():
        with progress(False):
            begun.set()
            may_end.wait(10)
            write(NATIVE)

    open_before = len(os.listdir("/dev/fd"))
    thread = threading.Thread(target=work)
    with progress(False):
        thread.start()
        begun.wait(10)
    write(NATIVE)  # the other is not done
    may_end.set()
    thread.join(10)
    assert capfd.readouterr().err == ""
    assert os.path.samestat(os.fstat(2), descriptor)
    assert len(os.listdir("/dev/fd")) == open_before


@pytest.mark.parametrize("closed", ["", "2>&-"])
def test_standard_error_of_a_process(tmp_path, closed):
    # Where Python's own standard error is the descriptor that is redirected,
    # or there is none. Without the package, which takes seconds to import.
    program = (
        "import os, runpy, sys\n"
        f"progress = runpy.run_path({module.__file__!r})['progress']\n"
        "with progress(True) as step:\n"
        "    step('Writing')\n"
        "    if sys.stderr: os.write(2, b'INFO:absl:of native code\\n')\n"
        "    if sys.stderr: print('of Python', file=sys.stderr)\n"
        "    step('Verifying')\n"
        "print('done')"
    )
    command = f'exec "$0" -c "$1" {closed}'
    process = subprocess.run(
        ["sh", "-c", command, sys.executable, program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout == "done\n", process.stderr
    steps = "Writing ...\nVerifying ...\nof Python\n"
    assert process.stderr == (steps if not closed else "")
