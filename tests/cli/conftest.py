"""What the tests of the command share: artifacts, and ways to run it.

TensorFlow takes seconds to import, so most tests call `main` in this process;
those of the process itself run the installed script.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_posenc_cli import main
from tests.cli.words import check_words


@pytest.fixture(scope="session")
def script():
    """The installed command."""
    return Path(sys.executable).with_name("keras-posenc")


@pytest.fixture(scope="session")
def bias():
    """Numbers that occur nowhere else in a file, to be found and changed."""
    return np.array([0.1234567, -0.7654321], "float32")


@pytest.fixture(scope="session")
def folder(tmp_path_factory, bias):
    """A model, and its artifacts: a LiteRT file and two versions."""
    import keras

    import keras_posenc as kp

    folder = tmp_path_factory.mktemp("cli")
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(20, 8, mask_zero=True),
            kp.PositionalEncoding(),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, name="scores"),
        ]
    )
    model.layers[-1].bias.assign(bias)
    model.save(folder / "model.keras")
    silent = {"verify": False, "verbose": False}
    kp.export_litert(model, folder / "model.tflite", **silent)
    base = folder / "versions"
    kp.export_saved_model(model, base, version=2, **silent)
    # A number as text would put 10 before 2.
    shutil.copytree(base / "2", base / "10")
    return folder


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs the command here; gives its exit code, output and errors."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments):
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        if "--json" not in arguments:
            check_words(arguments, out + err)
        return SimpleNamespace(code=code, out=out, err=err)

    return run


@pytest.fixture
def cli(run, folder, monkeypatch):
    """The same in the folder of the model and its artifacts."""
    monkeypatch.chdir(folder)
    return run


@pytest.fixture(scope="session")
def shell():
    """Makes an environment as a shell has it: nothing said to TensorFlow."""

    def shell(**variables):
        said = (
            "KERAS_BACKEND",
            "PYTHONUNBUFFERED",
            "TF_CPP_MIN_LOG_LEVEL",
            "TF_ENABLE_ONEDNN_OPTS",
            "TF_ONEDNN_USE_SYSTEM_ALLOCATOR",
        )
        environment = {k: v for k, v in os.environ.items() if k not in said}
        return {**environment, **variables}

    return shell


@pytest.fixture(scope="session")
def run_script(script, shell):
    """Runs the installed script in a process of its own."""

    def run_script(*arguments, cwd, variables=None, **options):
        if "stdout" not in options:
            options["stdout"] = subprocess.PIPE
        return subprocess.run(
            [script, *map(str, arguments)],
            cwd=cwd,
            env=shell(**(variables or {})),
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
            **options,
        )

    return run_script


@pytest.fixture(scope="session")
def export():
    """Makes the arguments of a small export."""

    def export(kind, out, *options, model="model.keras"):
        short = ("--max-length", 4)
        return ("export", kind, model, "--out", out, *short, *options)

    return export
