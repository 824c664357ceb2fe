"""`keras-posenc verify`."""

import importlib
import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


class TestVerify:
    def test_tampered_litert(self, cli, folder, tmp_path, bias):
        content = (folder / "model.tflite").read_bytes()
        assert content.count(bias.tobytes()) == 1
        other = bias + np.array([0, 2**-12], "float32")
        tampered = content.replace(bias.tobytes(), other.tobytes())
        (tmp_path / "m.tflite").write_bytes(tampered)
        arguments = ("verify", tmp_path / "m.tflite", "model.keras")
        arguments += ("--max-length", 4)
        result = cli(*arguments)
        assert result.code == 1
        first, why, *others = result.out.splitlines()
        assert (
            ": FAILED: 5 cases, largest difference 0.00024 (allowed 1e-05), "
            in first
        )
        assert "does not reproduce the model's outputs in 5 of 5" in why
        assert sum("  serving_default, ids of " in line for line in others) == 5

        result = cli(*arguments, "--tolerance", 3e-4)
        assert result.code == 0
        first, second = result.out.splitlines()
        assert ": verified: 5 cases, " in first
        assert second.startswith("no record of an export or a verification")

    def test_every_option_gets_there(self, cli, monkeypatch):
        asked = {}

        def verify(path, model, **options):
            asked.update(options)
            return SimpleNamespace(passed=True, to_dict=dict)

        _, _, *taken = inspect.signature(kp.verify_export).parameters
        module = importlib.import_module("keras_posenc.export.verify")
        monkeypatch.setattr(module, "verify_export", verify)
        line = (
            "verify model.tflite model.keras --labels a,b "
            "--max-length 9 --tolerance 0.5 --allow-op Abc "
            "--limit agreement=0.9 --limit kl=0.2 "
            "--json"
        )
        result = cli(*line.split())
        assert result.code == 0, result.err
        assert asked == {
            "runtimes": None,
            "signatures": None,
            "labels": ["a", "b"],
            "samples": None,
            "max_length": 9,
            "tolerance": 0.5,
            "limits": {"agreement": 0.9, "kl": 0.2},
            "allow_operators": ["Abc"],
        }
        assert {*asked, "verbose"} == {*taken}

    def test_torn_litert(self, cli, folder, tmp_path):
        content = (folder / "model.tflite").read_bytes()
        (tmp_path / "torn.tflite").write_bytes(content[:400])
        result = cli("verify", tmp_path / "torn.tflite", "model.keras")
        assert result.code == 1  # the artifact is wrong, not the arguments
        assert "torn.tflite" in result.err


class TestReplay:
    """`verify` without a model, and `diff`."""

    def test_needs_no_keras(self, cli, folder, tmp_path):
        model = keras.models.load_model(folder / "model.keras")
        path = tmp_path / "m.tflite"
        kp.export_litert(model, path, max_length=4, verbose=False)
        code = (
            "import sys\n"
            "for name in ('keras', 'tensorflow'): sys.modules[name] = None\n"
            "import keras_posenc as kp\n"
            f"assert kp.verify_export({str(path)!r}, verbose=0).passed\n"
            "from keras_posenc_cli import main\n"
            f"sys.exit(main(['verify', {str(path)!r}]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        first, *runtimes, recorded = done.stdout.splitlines()
        assert first == f"{path}: verified by its cases"
        assert [line.split(" 2.")[0] for line in runtimes] == [
            "  LiteRT's Interpreter",
            "  LiteRT's CompiledModel",
        ]
        assert "recorded with keras " in recorded
        result = cli("verify", path, "--json", "--runtime", "litert")
        (found,) = json.loads(result.out)["runtimes"]
        assert found["cases"] == 5
        result = cli("verify", path, "--labels", "a,b")
        assert result.code == 2
        assert "--labels needs the model" in result.err

    def test_signatures_that_were_not_verified_again(
        self, cli, folder, tmp_path
    ):
        model = keras.models.load_model(folder / "model.keras")
        path, silent = tmp_path / "m.tflite", {"max_length": 4, "verbose": 0}
        given = {"serving_default": model, "one": (model, {"ids": (1, 4)})}
        kp.export_litert(model, path, signatures=given, **silent)
        for command in ("verify", "inspect"):
            assert "not verified" not in cli(command, path).out
        kp.verify_export(path, model, **silent)
        for command in ("verify", "inspect"):
            assert cli(command, path).out.endswith("not verified: one\n")
