"""`keras-posenc export`."""

import inspect
import json
import re
import sys
from types import SimpleNamespace

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
            f"{out}: verified: 7 cases, largest difference "
        )
        assert len(result.out.splitlines()) == 1
        assert result.err.splitlines() == [
            "Loading model.keras ...",
            "Computing reference outputs ...",
            "Converting to LiteRT ...",
            "Verifying it in a fresh process ...",
        ]
        runtime = pytest.importorskip("ai_edge_litert.interpreter")
        runner = runtime.Interpreter(str(out)).get_signature_runner()
        ids = np.array([[3, 1, 4, 0]], "int32")
        model = keras.saving.load_model(folder / "model.keras")
        wanted = keras.ops.convert_to_numpy(model(ids))
        np.testing.assert_allclose(runner(ids=ids)["scores"], wanted, atol=1e-6)

    # Models that do not know their inputs have signatures of LiteRT files.
    @pytest.mark.parametrize(
        "kind",
        [pytest.param("litert", marks=pytest.mark.slow), "saved-model"],
    )
    def test_signatures(self, cli, tmp_path, kind, export):
        out = tmp_path / ("m.tflite" if kind == "litert" else "versions")
        given = ["any", "short=ids:1x3", "three=ids:?x3"]
        options = [part for each in given for part in ("--signature", each)]
        result = cli(*export(kind, out, *options, "--no-verify"))
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

    def test_saved_model_takes_the_next_version(self, cli, tmp_path, export):
        (tmp_path / "3").mkdir()
        result = cli(*export("saved-model", tmp_path, "--json"))
        assert result.code == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
        report = json.loads(result.out)
        assert report["path"] == str(tmp_path / "4")
        assert report["kind"] == "saved_model"
        assert report["passed"] is True
        assert report["tolerance"] == 1e-5
        assert report["largest_difference"] <= 1e-5
        assert report["size_bytes"] > 0
        assert {
            case["inputs"]
            for case in report["cases"]
            if case["signature"] == "serving_default"
            and "each id" not in case["inputs"]
        } == {
            f"ids of shape ({batch}, {length})"
            for batch in (1, 3)
            for length in (1, 2, 4)
        }
        assert result.err.splitlines() == [
            "Loading model.keras ...",
            "Writing the SavedModel ...",
            "Computing reference outputs ...",
            "Verifying it in a fresh process ...",
        ]

    def test_what_a_server_reads(self, cli, folder, tmp_path, export):
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
        assert "order: yes, no, never; of one score: no, never |" in card
        result = cli("verify", path, "model.keras", "--labels", labels)
        assert result.code == 0, result.err
        assert "not verified" not in result.out

    def test_only_some_versions_are_kept(self, cli, tmp_path, export):
        for version in (1, 2, 3):
            (tmp_path / str(version)).mkdir()
        result = cli(
            *export("saved-model", tmp_path, "--no-verify", "--keep", 2)
        )
        assert result.code == 0, result.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--labels", "yes,no,maybe"), "Received: 3 labels for scores of"),
            (("--labels", "yes,yes"), "must differ from one another"),
            (("--labels", "no.txt"), "'no.txt' cannot be read: No such file"),
            (("--labels", "model.keras"), "'model.keras' cannot be read: 'utf"),
            (("--warmup", "--no-verify"), "--warmup needs verify=True"),
            (("--batching", "max_batch_size"), "is not NAME=N"),
            (("--batching", "max_batch_size=1:2"), "is not NAME=N"),
            (("--batching", "speed=9"), "--batching may have max_batch_size, "),
            (("--keep", 0), "0 is not above 0"),
            (("--keep", "few"), "invalid int value"),
        ],
    )
    def test_bad_arguments_of_serving(
        self, cli, tmp_path, arguments, reason, export
    ):
        result = cli(*export("saved-model", tmp_path / "m", *arguments))
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]
        assert not (tmp_path / "m").exists()

    def test_quantized_file_and_its_times(self, cli, folder, tmp_path, export):
        np.savez(tmp_path / "some.npz", ids=np.arange(12).reshape(2, 6))
        path = tmp_path / "m.tflite"
        options = ("--quantization", "int8-static", "--max-length", 4, "--json")
        result = cli(
            *export("litert", path, *options),
            "--representative",
            tmp_path / "some.npz",
        )
        assert result.code == 0, result.err
        report = json.loads(result.out)
        assert report["quantization"] == "int8-static"
        assert any(case["is_sample"] for case in report["cases"])
        lengths = ("--lengths", "3,4", 5, "--threads", 1)
        result = cli("bench", path, *lengths, "--json")
        assert result.code == 0, result.err
        assert [
            each["shapes"] for each in json.loads(result.out)["timings"]
        ] == [{"ids": [1, length]} for length in (3, 4, 5)]
        result = cli("bench", path, "--signature", "other")
        assert result.code == 2
        assert "names of the file's own: serving_default" in result.err
        result = cli("bench", folder / "versions")
        assert result.code == 2
        assert "must be a LiteRT file" in result.err

    def test_onnx_file(self, cli, tmp_path, export):
        pytest.importorskip("tf2onnx")
        path = tmp_path / "m.onnx"
        result = cli(*export("onnx", path, "--details"))
        assert result.code == 0, result.err
        assert ": verified: " in result.out
        assert "  serving_default, ids of shape (1, 4): " in result.out
        assert json.loads(cli("inspect", path, "--json").out)["kind"] == "onnx"

    @pytest.mark.parametrize("line", [["inspect"], ["verify", "model.keras"]])
    def test_extra_that_onnx_needs(self, cli, tmp_path, monkeypatch, line):
        path = tmp_path / "m.onnx"
        path.write_bytes(b"\x08\x09")
        monkeypatch.setitem(sys.modules, "onnx", None)
        result = cli(line[0], path, *line[1:])
        assert result.code == 2
        assert "pip install 'keras-posenc[onnx]'" in result.err

    def test_a_version_that_exists_is_not_touched(self, cli, folder, export):
        before = (folder / "versions" / "2" / "saved_model.pb").stat()
        result = cli(*export("saved-model", "versions", "--version", 2))
        assert result.code == 2
        assert "Version 2 exists in 'versions'" in result.err
        assert "Leave --version out for the next free one" in result.err
        after = (folder / "versions" / "2" / "saved_model.pb").stat()
        assert (before.st_mtime_ns, before.st_ino) == (
            after.st_mtime_ns,
            after.st_ino,
        )

    def test_version_and_samples_of_a_model_of_strings(self, cli, tmp_path):
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "to", "be", "##e"]
        model = keras.Sequential(
            [
                keras.Input((), dtype="string", name="text"),
                kp.WordpieceTokenizer(vocabulary),
                keras.layers.Embedding(len(vocabulary), 4, mask_zero=True),
                kp.Pooling1D("mean", name="average"),
            ]
        )
        model.save(tmp_path / "text.keras")
        samples = tmp_path / "samples.npz"
        np.savez(samples, text=np.array(["To be", "bee", "", "tö", "x"]))
        result = cli(
            *("export", "saved-model", tmp_path / "text.keras"),
            *("--out", tmp_path / "text", "--version", 7),
            *("--max-length", 5, "--samples", samples, "--json"),
        )
        assert result.code == 0, result.err
        assert [path.name for path in (tmp_path / "text").iterdir()] == ["7"]
        # The samples come first, where they fit.
        first, *others = [
            (case["signature"], case["inputs"])
            for case in json.loads(result.out)["cases"]
        ]
        assert first == ("serving_default", "text of shape (5,)")
        asked = "ids of shape (3, 5), lengths of shape (3,)"
        assert ("from_ids", asked) in others

    def test_remedies_are_options_to_copy(self, cli, tmp_path, export):
        model = keras.Sequential([keras.layers.Embedding(9, 2)])
        model(np.ones((2, 3)))
        path = tmp_path / "own.keras"
        model.save(path)
        line = export("saved-model", tmp_path / "own", model=path)
        result = cli(*line)
        assert result.code != 0
        message = result.err.splitlines()[-1]
        assert "signatures=" not in message
        assert "Sequential(" not in message
        found = re.search(r"(--(?:signature|input)) (\S+[^\s.])", message)
        assert cli(*line, *found.groups()).code == 0

    @pytest.mark.parametrize(
        ("kind", "name", "line", "own"),
        [
            (
                "saved-model",
                "m",
                "--version 4 --keep 2 --labels a,b --frozen --warmup "
                "--batching",
                {
                    "version": 4,
                    "keep": 2,
                    "labels": ["a", "b"],
                    "frozen": True,
                    "warmup": True,
                    "batching": True,
                    "allow_operators": ["Abc"],
                },
            ),
            (
                "litert",
                "m.tflite",
                "--task text_classifier --labels a,b --allow-flex "
                "--quantization int8 --limit agreement=0.9",
                {
                    "task": "text_classifier",
                    "labels": ["a", "b"],
                    "allow_flex": True,
                    "quantization": "int8",
                    "limits": {"agreement": 0.9},
                    "representative": None,
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
            *("--max-length", 9, "--tolerance", 0.5, "--json"),
        )
        assert result.code == 0, result.err
        assert json.loads(result.out) == {"path": str(tmp_path / name)}
        assert asked == {
            "signatures": None,
            "samples": None,
            "max_length": 9,
            "tolerance": 0.5,
            "verify": True,
            **own,
        }
        assert {*asked, "verbose"} == {*taken}
