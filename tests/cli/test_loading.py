"""Models and samples that the command loads, or does not."""

import subprocess
import sys

import keras
import numpy as np
import pytest

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
                "inputs ids: --samples FILE.npz. Received: ",
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
        result = cli("verify", "model.tflite", path)
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert f"'{path}' cannot be loaded: " in last
        assert ("arbitrary code" in last) == (kind == "lambda")
        assert "--import" not in last


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
        result = cli("export", "onnx", own / "own.keras", "--out", "m.onnx")
        assert result.code == 2
        last = result.err.splitlines()[-1]
        assert "Doubled" in last
        assert "name the module that registers it: --import MODULE" in last

    # A module beside the caller's own models is found in this process above.
    @pytest.mark.slow
    def test_module_of_the_working_directory(self, own, run_script):
        process = run_script(
            *("export", "litert", "own.keras", "--import", "own_layers"),
            *("--out", "m.tflite", "--no-verify"),
            cwd=own,
        )
        assert process.returncode == 0, process.stderr
