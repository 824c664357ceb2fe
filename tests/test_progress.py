"""What is being done, for whoever waits."""

import logging
import subprocess
import sys

import keras
import pytest

import keras_posenc as kp
from keras_posenc import progress as module
from keras_posenc.progress import counting, progress


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
                "20 of 100 files, 2,000 rows, 200 rows/s",
                "90 of 100 files, 9,000 rows, 450 rows/s",
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
        "Converting to LiteRT ...",
        "Computing reference outputs ...",
        "Waiting for the converter ...",
        "Verifying it in a fresh process ...",
    ]
    kp.export_saved_model(model, tmp_path / "b", verify=False)
    assert "Writing the SavedModel ..." in capsys.readouterr().err


def test_information_of_tensorflow_is_not_shown(caplog):
    with caplog.at_level(logging.INFO, "tensorflow"), progress(False):
        logging.getLogger("tensorflow").info("Assets written")
        logging.getLogger("tensorflow").warning("slow")
    assert caplog.messages == ["slow"]


@pytest.mark.parametrize("closed", ["", "2>&-"])
def test_standard_error_of_a_process(tmp_path, closed):
    # Without the package, which takes seconds to import.
    program = (
        "import runpy\n"
        f"progress = runpy.run_path({module.__file__!r})['progress']\n"
        "with progress(True) as step:\n"
        "    step('Writing')\n"
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
    steps = "Writing ...\nVerifying ...\n"
    assert process.stderr == (steps if not closed else "")
