"""What the command refuses before it loads anything, and its help."""

import re
import subprocess
import sys

import pytest

import keras_posenc as kp
from keras_posenc_cli.parsing import make_parser

pytestmark = pytest.mark.tensorflow


class TestBeforeTensorFlow:
    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            ("--help", "exit codes: 0 done; 1 the exported file is wrong"),
            ("export litert --help", "--quantization KIND"),
            ("--version", f"keras-posenc {kp.__version__}\n"),
        ],
    )
    def test_help_and_version_import_no_framework(
        self, option, expected, tmp_path, shell, script
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
        slow = {"keras", "keras_posenc", "numpy", "tensorflow"}
        slow |= {"rich", "shtab"}
        assert imported.isdisjoint(slow)

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ("", "required: COMMAND"),
            ("publish", "invalid choice: 'publish'"),
            ("export", "required: KIND"),
            ("export litert", "required: MODEL.keras, --out"),
            ("export litert model.keras", "required: --out"),
            ("verify", "required: EXPORTED_MODEL"),
            ("inspect", "required: PATH"),
            (
                "export keras model.keras --out x",
                "invalid choice: 'keras'",
            ),
            ("export tflite m.keras --out x", "Did you mean litert?"),
            ("export savedmodel m.keras", "Did you mean saved-model?"),
            ("tflite m.keras", "'completion')\n"),
            *(
                (
                    "export litert model.keras --out x --signature "
                    + signature,
                    f"--signature: '{part}' is not ",
                )
                for signature, part in [
                    ("one=ids", "ids"),
                    ("one=ids:", "ids:"),
                    ("one=ids:1x", "ids:1x"),
                    ("one=ids:1,64", "64"),
                    ("one=ids:-1x64", "ids:-1x64"),
                    ("one=", "one="),
                    ("=ids:1x64", "=ids:1x64"),
                ]
            ),
            *(
                (f"verify m.onnx model.keras --input {given}", reason)
                for given, reason in [
                    ("ids", "--input: 'ids' is not NAME:int32:?x?"),
                    ("ids:int32", "'ids:int32' is not NAME:"),
                    ("ids:int32:", "'ids:int32:' is not NAME:"),
                    ("ids:long:?", "'long' of 'ids:long:?' is not a dtype"),
                    ("a:bool:? --input a:bool:?", "'a' is given twice"),
                ]
            ),
            (
                "export onnx model.keras --out x --signature a "
                "--signature b --signature a=ids:1x4",
                "--signature: 'a' is given twice",
            ),
            ("bench", "required: FILE"),
            ("bench model.tflite --threads 0", "0 is not above 0"),
            ("bench model.tflite --lengths 16,0", "0 is not above 0"),
            (
                "bench model.tflite --lengths 16,",
                "--lengths: invalid int value: '16,'",
            ),
            (
                "export litert model.keras --out x --quantization int5",
                "invalid choice: 'int5'",
            ),
            (
                "export saved-model model.keras --out x --version one",
                "--version: invalid int value: 'one'",
            ),
            *(
                (
                    f"export saved-model {option} model.keras --out x",
                    f"{option}: 'model.keras' is not NAME=N. Without NAME=N "
                    "the option must come last, after the model",
                )
                for option in ("--batching",)
            ),
            (
                "export saved-model model.keras --out x "
                "--batching max_batch_size=16,max_batch_size=32",
                "--batching: 'max_batch_size' is given twice",
            ),
            (
                "verify model.tflite model.keras --max-length 1.5",
                "--max-length: invalid int value: '1.5'",
            ),
            (
                "verify model.tflite model.keras --tolerance small",
                "--tolerance: invalid float value: 'small'",
            ),
            (
                "verify model.tflite model.keras --max-length 0",
                "--max-length: 0 is not above 0",
            ),
            # One that is negative or NaN fails every file, and an infinite one
            # passes every file, even one that does not run.
            *(
                (
                    f"verify model.tflite model.keras --tolerance {value}",
                    f"--tolerance: {value} is not a finite number of at least",
                )
                for value in ("-1", "nan", "inf")
            ),
        ],
    )
    def test_arguments_that_do_not_parse(self, run, arguments, reason):
        result = run(*arguments.split())
        assert result.code == 2
        assert result.err.startswith("usage: keras-posenc")
        assert reason in result.err
        assert result.out == ""

    @pytest.mark.parametrize(
        ("command", "option"),
        [
            ("export litert m.keras --out x.tflite", "--version 3"),
            ("export litert m.keras --out x.tflite", "--warmup"),
            ("export litert m.keras --out x.tflite", "--batching"),
            ("export onnx m.keras --out x.onnx", "--keep 1"),
            ("export saved-model m.keras --out x", "--limit kl=1"),
            ("export saved-model m.keras --out x", "--task text_classifier"),
            ("export onnx m.keras --out x.onnx", "--allow-op Abc"),
            ("export onnx m.keras --out x.onnx", "--labels a,b"),
            ("export saved-model m.keras --out x", "--quantization int8"),
            ("inspect m.tflite", "--tolerance 1"),
        ],
    )
    def test_options_of_another_command(self, run, command, option):
        result = run(*command.split(), *option.split())
        assert result.code == 2
        name = re.match(r"inspect|export \S+", command)[0]
        assert result.err.startswith(f"usage: keras-posenc {name} ")
        assert result.err.endswith(
            f"keras-posenc {name}: error: unrecognized arguments: {option}\n"
        )

    @pytest.mark.parametrize(
        "command",
        [
            "export litert a.keras --out b.tflite",
            "export saved-model a.keras --out b",
            "verify b a.keras",
            "rollback a 1",
        ],
    )
    def test_allowed_operators(self, command):
        line = f"{command} --allow-op One --allow-op Two"
        options = make_parser().parse_args(line.split())
        assert options.allow_operators == ["One", "Two"]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (
                "export litert missing.keras --out x.tflite",
                "'missing.keras' does not exist",
            ),
            (
                "export litert versions --out x.tflite",
                "'versions' must be a .keras file, or the folder of a",
            ),
            (
                "export litert model.tflite --out x.tflite",
                "'model.tflite' must be a .keras file",
            ),
            ("verify model.tflite missing.keras", "does not exist"),
            ("inspect missing.keras", "'missing.keras' does not exist"),
            (
                "export litert model.keras --out x",
                "must end in '.tflite'. Received: 'x'",
            ),
            (
                "export onnx model.keras --out x.tflite",
                "must end in '.onnx'. Received: 'x.tflite'",
            ),
            *(
                (
                    "export litert model.keras --out x.tflite --labels "
                    f"a,b{task}",
                    "--labels name the scores of --task text_classifier",
                )
                for task in ("", " --task text_embedder")
            ),
            *(
                (
                    f"{command} --samples none.npz",
                    "--samples: 'none.npz' cannot be read: No such file",
                )
                for command in (
                    "verify model.tflite model.keras",
                    "export litert model.keras --out x.tflite",
                )
            ),
            (
                "export saved-model model.keras --out model.tflite",
                "--out must be a folder of versions, and 'model.tflite' is a "
                "file",
            ),
            (
                "export saved-model model.keras --out versions --version 10",
                "Version 10 exists in 'versions'",
            ),
            (
                "export saved-model model.keras --out x --version 0",
                "--version must be an integer from 1",
            ),
        ],
    )
    def test_arguments_refused_before_anything_is_loaded(
        self, cli, folder, arguments, reason
    ):
        result = cli(*arguments.split())
        assert result.code == 2
        (line,) = result.err.splitlines()  # no "Loading"
        assert line.startswith("keras-posenc: ")
        assert reason in line
        assert not (folder / "x").exists()
