"""`keras-posenc verify`."""

import inspect
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


class TestVerify:
    def test_right_litert(self, cli):
        result = cli("verify", "model.keras", "model.tflite", "--json")
        assert result.code == 0
        asked = [case["inputs"] for case in json.loads(result.out)["cases"]]
        assert "ids of shape (3, 512)" in asked  # the default length
        assert result.err.splitlines() == [
            "Loading model.keras ...",
            "Reading model.tflite ...",
            "Computing reference outputs ...",
            "Verifying it in a fresh process ...",
        ]

    def test_tampered_litert(self, cli, folder, tmp_path, bias):
        content = (folder / "model.tflite").read_bytes()
        assert content.count(bias.tobytes()) == 1
        other = bias + np.array([0, 2**-12], "float32")
        tampered = content.replace(bias.tobytes(), other.tobytes())
        (tmp_path / "m.tflite").write_bytes(tampered)
        arguments = ("verify", "model.keras", tmp_path / "m.tflite")
        arguments += ("--max-length", 4)
        result = cli(*arguments)
        assert result.code == 1
        first, why, *others = result.out.splitlines()
        assert (
            ": FAILED: 7 cases, largest difference 0.00024 (allowed 1e-05), "
            in first
        )
        assert "does not reproduce the model's outputs in 7 of 7" in why
        assert sum("  serving_default, ids of " in line for line in others) == 7

        result = cli(*arguments, "--tolerance", 3e-4)
        assert result.code == 0
        first, second = result.out.splitlines()
        assert ": verified: 7 cases, " in first
        assert second.startswith("no record of an export or a verification")

    def test_every_option_gets_there(self, cli, monkeypatch):
        asked = {}

        def verify(model, path, **options):
            asked.update(options)
            return SimpleNamespace(passed=True, to_dict=dict)

        _, _, *taken = inspect.signature(kp.verify).parameters
        monkeypatch.setattr(kp, "verify", verify, raising=False)
        line = (
            "verify model.keras model.tflite --labels a,b "
            "--max-length 9 --tolerance 0.5 --agreement 0.9 --allow-op Abc "
            "--max-kl 0.2 --max-perplexity 1.2 "
            "--quantization recipe.json --json"
        )
        result = cli(*line.split())
        assert result.code == 0, result.err
        assert asked == {
            "signatures": None,
            "labels": ["a", "b"],
            "quantization": "recipe.json",
            "samples": None,
            "max_length": 9,
            "tolerance": 0.5,
            "agreement": 0.9,
            "max_kl": 0.2,
            "max_perplexity_ratio": 1.2,
            "allow_operators": ["Abc"],
        }
        assert {*asked, "verbose"} == {*taken}

    def test_highest_version(self, cli, folder, tmp_path):
        base = shutil.copytree(folder / "versions", tmp_path / "versions")
        (base / "2" / "saved_model.pb").write_bytes(b"")
        arguments = ("verify", "model.keras", "--max-length", 4)
        result = cli(*arguments, base, "--details")
        assert result.code == 0, result.out
        assert result.out.startswith(f"{base / '10'}: verified")
        assert "  serving_default, ids of shape (1, 4): " in result.out

    @pytest.mark.parametrize("kept", [400, -4])
    def test_torn_litert(self, cli, folder, tmp_path, kept):
        content = (folder / "model.tflite").read_bytes()
        (tmp_path / "torn.tflite").write_bytes(content[:kept])
        result = cli("verify", "model.keras", tmp_path / "torn.tflite")
        assert result.code == 1  # the artifact is wrong, not the arguments
        assert "torn.tflite" in result.err

    def test_torn_saved_model(self, cli, folder, tmp_path):
        content = (folder / "versions/2/saved_model.pb").read_bytes()
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "saved_model.pb").write_bytes(content[:-9])
        result = cli("verify", "model.keras", tmp_path)
        assert result.code == 1
        assert str(tmp_path / "1") in result.err

    @pytest.mark.parametrize(
        ("artifact", "reason"),
        [
            ("missing.tflite", "'missing.tflite' does not exist"),
            ("nothing", "'nothing' is no SavedModel"),
            ("model.keras", "'model.keras' is neither a LiteRT"),
        ],
    )
    def test_no_artifact(self, cli, folder, artifact, reason):
        (folder / "nothing").mkdir(exist_ok=True)
        result = cli("verify", "model.keras", artifact)
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]
