"""`keras-posenc inspect`."""

import json

import keras
import pytest

import keras_posenc as kp
from keras_posenc.export import units

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
        assert result.out == json.dumps(found, indent=2) + "\n"
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
