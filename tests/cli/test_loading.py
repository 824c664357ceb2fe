"""Models and samples that the command loads, or does not."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow

OWN_LAYER = """
import keras

@keras.saving.register_keras_serializable(package="own")
class Doubled(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs
"""


class TestSamples:
    """Files that are samples, and files that are none."""

    @pytest.mark.parametrize(
        ("samples", "reason"),
        [
            (None, "samples.npz"),
            (b"PK\x03\x04 a torn zip", ""),
            ({"ids": np.array([[1, None]])}, "Save texts as np.array(texts)"),
            (
                {"words": np.array([[1]])},
                "inputs ids: --samples FILE.npz with the arrays ids. Rec",
            ),
            ({"ids": np.array([1, 2])}, "(None, None). Received: (2,)"),
            ({"ids": np.array([[1, 99]])}, "99 is not in [0, 20)"),
        ],
    )
    def test_no_samples(self, cli, tmp_path, samples, reason):
        path = tmp_path / "samples.npz"
        if isinstance(samples, bytes):
            path.write_bytes(samples)
        elif samples is not None:
            np.savez(path, **samples)
        line = ("verify", "model.tflite", "model.keras", "--max-length", 4)
        result = cli(*line, "--samples", path)
        assert (result.code, result.out) == (2, "")
        assert reason in result.err
        assert "--samples" in result.err or "The model itself" in result.err
        assert "\x1b" not in result.err  # colors, where nobody sees them


class TestModelsThatDoNotLoad:
    @pytest.mark.parametrize("kind", ["torn", "lambda"])
    def test_what_an_import_would_not_help(self, cli, folder, tmp_path, kind):
        path = tmp_path / "m.keras"
        if kind == "torn":
            whole = (folder / "model.keras").read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
        else:
            layers = [keras.Input((4,)), keras.layers.Lambda(lambda x: 2 * x)]
            keras.Sequential(layers).save(path)
        result = cli("inspect", path)
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert f"'{path}' cannot be loaded: " in last
        assert ("arbitrary code" in last) == (kind == "lambda")
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
        to = ("export", "litert", f"{name}.keras", "--out", path)
        result = cli(*to, *imported)
        assert result.code == 2
        length = "?" if name == "own" else "3"  # the data's
        assert f"--input ids:int32:?x{length}" in result.err.splitlines()[-1]
        given = (*imported, "--input", "ids:int32:?x?")
        result = cli(*to, *given, "--no-verify")
        assert result.code == 0, result.err
        inputs = kp.inspect_export(path).signatures["serving_default"]["inputs"]
        assert str(inputs["ids"]) == "int32 (None, None)"
        if name == "own":
            result = cli("verify", path, f"{name}.keras", *given)
            assert result.code == 0, result.err
            return
        short = ("--signature", "one=ids:1x3", "--no-verify")
        result = cli(*to, *given, *short)
        assert result.code == 0, result.err
        inputs = kp.inspect_export(path).signatures["one"]["inputs"]
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
            *("export", "litert", f"{model}.keras", "--out", out),
            *("--import", "own_model", *options.split()),
        )
        assert result.code == 2
        assert reason in result.err.splitlines()[-1]


def test_model_that_knows_its_inputs(cli, tmp_path):
    x = keras.Input((4,), name="x")
    keras.Model(x, keras.layers.Dense(2)(x)).save(tmp_path / "m.keras")
    line = ("verify", "model.tflite", tmp_path / "m.keras")
    result = cli(*line, "--input", "ids:int32:?x?")
    assert result.code == 2
    assert "knows its inputs: x. --signature fixes" in result.err


def test_what_is_missing_is_told_at_once(folder, shell):
    """Before Keras and TensorFlow are loaded, which takes seconds."""
    lines = [
        "verify missing.tflite model.keras",
        "inspect missing",
        "import missing",
        "bench missing.tflite",
    ]
    program = (
        "import sys, keras_posenc_cli as cli\n"
        "print([cli.main(line.split()) for line in sys.argv[1:]])\n"
        "sys.exit('keras' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, *lines],
        cwd=folder,
        env=shell(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0
    assert process.stdout == f"{[2] * len(lines)}\n"
    said = process.stderr.splitlines()
    assert len(said) == len(lines)
    assert all("missing" in line for line in said)


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

    # A module beside the caller's own models is found in this process above.
    @pytest.mark.slow
    def test_module_of_the_working_directory(self, own, run_script):
        process = run_script(
            *("inspect", "own.keras", "--import", "own_layers", "--details"),
            cwd=own,
        )
        assert process.returncode == 0, process.stderr
        assert "Doubled" in process.stdout
