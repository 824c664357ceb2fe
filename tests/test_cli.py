"""The command `keras-posenc`: what it prints, and its exit codes.

TensorFlow takes seconds to import, so most tests call `main` in this process;
those of the process itself run the installed script.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc_cli import main

pytestmark = pytest.mark.tensorflow

SCRIPT = Path(sys.executable).with_name("keras-posenc")
# Numbers that occur nowhere else in a file, to be found and tampered with.
BIAS = np.array([0.1234567, -0.7654321], "float32")
OWN_LAYER = """
import keras

@keras.saving.register_keras_serializable(package="own")
class Doubled(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and its artifacts: a LiteRT file and two versions."""
    folder = tmp_path_factory.mktemp("cli")
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(20, 8, mask_zero=True),
            kp.PositionalEncoding(),
            kp.MaskedAveragePooling1D(),
            keras.layers.Dense(2, name="scores"),
        ]
    )
    model.layers[-1].bias.assign(BIAS)
    model.save(folder / "model.keras")
    silent = {"verify": False, "verbose": False}
    kp.export_litert(model, folder / "model.tflite", **silent)
    base = folder / "versions"
    kp.export_saved_model(model, base, version=2, **silent)
    # A number as text would put 10 before 2.
    shutil.copytree(base / "2", base / "10")
    return folder


@pytest.fixture
def cli(folder, monkeypatch, capfd):
    """Runs the command here; gives its exit code, output and errors."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)

    def run(*arguments):
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def shell(**variables):
    """An environment as a shell has it: nothing said to TensorFlow."""
    said = ("KERAS_BACKEND", "PYTHONUNBUFFERED", "TF_CPP_MIN_LOG_LEVEL")
    environment = {k: v for k, v in os.environ.items() if k not in said}
    return {**environment, **variables}


def run_script(*arguments, cwd, variables=None, **options):
    """Runs the installed script in a process of its own."""
    if "stdout" not in options:
        options["stdout"] = subprocess.PIPE
    return subprocess.run(
        [SCRIPT, *map(str, arguments)],
        cwd=cwd,
        env=shell(**(variables or {})),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
        **options,
    )


def export(kind, out, *options, model="model.keras"):
    """The arguments of a small export."""
    short = ("--max-length", 4)
    return ("export", model, "--to", kind, "--out", out, *short, *options)


def flex_runs(model, path):
    """Whether TensorFlow's interpreter has the Flex delegate, as once it had.

    It left the wheel with TensorFlow 2.20: google-ai-edge/LiteRT issue 6458.
    """
    from tensorflow.lite.python.interpreter import Interpreter

    kp.export_litert(model, path, allow_flex=True, verify=False, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it moved to ai_edge_litert
        try:
            Interpreter(str(path)).allocate_tensors()
        except RuntimeError:
            return False
    return True


class TestBeforeTensorFlow:
    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            ("--help", "exit codes: 0 done; 1 the artifact is wrong"),
            ("--version", f"keras-posenc {kp.__version__}\n"),
        ],
    )
    def test_help_and_version_import_no_framework(
        self, option, expected, tmp_path
    ):
        process = subprocess.run(
            [sys.executable, "-X", "importtime", SCRIPT, option],
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
        slow = {"keras", "keras_posenc", "numpy", "tensorflow", "rich"}
        assert imported.isdisjoint(slow)

    @pytest.mark.parametrize(
        "command", [("export",), ("verify",), ("inspect",)]
    )
    def test_each_command_has_help(self, cli, command):
        result = cli(*command, "--help")
        assert result.code == 0
        assert "--import MODULE" in result.out
        assert "--json" in result.out
        assert "ONNX" in result.out or ".onnx" in result.out

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ("", "required: COMMAND"),
            ("publish", "invalid choice: 'publish'"),
            ("export", "required: MODEL.keras, --to, --out"),
            ("export model.keras --to litert", "required: --out"),
            ("verify model.keras", "required: ARTIFACT"),
            ("inspect", "required: ARTIFACT"),
            ("inspect model.keras --tolerance 1", "unrecognized arguments"),
            (
                "export model.keras --to keras --out x",
                "invalid choice: 'keras'",
            ),
            *(
                (
                    "export model.keras --to litert --out x --signature "
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
                (f"verify model.keras m.onnx --input {given}", reason)
                for given, reason in [
                    ("ids", "--input: 'ids' is not NAME:int32:?x?"),
                    ("ids:int32", "'ids:int32' is not NAME:"),
                    ("ids:int32:", "'ids:int32:' is not NAME:"),
                    ("ids:long:?", "'long' of 'ids:long:?' is no dtype"),
                    ("a:bool:? --input a:bool:?", "'a' is there twice"),
                ]
            ),
            (
                "export model.keras --to onnx --out x --signature a "
                "--signature b --signature a=ids:1x4",
                "--signature: 'a' is there twice",
            ),
            ("bench", "required: FILE"),
            ("bench model.tflite --threads 0", "0 is not above 0"),
            ("bench model.tflite --lengths 16,0", "0 is not above 0"),
            (
                "bench model.tflite --lengths 16,",
                "--lengths: invalid int value: '16,'",
            ),
            (
                "export model.keras --to litert --out x --quantization int4",
                "invalid choice: 'int4'",
            ),
            (
                "export model.keras --to saved_model --out x --version one",
                "--version: invalid int value: 'one'",
            ),
            (
                "verify model.keras model.tflite --max-length 1.5",
                "--max-length: invalid int value: '1.5'",
            ),
            (
                "verify model.keras model.tflite --tolerance small",
                "--tolerance: invalid float value: 'small'",
            ),
            (
                "verify model.keras model.tflite --max-length 0",
                "--max-length: 0 is not above 0",
            ),
            (
                "verify model.keras model.tflite --tolerance -1",
                "--tolerance: -1 is no finite number from 0",
            ),
            (
                "verify model.keras model.tflite --tolerance nan",
                "--tolerance: nan is no finite number from 0",
            ),
        ],
    )
    def test_arguments_that_do_not_parse(self, cli, arguments, reason):
        result = cli(*arguments.split())
        assert result.code == 2
        assert result.err.startswith("usage: keras-posenc")
        assert reason in result.err
        assert result.out == ""

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (
                "export missing.keras --to litert --out x.tflite",
                "'missing.keras' does not exist",
            ),
            (
                "export versions --to litert --out x.tflite",
                "'versions' must be a .keras file, and is a folder",
            ),
            (
                "export model.tflite --to litert --out x.tflite",
                "'model.tflite' is no .keras file",
            ),
            ("verify missing.keras model.tflite", "does not exist"),
            ("inspect missing.keras", "'missing.keras' does not exist"),
            (
                "export model.keras --to litert --out x",
                "must end in '.tflite'. Received: 'x'",
            ),
            (
                "export model.keras --to onnx --out x.tflite",
                "must end in '.onnx'. Received: 'x.tflite'",
            ),
            *(
                (
                    "export model.keras --to litert --out x.tflite --labels "
                    f"a,b{task}",
                    "--labels of a LiteRT file name the scores of --task "
                    "text_classifier",
                )
                for task in ("", " --task text_embedder")
            ),
            (
                "export model.keras --to litert --out x.tflite --version 3",
                "--version is for --to saved_model",
            ),
            (
                "export model.keras --to saved_model --out x --allow-flex",
                "--allow-flex is for --to litert",
            ),
            (
                "export model.keras --to onnx --out x --quantization int8",
                "--quantization is for --to litert",
            ),
            (
                "export model.keras --to onnx --out x --agreement 0.9",
                "--agreement is for --to litert",
            ),
            (
                "export model.keras --to saved_model --out x --task "
                "text_classifier",
                "--task is for --to litert",
            ),
            (
                "export model.keras --to onnx --out x --labels a,b",
                "--labels is for --to saved_model or litert",
            ),
            (
                "export model.keras --to litert --out x.tflite "
                "--representative x.csv",
                "--representative: 'x.csv' is no .npz file",
            ),
            *(
                (
                    f"{command} --samples none.npz",
                    "--samples: 'none.npz' cannot be read: No such file",
                )
                for command in (
                    "verify model.keras model.tflite",
                    "export model.keras --to litert --out x.tflite",
                )
            ),
            (
                "export model.keras --to saved_model --out model.tflite",
                "--out of --to saved_model must be a folder, and "
                "'model.tflite' is a file",
            ),
            (
                "export model.keras --to saved_model --out versions --version "
                "10",
                "Version 10 exists in 'versions'",
            ),
            (
                "export model.keras --to saved_model --out x --version 0",
                "`version` must be an integer from 1",
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


class TestExport:
    def test_litert(self, cli, folder, tmp_path):
        out = tmp_path / "new" / "m.tflite"
        result = cli(*export("litert", out))
        assert result.code == 0
        assert [path.name for path in out.parent.iterdir()] == ["m.tflite"]
        assert result.out.startswith(f"{out}: verified, worst difference ")
        assert "serving_default, ids of shape (3, 4): " in result.out
        assert result.err.splitlines() == [
            "Loading model.keras ...",
            "Asking the model itself ...",
            "Converting to LiteRT ...",
            "Verifying it in a fresh process ...",
        ]
        runtime = pytest.importorskip("ai_edge_litert.interpreter")
        runner = runtime.Interpreter(str(out)).get_signature_runner()
        ids = np.array([[3, 1, 4, 0]], "int32")
        model = keras.saving.load_model(folder / "model.keras")
        wanted = keras.ops.convert_to_numpy(model(ids))
        np.testing.assert_allclose(runner(ids=ids)["scores"], wanted, atol=1e-6)

    @pytest.mark.parametrize("kind", ["litert", "saved_model"])
    def test_signatures(self, cli, tmp_path, kind):
        out = tmp_path / ("m.tflite" if kind == "litert" else "versions")
        given = ["any", "short=ids:1x3", "three=ids:?x3"]
        options = [part for each in given for part in ("--signature", each)]
        result = cli(*export(kind, out, *options))
        assert result.code == 0, result.err
        found = kp.inspect(out).signatures
        assert {
            name: str(sides["inputs"]["ids"]) for name, sides in found.items()
        } == {
            "any": "int32 (None, None)",
            "short": "int32 (1, 3)",
            "three": "int32 (None, 3)",
        }
        result = cli("verify", "model.keras", out, "--max-length", 4, *options)
        assert result.code == 0, result.err
        result = cli("verify", "model.keras", out, "--max-length", 4)
        assert result.code == 2
        assert "(--signature) names those to verify" in result.err

    def test_saved_model_takes_the_next_version(self, cli, tmp_path):
        (tmp_path / "3").mkdir()
        result = cli(*export("saved_model", tmp_path, "--json"))
        assert result.code == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
        report = json.loads(result.out)
        assert report["path"] == str(tmp_path / "4")
        assert report["kind"] == "saved_model"
        assert report["passed"] is True
        assert report["tolerance"] == 1e-5
        assert report["worst_difference"] <= 1e-5
        assert report["size_bytes"] > 0
        assert {
            case["inputs"]
            for case in report["cases"]
            if case["signature"] == "serving_default"
        } == {
            f"ids of shape ({batch}, {length})"
            for batch in (1, 3)
            for length in (1, 2, 4)
        }
        assert result.err.splitlines() == [
            "Loading model.keras ...",
            "Writing the SavedModel ...",
            "Asking the model itself ...",
            "Verifying it in a fresh process ...",
        ]

    def test_what_a_server_reads(self, cli, folder, tmp_path):
        pytest.importorskip("tensorflow_serving")
        arguments = ("--labels", "yes,no", "--warmup", "--batching")
        result = cli(*export("saved_model", tmp_path / "m", *arguments))
        assert result.code == 0, result.err
        assert "replayed " in result.out
        path = tmp_path / "m" / "1"
        assert (path / "assets.extra" / "tf_serving_warmup_requests").exists()
        text = (path / "batching_params.pbtxt").read_text()
        assert "max_batch_size { value: 32 }" in text
        labels = tmp_path / "labels.txt"
        labels.write_bytes(b"\xef\xbb\xbfyes\r\nno, never\r\n")
        sizes = "allowed_batch_sizes=2:6,batch_timeout_micros=50"
        result = cli(
            *export("saved_model", tmp_path / "m", "--no-verify"),
            *("--labels", labels, "--batching", sizes),
        )
        assert result.code == 0, result.err
        path = tmp_path / "m" / "2"
        text = (path / "batching_params.pbtxt").read_text()
        assert "max_batch_size { value: 6 }" in text
        assert "allowed_batch_sizes: 2\n" in text
        assert "batch_timeout_micros { value: 50 }" in text
        assert "order: yes, no, never |" in (path / "MODEL_CARD.md").read_text()
        result = cli("verify", "model.keras", path, "--labels", labels)
        assert result.code == 0, result.err
        assert "not verified" not in result.out
        result = cli("verify", "model.keras", path, "--labels", "no,yes")
        assert result.code == 1

    def test_only_some_versions_are_kept(self, cli, tmp_path):
        for version in (1, 2, 3):
            (tmp_path / str(version)).mkdir()
        result = cli(
            *export("saved_model", tmp_path, "--no-verify", "--keep", 2)
        )
        assert result.code == 0, result.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--labels", "yes,no,maybe"), "`labels` are 3, and no signature"),
            (("--labels", "yes,yes"), "must differ from one another"),
            (("--labels", "no.txt"), "'no.txt' cannot be read: No such file"),
            (("--labels", "model.keras"), "'model.keras' cannot be read: 'utf"),
            (("--warmup", "--no-verify"), "`warmup` needs verify=True"),
            (("--batching", "max_batch_size"), "is not NAME=N"),
            (("--batching", "max_batch_size=1:2"), "is not NAME=N"),
            (("--batching", "speed=9"), "`batching` may have the parameters"),
            (("--keep", 0), "0 is not above 0"),
            (("--keep", "few"), "invalid int value"),
        ],
    )
    def test_bad_arguments_of_serving(self, cli, tmp_path, arguments, reason):
        result = cli(*export("saved_model", tmp_path / "m", *arguments))
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize(
        "arguments",
        [("--warmup",), ("--batching",), ("--keep", 1)],
    )
    def test_what_litert_files_do_not_have(self, cli, tmp_path, arguments):
        result = cli(*export("litert", tmp_path / "m.tflite", *arguments))
        assert result.code == 2
        assert f"{arguments[0]} is for --to saved_model" in result.err

    def test_quantized_file_and_its_times(self, cli, folder, tmp_path):
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
        assert report["accuracy"]["on_samples"]
        result = cli("bench", path, "--lengths", 3, "--threads", 1, "--json")
        assert result.code == 0, result.err
        (timing,) = json.loads(result.out)["timings"]
        assert timing["shapes"] == {"ids": [1, 3]}
        result = cli("bench", path, "--lengths", "3,4", 5, "--threads", 1)
        for length in (3, 4, 5):
            assert f"(1, {length})" in result.out
        result = cli("bench", path, "--signature", "other")
        assert result.code == 2
        assert "names of the file's own: serving_default" in result.err
        result = cli("bench", folder / "versions")
        assert result.code == 2
        assert "must be a LiteRT file" in result.err

    def test_onnx_file(self, cli, tmp_path):
        pytest.importorskip("tf2onnx")
        path = tmp_path / "m.onnx"
        result = cli(*export("onnx", path, "--max-length", 4))
        assert result.code == 0, result.err
        assert "verified" in result.out
        result = cli("verify", "model.keras", path, "--max-length", 3)
        assert result.code == 0, result.err
        assert json.loads(cli("inspect", path, "--json").out)["kind"] == "onnx"

    @pytest.mark.parametrize("command", ["inspect", "verify model.keras"])
    def test_extra_that_onnx_needs(self, cli, tmp_path, monkeypatch, command):
        path = tmp_path / "m.onnx"
        path.write_bytes(b"\x08\x09")
        monkeypatch.setitem(sys.modules, "onnx", None)
        result = cli(*command.split(), path)
        assert result.code == 2
        assert "pip install 'keras-posenc[onnx]'" in result.err

    def test_a_version_that_exists_is_not_touched(self, cli, folder):
        before = (folder / "versions" / "2" / "saved_model.pb").stat()
        result = cli(*export("saved_model", "versions", "--version", 2))
        assert result.code == 2
        assert "Version 2 exists in 'versions'" in result.err
        assert "Leave `version` out for the next free one" in result.err
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
                kp.MaskedAveragePooling1D(name="average"),
            ]
        )
        model.save(tmp_path / "text.keras")
        samples = tmp_path / "samples.npz"
        np.savez(samples, text=np.array(["To be", "bee", "", "tö", "x"]))
        result = cli(
            *("export", tmp_path / "text.keras", "--to", "saved_model"),
            *("--out", tmp_path / "text", "--version", 7),
            *("--max-length", 5, "--samples", samples),
        )
        assert result.code == 0, result.err
        assert [path.name for path in (tmp_path / "text").iterdir()] == ["7"]
        # The samples come first, where they fit.
        first, *_ = re.findall("(?m)^  (.*): ", result.out)
        assert first == "serving_default, text of shape (5,)"
        asked = "ids of shape (3, 5), lengths of shape (3,)"
        assert f"  from_ids, {asked}: " in result.out

    def test_operators_that_litert_lacks(self, cli, tmp_path):
        x = keras.Input((4,), name="x")
        model = keras.Model(x, keras.ops.arctan(x))
        model.save(tmp_path / "atan.keras")
        out = tmp_path / "out" / "atan.tflite"
        arguments = export("litert", out, model=tmp_path / "atan.keras")
        result = cli(*arguments)
        assert result.code == 1
        last = result.err.splitlines()[-1]
        assert "needs operators that LiteRT does not have: Atan" in last
        assert re.search("allow.flex", last)
        assert not out.parent.exists()

        result = cli(*arguments, "--allow-flex")
        if flex_runs(model, tmp_path / "probe.tflite"):
            assert result.code == 0
            line = "needs operators beyond the plain runtime: FlexAtan"
            assert line in result.out.splitlines()
        else:
            assert result.code == 1
            last = result.err.splitlines()[-1]
            assert "Flex delegate" in last
            assert "LiteRT does not have" not in last  # it was converted
            assert not out.parent.exists()

    @pytest.mark.parametrize("kind", ["saved_model", "litert"])
    def test_a_folder_that_cannot_be_written(self, cli, tmp_path, kind):
        (tmp_path / "file").write_text("in the way")
        name = "model.tflite" if kind == "litert" else "versions"
        out = tmp_path / "file" / name
        result = cli(*export(kind, out))
        assert result.code == 1
        last = result.err.splitlines()[-1]
        assert last.startswith("keras-posenc: Cannot write to '")
        assert str(tmp_path / "file") in last
        assert (tmp_path / "file").read_text() == "in the way"

    @pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() == 0,
        reason="nothing is read-only to root",
    )
    def test_a_folder_without_permission(self, cli, tmp_path):
        (tmp_path / "locked").mkdir(mode=0o500)
        result = cli(*export("saved_model", tmp_path / "locked"))
        assert result.code == 1
        assert "Permission denied" in result.err.splitlines()[-1]

    def test_an_earlier_file_outlives_a_failed_export(
        self, cli, folder, tmp_path
    ):
        out = tmp_path / "m.tflite"
        out.write_bytes(b"earlier")
        np.savez(tmp_path / "s.npz", ids=np.array([[1, 99]]))
        result = cli(*export("litert", out, "--samples", tmp_path / "s.npz"))
        assert result.code == 2
        assert out.read_bytes() == b"earlier"
        assert [path.name for path in tmp_path.glob(".*")] == []


