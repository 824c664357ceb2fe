"""What is being done, for whoever waits."""

import keras
import pytest

import keras_posenc as kp
from keras_posenc.progress import progress


def test_steps_are_lines_on_standard_error(capsys):
    with progress(verbose=True) as step:
        step("Writing")
        step("Verifying")
    captured = capsys.readouterr()
    assert captured.err == "Writing ...\nVerifying ...\n"
    assert captured.out == ""


def test_nothing_is_shown_unless_wanted(capsys):
    with progress(verbose=False) as step:
        step("Writing")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_terminal_shows_the_last_step_alone(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    with progress(verbose=True) as step:
        step("Writing")
        step("Verifying")
    captured = capsys.readouterr()
    assert "Verifying ..." in captured.err
    assert "\x1b[" in captured.err
    assert captured.out == ""


@pytest.mark.tensorflow
def test_exports_show_their_steps(capsys, tmp_path):
    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Dense(2)(x))
    kp.export_litert(model, tmp_path / "a.tflite")
    lines = capsys.readouterr().err.splitlines()
    steps = [line for line in lines if line.endswith(" ...")]
    assert steps == [
        "Asking the model itself ...",
        "Converting to LiteRT ...",
        "Verifying it in a fresh process ...",
    ]
    kp.export_saved_model(model, tmp_path / "b", verify=False)
    assert "Writing the SavedModel ..." in capsys.readouterr().err
