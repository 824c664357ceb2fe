"""`keras-posenc inspect`."""

import json

import keras
import pytest

import keras_posenc as kp
from keras_posenc.export import units
from tests.generation.toy import SIZES

pytestmark = pytest.mark.tensorflow


class TestInspect:
    @pytest.mark.parametrize(
        ("artifact", "path", "kind"),
        [
            ("model.tflite", "model.tflite", "litert"),
            ("versions", "versions/10", "saved_model"),
        ],
    )
    def test_artifact(self, cli, artifact, path, kind):
        result = cli("inspect", artifact, "--json")
        assert (result.code, result.err) == (0, "")
        found = json.loads(result.out)
        assert (found["path"], found["kind"]) == (path, kind)
        assert found["unsafe_operators"] == found["foreign_operators"] == []
        assert found["signatures"]["serving_default"] == {
            "inputs": {"ids": {"shape": [None, None], "dtype": "int32"}},
            "outputs": {"scores": {"shape": [None, 2], "dtype": "float32"}},
        }
        # Another test may have had it verified, and so recorded.
        recorded = {
            None: "there is no record that it was verified",
            (): "the files are those that were verified",
        }[None if found["changed"] is None else (*found["changed"],)]
        line = (
            f"{path}: {kind}, {units.size(found['size_bytes'])}, safe, "
            f"signatures: {', '.join(found['signatures'])}"
        )
        result = cli("inspect", artifact)
        assert (result.code, result.err) == (0, "")
        assert result.out.splitlines() == [line, recorded]
        result = cli("inspect", artifact, "--details")
        first, *table = result.out.splitlines()
        assert first == line
        assert "serving_default, input ids: int32 (None, None)" in table

    def test_what_changed_since_it_was_verified(self, cli, tmp_path):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        path = kp.export_saved_model(model, tmp_path / "m", verbose=False).path
        (path / "MODEL_CARD.md").write_text("Edited.")  # nobody computes by it
        assert cli("inspect", path).out.splitlines()[1:] == [
            "the files are those that were verified"
        ]
        (path / "fingerprint.pb").write_text("")
        assert cli("inspect", path).out.splitlines()[1:] == [
            "changed since it was verified: fingerprint.pb"
        ]
        record = path / "assets.extra" / "cases.npz"
        record.write_bytes(record.read_bytes()[:-2])
        (line,) = cli("inspect", path).out.splitlines()[1:]
        assert line.startswith(f"the record '{record}' cannot be used: ")

    def test_keras_model(self, cli):
        result = cli("inspect", "model.keras")
        assert result.code == 0
        (line,) = result.out.splitlines()
        assert line.startswith("model.keras: Keras Sequential 'sequential")
        assert " of ids int32 (None, None), 178 parameters, " in line
        result = cli("inspect", "model.keras", "--details")
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
            "Pooling1D",
            "Dense",
        ]

    def test_a_generator_says_how_it_generates(self, cli, tmp_path):
        model = kp.Transformer(9, **SIZES)
        made = kp.Generator(
            model, max_length=7, beams=3, start_id=2, end_ids=[3, 4]
        )
        made.save(tmp_path / "made.keras")
        result = cli("inspect", tmp_path / "made.keras")
        line, how = result.out.splitlines()
        assert ": Keras Generator 'generator" in line
        assert how == (
            "Generates with max_length=7, beams=3, start_id=2, end_ids=(3, 4)."
        )