class TestOptionsWithoutSense:
    """Refused as arguments, however long the work went on before."""

    @pytest.fixture
    def refused(self, cli, tmp_path):
        def run(*options, kind="litert"):
            name = "m.tflite" if kind == "litert" else "m"
            out = tmp_path / "out" / name
            result = cli(*export(kind, out, *options))
            assert result.code == 2
            assert result.out == ""
            assert not out.parent.exists()
            last = result.err.splitlines()[-1]
            assert last.startswith("keras-posenc")
            return last

        return run

    @pytest.mark.parametrize("version", [0, -1])
    def test_version(self, refused, version):
        last = refused("--version", version, kind="saved_model")
        assert "version" in last
        assert "from 1 to" in last
        assert str(version) in last

    @pytest.mark.parametrize("length", [0, -4])
    def test_max_length(self, refused, length):
        last = refused("--max-length", length)
        assert re.search("max.length", last)
        assert str(length) in last

    # A negative or NaN tolerance fails every artifact, and an infinite one
    # passes every artifact, even one that does not run.
    @pytest.mark.parametrize("tolerance", ["-1", "nan", "inf"])
    def test_tolerance(self, refused, tolerance):
        last = refused(f"--tolerance={tolerance}")
        assert "tolerance" in last
        assert tolerance in last


