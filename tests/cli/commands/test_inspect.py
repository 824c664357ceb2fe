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
        # Another test may have had it verified, and so recorded.
        changed = inspection.pop("changed")
        assert not changed
        recorded = (
            "there is no record that it was verified"
            if changed is None
            else "the files are those that were verified"
        )
        operators = inspection.pop("operators")
        is_saved_model = kind == "saved_model"
        # A layer of several signatures is stored once.
        assert operators[operator] == 1
        weights = inspection.pop("weight_bytes")
        assert (20 * 8 + 8 * 2 + 2) * 4 <= weights < size
        ids = {"ids": {"shape": [None, None], "dtype": "int32"}}
        lengths = {"lengths": {"shape": [None], "dtype": "int32"}}
        scores = {"scores": {"shape": [None, 2], "dtype": "float32"}}
        more = {"from_ids": {"inputs": {**ids, **lengths}, "outputs": scores}}
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
            "has_variables": is_saved_model,
            "quantization": None,
            "sections": [],
            "package": None,
            "metadata": None,
        }

        line = (
            f"{path}: {kind}, {units.size(size)}, safe, signatures: "
            f"{', '.join(inspection['signatures'])}"
        )
        result = cli("inspect", artifact)
        assert (result.code, result.err) == (0, "")
        assert result.out.splitlines() == [line, recorded]
        result = cli("inspect", artifact, "--details")
        assert (result.code, result.err) == (0, "")
        first, *table = result.out.splitlines()
        assert first == line
        assert f"weights: {units.size(weights)}" in table
        assert {
            "serving_default, input ids: int32 (None, None)",
            "serving_default, output scores: float32 (None, 2)",
            *(f"{name}: {count}" for name, count in operators.items()),
        } <= {*table}

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
