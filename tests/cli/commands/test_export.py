"""`keras-posenc export`."""

import inspect
import json
from types import SimpleNamespace
from unittest.mock import Mock

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


class TestExport:
    def test_litert(self, cli, folder, tmp_path, export):
        out = tmp_path / "new" / "m.tflite"
        result = cli(*export("litert", out))
        assert result.code == 0
        assert sorted(path.name for path in out.parent.iterdir()) == [
            "m.tflite",
            "m.tflite.cases.npz",
        ]
        assert result.out.startswith(
            f"{out}: verified: 5 cases, largest difference "
        )
        assert len(result.out.splitlines()) == 1
        assert result.err.splitlines() == [
            "Loading model.keras ...",
            "Converting to LiteRT ...",
            "Computing reference outputs ...",
            "Waiting for the converter ...",
            "Verifying it in a fresh process ...",
        ]
        runtime = pytest.importorskip("ai_edge_litert.interpreter")
        runner = runtime.Interpreter(str(out)).get_signature_runner()
        ids = np.array([[3, 1, 4, 0]], "int32")
        model = keras.saving.load_model(folder / "model.keras")
        wanted = keras.ops.convert_to_numpy(model(ids))
        np.testing.assert_allclose(runner(ids=ids)["scores"], wanted, atol=1e-6)

    # Models that do not know their inputs have signatures of LiteRT files.
    def test_signatures(self, cli, tmp_path, export):
        out = tmp_path / "versions"
        given = ["any", "short=ids:1x3", "three=ids:?x3"]
        options = [part for each in given for part in ("--signature", each)]
        result = cli(*export("saved-model", out, *options, "--no-verify"))
        assert result.code == 0, result.err
        found = kp.inspect_export(out).signatures
        assert {
            name: str(sides["inputs"]["ids"]) for name, sides in found.items()
        } == {
            "any": "int32 (None, None)",
            "short": "int32 (1, 3)",
            "three": "int32 (None, 3)",
        }
        verify = ("verify", out, "model.keras", "--max-length", 4)
        result = cli(*verify)
        assert result.code == 2
        assert "Give those of the export" in result.err
        result = cli(*verify, *options, "--details")
        assert result.code == 0, result.err
        assert "  short, ids of shape (1, 3): " in result.out

    def test_what_a_server_reads(self, cli, tmp_path, export):
        pytest.importorskip("tensorflow_serving")
        arguments = ("--labels", "yes,no", "--warmup", "--batching")
        result = cli(*export("saved-model", tmp_path / "m", *arguments))
        assert result.code == 0, result.err
        path = tmp_path / "m" / "1"
        assert (path / "assets.extra" / "tf_serving_warmup_requests").exists()
        text = (path / "batching_params.pbtxt").read_text()
        assert "max_batch_size { value: 32 }" in text
        labels = tmp_path / "labels.txt"
        labels.write_bytes(b"\xef\xbb\xbfyes\r\nno, never\r\n")
        sizes = "allowed_batch_sizes=2:6,batch_timeout_micros=50"
        result = cli(
            *export("saved-model", tmp_path / "m", "--no-verify"),
            *("--labels", labels, "--batching", sizes),
        )
        assert result.code == 0, result.err
        path = tmp_path / "m" / "2"
        text = (path / "batching_params.pbtxt").read_text()
        assert "max_batch_size { value: 6 }" in text
        assert "allowed_batch_sizes: 2\n" in text
        assert "batch_timeout_micros { value: 50 }" in text
        card = (path / "MODEL_CARD.md").read_text()
        assert "in the order of the scores: " in card
        result = cli("verify", path, "model.keras", "--labels", labels)
        assert result.code == 0, result.err
        assert "not verified" not in result.out

    def test_quantized_file_and_its_times(self, cli, tmp_path, export):
        np.savez(tmp_path / "some.npz", ids=np.arange(12).reshape(2, 6))
        path = tmp_path / "m.tflite"
        options = ("--quantization", "int8", "--max-length", 4, "--json")
        result = cli(
            *export("litert", path, *options),
            "--samples",
            tmp_path / "some.npz",
        )
        assert result.code == 0, result.err
        report = json.loads(result.out)
        assert report["quantization"] == "int8"
        assert any(case["is_sample"] for case in report["cases"])
        lengths = ("--lengths", "3,4", 5)
        result = cli("bench", path, *lengths, "--json")
        assert result.code == 0, result.err
        assert [
            each["shapes"] for each in json.loads(result.out)["timings"]
        ] == [{"ids": [1, length]} for length in (3, 4, 5)]

    def test_the_recipe_that_auto_found(self, cli, tmp_path, monkeypatch):
        np.savez(tmp_path / "some.npz", ids=np.arange(12).reshape(2, 6))
        out, recipe = tmp_path / "m.tflite", [{"regex": ".*", "bits": 8}]
        found = Mock(path=out, report=None, quantization=recipe)
        monkeypatch.setattr(kp, "quantize", lambda *_, **__: found)
        line = ("export", "litert", "model.keras", "--out", out)
        line += ("--quantization", "auto", "--samples", tmp_path / "some.npz")
        assert json.dumps(recipe) in cli(*line).out
        assert json.loads(cli(*line, "--json").out)["recipe"] == recipe

    @pytest.mark.parametrize(
        ("kind", "name", "line", "own"),
        [
            (
                "saved-model",
                "m",
                "--version 4 --keep 2 --labels a,b --tolerance 0.5 --warmup "
                "--batching",
                {
                    "version": 4,
                    "keep": 2,
                    "labels": ["a", "b"],
                    "tolerance": 0.5,
                    "warmup": True,
                    "batching": True,
                    "allow_operators": ["Abc"],
                },
            ),
            (
                "litert",
                "m.tflite",
                "--task text_classifier --labels a,b "
                "--quantization int8 --limit agreement=0.9",
                {
                    "task": "text_classifier",
                    "labels": ["a", "b"],
                    "quantization": "int8",
                    "limits": {"agreement": 0.9},
                    "allow_operators": ["Abc"],
                },
            ),
            (
                "onnx",
                "m.onnx",
                "--quantization int8 --limit sqnr=3",
                {
                    "quantization": "int8",
                    "limits": {"sqnr": 3.0},
                },
            ),
        ],
    )
    def test_every_option_gets_there(
        self, cli, tmp_path, monkeypatch, kind, name, line, own
    ):
        asked = {}

        def export(model, path, **options):
            asked.update(options)
            return SimpleNamespace(path=path, report=None)

        function = f"export_{kind.replace('-', '_')}"
        _, _, *taken = inspect.signature(getattr(kp, function)).parameters
        monkeypatch.setattr(kp, function, export, raising=False)
        result = cli(
            *("export", kind, "model.keras", "--out", tmp_path / name),
            *line.split(),
            *(("--allow-op", "Abc") if "allow_operators" in own else ()),
            *("--max-length", 9, "--json"),
        )
        assert result.code == 0, result.err
        assert json.loads(result.out) == {"path": str(tmp_path / name)}
        assert asked == {
            "signatures": None,
            "samples": None,
            "max_length": 9,
            "tolerance": None,
            "verify": True,
            **own,
        }
        assert {*asked, "verbose"} == {*taken}