class TestSamples:
    """Files that are no samples."""

    @pytest.fixture
    def refused(self, cli, tmp_path):
        def run(name):
            result = cli(
                *("verify", "model.keras", "model.tflite"),
                *("--max-length", 4, "--samples", tmp_path / name),
            )
            assert result.code == 2
            assert result.out == ""
            return result.err

        return run

    def test_missing(self, refused):
        err = refused("missing.npz")
        assert "--samples: " in err
        assert "missing.npz" in err

    @pytest.mark.parametrize(
        "content",
        [b"", b"ids: 1, 2, 3", b"PK\x03\x04 a torn zip"],
        ids=["empty", "text", "torn"],
    )
    def test_no_npz(self, refused, tmp_path, content):
        (tmp_path / "samples.npz").write_bytes(content)
        assert "--samples: " in refused("samples.npz").splitlines()[-1]

    def test_npy(self, refused, tmp_path):
        np.save(tmp_path / "samples.npy", np.array([[1, 2]]))
        assert "--samples: " in refused("samples.npy").splitlines()[-1]

    def test_pickled(self, refused, tmp_path):
        ids = np.array([[1, None]], dtype=object)
        np.savez(tmp_path / "samples.npz", ids=ids)
        last = refused("samples.npz").splitlines()[-1]
        assert "--samples: " in last
        assert "Save texts as np.array(texts), all of them strings" in last

    def test_other_names(self, refused, tmp_path):
        np.savez(tmp_path / "samples.npz", words=np.array([[1, 2]]))
        last = refused("samples.npz").splitlines()[-1]
        assert "inputs ids. Received: words" in last

    def test_another_shape(self, refused, tmp_path):
        np.savez(tmp_path / "samples.npz", ids=np.array([1, 2]))
        last = refused("samples.npz").splitlines()[-1]
        assert "has shape (None, None). Received: (2,)" in last

    def test_an_id_that_the_model_does_not_know(self, refused, tmp_path):
        np.savez(tmp_path / "samples.npz", ids=np.array([[1, 99]]))
        err = refused("samples.npz")
        assert "The model itself does not take ids of shape (1, 2)" in err
        assert "99 is not in [0, 20)" in err
        assert "\x1b" not in err  # colours, where nobody sees them

    def test_samples_come_first(self, cli, tmp_path):
        np.savez(tmp_path / "samples.npz", ids=np.array([[1, 2, 3, 4, 5, 6]]))
        result = cli(
            *("verify", "model.keras", "model.tflite", "--json"),
            *("--max-length", 4, "--samples", tmp_path / "samples.npz"),
        )
        assert result.code == 0
        first, *others = json.loads(result.out)["cases"]
        assert first["inputs"] == "ids of shape (1, 6)"
        assert len(others) == 6


