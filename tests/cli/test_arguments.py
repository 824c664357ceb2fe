"""What the command refuses before it loads anything, and its help."""

import re
import subprocess
import sys

import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("export litert --help", "--quantization KIND"),
        ("--version", f"keras-posenc {kp.__version__}\n"),
    ],
)
def test_help_and_version_import_no_framework(
    option, expected, tmp_path, shell, script
):
    process = subprocess.run(
        [sys.executable, "-X", "importtime", script, *option.split()],
        cwd=tmp_path,
        env=shell(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0
    assert expected in process.stdout
    imported = set(re.findall(r"\| +([\w.]+)\n", process.stderr))
    assert "keras_posenc_cli" in imported  # the list is read rightly
    slow = {"keras", "keras_posenc", "numpy", "rich", "tensorflow"}
    assert imported.isdisjoint(slow)


LITERT = "export litert model.keras --out x"
VERIFY = "verify model.tflite model.keras"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "required: COMMAND"),
        ("publish", "invalid choice: 'publish'"),
        ("export", "required: KIND"),
        ("export litert", "required: MODEL.keras, --out"),
        ("inspect", "required: PATH"),
        *(
            (f"{LITERT} --signature {given}", f"'{part}' is not ")
            for given, part in [
                ("one=ids", "ids"),
                ("one=ids:1x", "ids:1x"),
                ("one=ids:-1x64", "ids:-1x64"),
                ("one=", "one="),
                ("=ids:1x64", "=ids:1x64"),
                ("a-b", "a-b"),
            ]
        ),
        (f"{LITERT} --signature a --signature a=ids:1x4", "is given twice"),
        (f"{LITERT} --quantization int5", "'int5' is none of float16, int8, "),
        (f"{LITERT} --quantization no.json", "auto, and no .json file"),
        (f"{LITERT} --keep 0", "0 is not above 0 and at most 1"),
        (
            f"{LITERT} --labels yes,yes",
            "a label of 'yes,yes' is empty or given twice",
        ),
        (f"{LITERT} --limit foo=20", "with a NAME of sqnr, agreement, "),
        (f"{VERIFY} --runtime onnx", "--runtime: not allowed with argument M"),
        ("export saved-model m --out x --version 0", "0 is not above 0"),
        ("bench model.tflite --lengths 16,0", "0 is not above 0"),
        ("bench model.tflite --lengths 16,", "invalid int value: '16,'"),
        (
            "export saved-model --batching model.keras --out x",
            "--batching: 'model.keras' is not NAME=N. Without NAME=N the "
            "option must come last, after the model",
        ),
        (
            "export saved-model model.keras --out x "
            "--batching max_batch_size=16,max_batch_size=32",
            "--batching: 'max_batch_size' is given twice",
        ),
        (f"{VERIFY} --max-length 1.5", "--max-length: invalid int value"),
        (f"{VERIFY} --tolerance small", "--tolerance: invalid float value"),
        # These would fail every file, or pass every file.
        *(
            (f"{VERIFY} --tolerance {x}", f"{x} is not a finite number of at")
            for x in ("-1", "nan", "inf")
        ),
        ("inspect m.tflite --limit kl=1", "unrecognized arguments: --limit"),
        ("export onnx m.keras --out x --keep 1", "arguments: --keep 1"),
    ],
)
def test_arguments_that_do_not_parse(run, arguments, reason):
    result = run(*arguments.split())
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("usage: keras-posenc")
    assert reason in result.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("export litert missing.keras --out x.tflite", "does not exist"),
        (
            "export litert versions --out x.tflite",
            "'versions' must be a .keras file, or the folder of a",
        ),
        ("inspect missing.keras", "'missing.keras' does not exist"),
        (LITERT, "must end in '.tflite'. Received: 'x'"),
        (
            f"{LITERT}.tflite --labels a,b --task text_embedder",
            "--labels name the scores of --task text_classifier",
        ),
        (
            f"{VERIFY} --samples none.npz",
            "--samples: 'none.npz' cannot be read: No such file",
        ),
        (f"{VERIFY} --import none", "--import none: No module named 'none'"),
        (f"{LITERT}.tflite --limit kl=1", "--limit is for files with --quant"),
        (
            f"{LITERT}.tflite --quantization int8 --tolerance 1",
            "--tolerance for files without",
        ),
        (
            f"{LITERT}.tflite --quantization int8-static",
            "needs --samples FILE.npz to measure the ranges of numbers",
        ),
        (
            f"{LITERT}.tflite --samples samples.npz --no-verify",
            "--samples cannot be used with --no-verify",
        ),
        (
            "export saved-model model.keras --out model.tflite",
            "--out must be a folder of versions, and 'model.tflite' is a file",
        ),
        (
            "export saved-model model.keras --out versions --version 10",
            "Version 10 exists in 'versions'",
        ),
    ],
)
def test_arguments_refused_before_anything_is_loaded(
    cli, folder, arguments, reason
):
    np.savez(folder / "samples.npz")
    result = cli(*arguments.split())
    assert result.code == 2
    (line,) = result.err.splitlines()  # no "Loading"
    assert line.startswith("keras-posenc: ")
    assert reason in line
    assert not (folder / "x").exists()