class TestModelsThatDoNotLoad:
    @pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
    def test_torn_file(self, cli, folder, tmp_path, kept):
        whole = (folder / "model.keras").read_bytes()
        size = kept if isinstance(kept, int) else int(kept * len(whole))
        (tmp_path / "torn.keras").write_bytes(whole[:size])
        result = cli("inspect", tmp_path / "torn.keras")
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert f"'{tmp_path / 'torn.keras'}' cannot be loaded: " in last
        assert "--import" not in last  # which would not help

    @pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
    def test_model_that_keras_quantized(self, cli, tmp_path):
        x = keras.Input((None, 4), name="x")
        model = keras.Model(x, kp.SelfAttention(2)(x))
        model.quantize("int8")
        model.save(tmp_path / "int8.keras")
        result = cli("inspect", tmp_path / "int8.keras")
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert "int8.keras' cannot be loaded: A total of " in last
        assert "to be saved before `quantize()`" in last

    def test_lambda_layer(self, cli, tmp_path):
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Lambda(lambda x: 2 * x)]
        )
        model.save(tmp_path / "lambda.keras")
        result = cli("inspect", tmp_path / "lambda.keras")
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert "lambda.keras' cannot be loaded: " in last
        assert "Lambda" in last
        assert "arbitrary code" in last
        assert "Export the model in Python" in last
        assert "--import" not in last


OWN_MODEL = """
import keras

@keras.saving.register_keras_serializable(package="own")
class Judge(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = keras.layers.Embedding(20, 4)
        self.scores = keras.layers.Dense(2, name="scores")

    def call(self, ids):
        return self.scores(self.embedding(ids))
"""


@pytest.fixture(scope="module")
def own_models(tmp_path_factory):
    """A subclass of `keras.Model`, and a `Sequential` built by data."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_model.py").write_text(OWN_MODEL)
    ids = np.array([[1, 2, 3]], "int32")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        import own_model

        model = own_model.Judge()
    model(ids)
    model.save(folder / "own.keras")
    model = keras.Sequential(
        [
            model.embedding,
            keras.layers.GlobalAveragePooling1D(),
            model.scores,
        ]
    )
    model(ids)
    model.save(folder / "built.keras")
    return folder


class TestModelsThatDoNotKnowTheirInputs:
    @pytest.mark.parametrize("name", ["own", "built"])
    def test_inputs_are_named(
        self, cli, own_models, tmp_path, monkeypatch, name
    ):
        monkeypatch.chdir(own_models)
        imported = ("--import", "own_model", "--max-length", 4)
        path = tmp_path / "m.tflite"
        to = ("export", f"{name}.keras", "--to", "litert", "--out", path)
        result = cli(*to, *imported)
        assert result.code == 2
        assert "--input ids:int32:?x?" in result.err.splitlines()[-1]
        given = (*imported, "--input", "ids:int32:?x?")
        result = cli(*to, *given)
        assert result.code == 0, result.err
        inputs = kp.inspect(path).signatures["serving_default"]["inputs"]
        assert str(inputs["ids"]) == "int32 (None, None)"
        result = cli("verify", f"{name}.keras", path, *given)
        assert result.code == 0, result.err
        short = ("--signature", "one=ids:1x3", "--no-verify")
        result = cli(*to, *given, *short)
        assert result.code == 0, result.err
        inputs = kp.inspect(path).signatures["one"]["inputs"]
        assert str(inputs["ids"]) == "int32 (1, 3)"

    @pytest.mark.parametrize(
        ("model", "options", "reason"),
        [
            ("built", "--input a:int32:? --input b:int32:?", "takes one"),
            ("built", "--input a:int32:?", "does not take a of shape (None,)"),
            (
                "own",
                "--input ids:int32:?x? --signature one=x:1x3",
                "no --input names 'x'",
            ),
        ],
    )
    def test_inputs_that_are_none(
        self, cli, own_models, monkeypatch, tmp_path, model, options, reason
    ):
        monkeypatch.chdir(own_models)
        out = tmp_path / "m.tflite"
        result = cli(
            *("export", f"{model}.keras", "--to", "litert", "--out", out),
            *("--import", "own_model", *options.split()),
        )
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]

    def test_model_that_knows_its_inputs(self, cli, tmp_path):
        x = keras.Input((4,), name="x")
        keras.Model(x, keras.layers.Dense(2)(x)).save(tmp_path / "m.keras")
        result = cli(
            *("verify", tmp_path / "m.keras", "model.tflite"),
            *("--input", "ids:int32:?x?"),
        )
        assert result.code == 2
        assert "knows its inputs: x. --signature fixes" in result.err


class TestImport:
    @pytest.fixture
    def own(self, tmp_path, monkeypatch):
        """A folder with a module of one layer, and a model that has it."""
        (tmp_path / "own_layers.py").write_text(OWN_LAYER)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            import own_layers

        model = keras.Sequential(
            [keras.Input((4,), name="x"), own_layers.Doubled(name="doubled")]
        )
        model.save(tmp_path / "own.keras")
        del sys.modules["own_layers"]
        del keras.saving.get_custom_objects()["own>Doubled"]
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def test_hint_where_a_layer_is_unknown(self, cli, own):
        result = cli("inspect", own / "own.keras")
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert "Doubled" in last
        assert "name the module that registers it: --import MODULE" in last

    def test_module_of_the_working_directory(self, own):
        out = own / "own.tflite"
        process = run_script(
            *("export", "own.keras", "--to", "litert", "--out", out),
            *("--import", "own_layers"),
            cwd=own,
        )
        assert process.returncode == 0, process.stderr
        assert process.stdout.startswith(f"{out}: verified")

    @pytest.mark.parametrize(
        ("module", "source", "reason"),
        [
            ("missing_layers", None, "No module named 'missing_layers'"),
            ("torn_layers", "class Doubled(", "was never closed"),
            ("wrong_layers", "Doubled = layer", "'layer' is not defined"),
            (".own_layers", None, "own_layers"),
        ],
    )
    def test_module_that_cannot_be_imported(
        self, cli, tmp_path, monkeypatch, module, source, reason
    ):
        model = shutil.copy("model.keras", tmp_path)
        monkeypatch.chdir(tmp_path)
        if source is not None:
            (tmp_path / f"{module}.py").write_text(source)
        result = cli("inspect", model, "--import", module)
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert last.startswith(f"keras-posenc: --import {module}: ")
        assert reason in last


class TestVerify:
    def test_right_litert(self, cli):
        result = cli("verify", "model.keras", "model.tflite")
        assert result.code == 0
        assert result.out.startswith("model.tflite: verified, worst ")
        assert "ids of shape (3, 512): " in result.out  # the default length

    def test_tampered_litert(self, cli, folder, tmp_path):
        content = (folder / "model.tflite").read_bytes()
        assert content.count(BIAS.tobytes()) == 1
        other = BIAS + np.array([0, 2**-12], "float32")
        tampered = content.replace(BIAS.tobytes(), other.tobytes())
        (tmp_path / "m.tflite").write_bytes(tampered)
        arguments = ("verify", "model.keras", tmp_path / "m.tflite")
        arguments += ("--max-length", 4)
        result = cli(*arguments)
        assert result.code == 1
        assert ": WRONG, worst difference 0.00024 in 6 cases" in result.out

        result = cli(*arguments, "--json")
        assert result.code == 1
        report = json.loads(result.out)
        assert report["passed"] is False
        assert report["worst_difference"] == pytest.approx(2**-12, rel=1e-2)
        worst = max(report["cases"], key=lambda case: case["worst_difference"])
        assert worst["worst_output"] in [f"scores[{i}, 1]" for i in range(3)]

        assert cli(*arguments, "--tolerance", 3e-4).code == 0

    def test_highest_version_and_a_tampered_one(self, cli, folder, tmp_path):
        base = tmp_path / "versions"
        shutil.copytree(folder / "versions", base)
        # The highest number is that of the right one.
        (variables,) = (base / "2").rglob("variables.data-*")
        content = variables.read_bytes()
        assert content.count(BIAS.tobytes()) == 1
        variables.write_bytes(content.replace(BIAS.tobytes(), bytes(8)))
        arguments = ("verify", "model.keras", "--max-length", 4)
        result = cli(*arguments, base)
        assert result.code == 0
        assert result.out.startswith(f"{base / '10'}: verified")
        # TensorFlow finds the checksum of the other one wrong.
        result = cli(*arguments, base / "2")
        assert result.code == 1
        assert "' does not load: " in result.err

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
            ("model.keras", "'model.keras' is no LiteRT file"),
        ],
    )
    def test_no_artifact(self, cli, folder, artifact, reason):
        (folder / "nothing").mkdir(exist_ok=True)
        result = cli("verify", "model.keras", artifact)
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]


class TestRollback:
    @pytest.fixture
    def base(self, tmp_path):
        for version in (1, 2):
            (tmp_path / str(version)).mkdir()
            file = tmp_path / str(version) / "saved_model.pb"
            file.write_text(f"model {version}")
        return tmp_path

    def test_older_version_goes_out_again(self, cli, base):
        result = cli("rollback", base, 1)
        assert result.code == 1
        assert "Version 1 does not come back: " in result.err
        assert "--no-verify" in result.err
        assert "Loading version 1 in a fresh process ..." in result.err
        assert not (base / "3").exists()
        result = cli("rollback", base, 1, "--no-verify")
        assert result.code == 0, result.err
        assert result.out == f"{base / '3'}: version 1 again\n"
        assert (base / "3" / "saved_model.pb").read_text() == "model 1"
        result = cli("rollback", base, 2, "--no-verify", "--json")
        assert json.loads(result.out) == {"path": str(base / "4"), "of": 2}

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("{base}", 7), "`version` must be one that"),
            (("{base}", 2), "Version 2 is the newest"),
            (("{base}", "old"), "invalid int value"),
            (("{base}/none", 1), "which is no folder"),
            (("{base}",), "the following arguments are required: VERSION"),
        ],
    )
    def test_nothing_to_go_back_to(self, cli, base, arguments, reason):
        arguments = [str(argument).format(base=base) for argument in arguments]
        result = cli("rollback", *arguments)
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]
        assert sorted(path.name for path in base.iterdir()) == ["1", "2"]


class TestInspect:
    @pytest.mark.parametrize(
        ("artifact", "path", "kind", "operator"),
        [
            ("model.tflite", "model.tflite", "litert", "FULLY_CONNECTED"),
            ("versions/2", "versions/2", "saved_model", "MatMul"),
            ("versions", "versions/10", "saved_model", "MatMul"),
        ],
    )
    def test_artifact(self, cli, folder, artifact, path, kind, operator):
        result = cli("inspect", artifact, "--json")
        assert result.code == 0
        assert result.err == ""
        inspection = json.loads(result.out)
        files = [folder / path]
        if kind == "saved_model":
            files = [p for p in (folder / path).rglob("*") if p.is_file()]
        size = sum(file.stat().st_size for file in files)
        operators = inspection.pop("operators")
        is_saved_model = kind == "saved_model"
        # A layer of several signatures is stored once.
        assert operators[operator] == 1
        weights = inspection.pop("weight_bytes")
        assert (20 * 8 + 8 * 2 + 2) * 4 <= weights < size
        ids = {"ids": {"shape": [None, None], "dtype": "int32"}}
        lengths = {"lengths": {"shape": [None], "dtype": "int32"}}
        scores = {"scores": {"shape": [None, 2], "dtype": "float32"}}
        encoded = {
            "contextual": {"shape": [None, None, 8], "dtype": "float32"},
            "pooled": {"shape": [None, 8], "dtype": "float32"},
            "mask": {"shape": [None, None], "dtype": "bool"},
        }
        more = {
            "from_ids": {"inputs": {**ids, **lengths}, "outputs": scores},
            "encode": {"inputs": ids, "outputs": encoded},
        }
        assert inspection == {
            "path": path,
            "kind": kind,
            "size_bytes": size,
            "signatures": {
                "serving_default": {"inputs": ids, "outputs": scores},
                **(more if is_saved_model else {}),
            },
            "foreign_operators": [],
            "unsafe_operators": [],
            "quantization": None,
        }

        result = cli("inspect", artifact)
        assert result.code == 0
        assert result.err == ""
        first, safety, *table = result.out.splitlines()
        assert first == (
            f"{path}: {kind}, {size / 1e6:.2f} MB, of which weights "
            f"{weights / 1e6:.2f} MB"
        )
        assert safety == "unsafe operators: none"
        cells = {tuple(re.findall(r"[^│┃]+", line)) for line in table}
        cells = {tuple(map(str.strip, row)) for row in cells}
        assert {
            ("serving_default", "input", "ids", "int32 (None, None)"),
            ("serving_default", "output", "scores", "float32 (None, 2)"),
            *((name, str(count)) for name, count in operators.items()),
        } <= cells

    def test_long_names_stay_whole(self, cli, tmp_path):
        name = "probability_of_each_of_the_labels_" * 3
        x = keras.Input((4,), name="x")
        model = keras.Model(x, {name: keras.layers.Dense(2)(x)})
        path = tmp_path / "long.tflite"
        kp.export_litert(model, path, verify=False, verbose=False)
        result = cli("inspect", path)
        assert result.code == 0
        # Perhaps on several lines of its cell, as text is; but whole.
        rows = re.findall(r"│ [^│]*│ [^│]*│ *([^│]*?) *│", result.out)
        assert name in "".join(rows)

    def test_keras_model(self, cli):
        result = cli("inspect", "model.keras")
        assert result.code == 0
        assert "positional_encoding" in result.out
        assert "scores (Dense)" in result.out
        assert "(None, None, 8)" in result.out
        assert "Total params: 178" in result.out
        assert result.err.splitlines() == ["Loading model.keras ..."]

        result = cli("inspect", "model.keras", "--json")
        assert result.code == 0
        model = json.loads(result.out)
        assert model["class_name"] == "Sequential"
        layers = [layer["class_name"] for layer in model["config"]["layers"]]
        assert layers[-3:] == [
            "PositionalEncoding",
            "MaskedAveragePooling1D",
            "Dense",
        ]

    @pytest.mark.parametrize(
        ("artifact", "reason"),
        [
            ("missing", "'missing' does not exist"),
            ("nothing", "no numbered version that has one"),
            ("samples.npz", "'samples.npz' is no LiteRT file"),
        ],
    )
    def test_no_artifact(self, cli, tmp_path, monkeypatch, artifact, reason):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "nothing").mkdir()
        np.savez(tmp_path / "samples.npz", ids=np.array([[1]]))
        result = cli("inspect", artifact)
        assert result.code == 2
        (line,) = result.err.splitlines()
        assert reason in line


class TestStreams:
    @pytest.mark.parametrize("artifact", ["model.tflite", "missing.tflite"])
    def test_standard_error_is_given_back(self, cli, artifact, capfd):
        descriptor, stderr = os.fstat(2), sys.stderr
        open_before = len(os.listdir("/dev/fd"))
        cli("inspect", artifact)
        assert sys.stderr is stderr
        assert os.path.samestat(os.fstat(2), descriptor)
        assert len(os.listdir("/dev/fd")) == open_before
        os.write(2, b"still here")
        assert capfd.readouterr().err == "still here"

    def test_native_code_is_silent_and_python_is_not(self, cli, monkeypatch):
        from keras_posenc.artifacts import inspection

        def inspect(path):
            os.write(2, b"I0000 00:00:00 noise.cc:1] of the runtime\n")
            print("said by the command", file=sys.stderr)
            raise ValueError("no such thing")

        monkeypatch.setattr(inspection, "inspect", inspect)
        result = cli("inspect", "model.tflite")
        assert result.code == 2
        assert result.err.splitlines() == [
            "said by the command",
            "keras-posenc: no such thing",
        ]

    def test_an_error_that_is_nobodys_fault_shows_itself(
        self, cli, monkeypatch
    ):
        from keras_posenc.artifacts import inspection

        def inspect(path):
            raise KeyError("a fault of the package")

        monkeypatch.setattr(inspection, "inspect", inspect)
        with pytest.raises(KeyError, match="a fault of the package"):
            cli("inspect", "model.tflite")

    def test_paths_are_no_markup(self, cli, folder, tmp_path):
        # Rich would take these brackets for a style, or stumble over them;
        # and break a line that is longer than a terminal is wide.
        inner = tmp_path / "[bold]drafts [" / ("long" * 20)
        inner.mkdir(parents=True)
        (inner / "red]").mkdir()
        path = inner / "red]" / "model[v2].keras"
        shutil.copy(folder / "model.keras", path)
        result = cli("inspect", path, "--json")
        assert result.code == 0
        assert result.err.splitlines() == [f"Loading {path} ..."]

    def test_script_in_a_shell_of_another_backend(self, folder, tmp_path):
        # Exports need TensorFlow, which therefore is the command's choice;
        # and what TensorFlow has to say is not for the terminal.
        out = tmp_path / "m.tflite"
        process = run_script(
            *export("litert", out),
            cwd=folder,
            variables={"KERAS_BACKEND": "jax"},
        )
        assert process.returncode == 0, process.stderr
        assert process.stderr.splitlines() == [
            "Loading model.keras ...",
            "Asking the model itself ...",
            "Converting to LiteRT ...",
            "Verifying it in a fresh process ...",
        ]
        first, columns, *cases = process.stdout.splitlines()
        assert first.startswith(f"{out}: verified")
        assert columns.endswith(": worst difference, time of a call")
        assert len(cases) == 6
        assert all(case.startswith("  serving_default, ") for case in cases)

    @pytest.mark.parametrize(
        "arguments",
        [
            "--help",
            "inspect model.tflite",
            "inspect model.tflite --json",
            "inspect model.keras",
            "verify model.keras model.tflite --max-length 4",
        ],
    )
    def test_reader_that_went_away(self, cli, monkeypatch, arguments):
        # As in `keras-posenc ... | head`. Python flushes its output once more
        # when it ends, as does closing it here.
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            result = cli(*arguments.split())
        assert result.code == 0
        assert "roken pipe" not in result.err

    def test_reader_of_the_script_that_went_away(self, tmp_path):
        read, write = os.pipe()
        os.close(read)
        try:
            process = run_script("--help", cwd=tmp_path, stdout=write)
        finally:
            os.close(write)
        assert process.stderr == ""
        assert process.returncode == 0

    def test_no_standard_error(self, folder, tmp_path):
        command = ("sh", "-c", 'exec "$0" "$@" 2>&-', SCRIPT)
        process = subprocess.run(
            [*command, "inspect", "model.tflite", "--json"],
            cwd=folder,
            env=shell(),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert process.returncode == 0
        assert json.loads(process.stdout)["kind"] == "litert"

    def test_no_standard_output(self, cli, monkeypatch):
        monkeypatch.setattr(sys, "stdout", None)
        assert cli("inspect", "model.tflite", "--json").code == 0

    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
    @pytest.mark.parametrize("error", [ValueError, SystemError, KeyError])
    def test_end_that_comes_out_as_another_error(
        self, cli, monkeypatch, name, error
    ):
        # As from TensorFlow's native code, which calls Python.
        from keras_posenc.artifacts import inspection

        number = getattr(signal, name)

        def inspect(path):
            try:
                signal.raise_signal(number)
            except BaseException:
                raise error("bad argument to internal function") from None

        monkeypatch.setattr(inspection, "inspect", inspect)
        earlier = signal.signal(number, signal.default_int_handler)
        try:
            result = cli("inspect", "model.tflite")
            after = signal.getsignal(number)
        finally:
            signal.signal(number, earlier)
        assert after is signal.default_int_handler
        assert result.code == 128 + number
        said = "keras-posenc: interrupted\n"
        assert result.err == (said if name == "SIGINT" else "")

    def test_ignored_signals_stay_ignored(self, cli, monkeypatch):
        # As under nohup.
        from keras_posenc.artifacts import inspection

        def inspect(path):
            signal.raise_signal(signal.SIGHUP)
            raise ValueError("went on")

        monkeypatch.setattr(inspection, "inspect", inspect)
        earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            result = cli("inspect", "model.tflite")
        finally:
            signal.signal(signal.SIGHUP, earlier)
        assert result.code == 2
        assert result.err == "keras-posenc: went on\n"

    @pytest.mark.parametrize(
        "ended", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    )
    def test_end_leaves_nothing(self, folder, tmp_path, ended):
        # In the background of some shells, SIGINT is ignored: not so here.
        program = (
            "import signal, sys\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
            "from keras_posenc_cli import main\n"
            "sys.exit(main())"
        )
        arguments = export("saved_model", tmp_path / "out")
        with subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=folder,
            env=shell(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            for line in process.stderr:
                if line.startswith("Verifying"):
                    break
            assert [path.name for path in tmp_path.iterdir()] == ["out"]
            # To the whole group, as a terminal does.
            os.killpg(process.pid, ended)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 128 + ended
        assert out == ""
        said = "keras-posenc: interrupted\n"
        assert err == (said if ended == signal.SIGINT else "")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("work", "code"),
        [
            ("return 0", 0),
            ("return 1", 1),
            ("os.kill(os.getpid(), signal.SIGTERM)", 143),
        ],
    )
    def test_signal_while_the_process_ends(self, tmp_path, work, code):
        # TensorFlow takes a while to end; here three stages of Python's end.
        program = (
            "import atexit, os, signal, sys, keras_posenc_cli as cli\n"
            "kill, pid, number = os.kill, os.getpid(), signal.SIGTERM\n"
            "class Last:\n"
            "    def __del__(self, kill=kill, pid=pid, number=number):\n"
            "        kill(pid, number)\n"
            f"def inspect(options):\n    {work}\n"
            "cli._inspect, last, sys.last = inspect, Last(), Last()\n"
            "atexit.register(kill, pid, number)\n"
            "sys.exit(cli.main())"
        )
        process = subprocess.run(
            [sys.executable, "-c", program, "inspect", "x.tflite"],
            cwd=tmp_path,
            env=shell(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == code, process.stderr
        assert process.stdout == process.stderr == ""
