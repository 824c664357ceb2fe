"""`keras-posenc import`, and checkpoints in the place of .keras files."""

import json
import shlex
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.checkpoints.folders import add_modules

pytestmark = pytest.mark.tensorflow

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hugging_face"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A folder of the working directory, with a tokenizer."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(FIXTURES / "bert", "tiny")
    words = [f"word{number}" for number in range(48 - len(SPECIAL))]
    Path(folder, "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    return folder


class TestImport:
    def test_file_gives_the_answers_of_the_folder(self, run, checkpoint):
        result = run("import", checkpoint, "--max-length", 3)
        assert result.code == 0, result.err
        assert result.out.startswith("tiny.keras: bert, ")
        model = keras.saving.load_model("tiny.keras")
        expected = kp.load_hugging_face(checkpoint, max_length=3, verbose=False)
        assert model.layers[0].max_length == 3
        texts = keras.ops.convert_to_tensor(["word1 word2", "other"])
        np.testing.assert_array_equal(model(texts), expected(texts))

    def test_options(self, run, tmp_path):
        out = tmp_path / "made" / "ids.keras"
        result = run(
            *("import", FIXTURES / "bert_classifier", "--out", out),
            *("--from-ids", "--encoder-only", "--dtype", "mixed_bfloat16"),
            "--json",
        )
        assert result.code == 0, result.err
        told = json.loads(result.out)
        assert told["path"] == str(out)
        assert told["labels"] is None
        assert list(told["sha256"]) == ["model.safetensors"]
        model = keras.saving.load_model(out)
        assert model.inputs[0].name == "ids"
        assert model.encoder.encoder.dtype_policy.name == "mixed_bfloat16"
        # Nothing is left of what it was staged in.
        assert [path.name for path in out.parent.iterdir()] == ["ids.keras"]

    @pytest.mark.filterwarnings("ignore:.* does not say that its vectors may")
    def test_options_of_sentence_encoders(self, run, checkpoint):
        add_modules(Path(checkpoint))
        line = ["import", checkpoint, "--truncate-dim", 8, "--output", "int8"]
        result = run(*line, "--prompt", "query=find: ")
        assert result.code == 0, result.err
        model = keras.saving.load_model("tiny.keras")
        assert model.prompts == {"query": "find: "}
        assert model.outputs[0].dtype == "int8"
        assert model.outputs[0].shape == (None, 8)
        result = run(*line, "--encoder-only")
        assert result.code == 2
        assert "--truncate-dim must be None" in result.err

    def test_pairs(self, run, tmp_path):
        out = tmp_path / "pairs.keras"
        folder = FIXTURES.parent / "pairs" / "bert"
        result = run("import", folder, "--out", out, "--pairs")
        assert result.code == 0, result.err
        model = keras.saving.load_model(out)
        assert model.inputs[0].shape == (None, 2)

    def test_name_of_a_cached_revision(self, run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        cached = "models--who--tiny/snapshots/5f3a"
        shutil.copytree(FIXTURES / "bert", cached)
        result = run("import", cached, "--from-ids", "--json")
        assert result.code == 0, result.err
        told = json.loads(result.out)
        assert (told["path"], told["revision"]) == ("tiny.keras", "5f3a")

    def test_padding_of_ids(self, run, tmp_path):
        """By the option that the error asks for."""
        folder = FIXTURES.parent / "padded_with_end"
        out = ("--out", tmp_path / "ids.keras", "--from-ids")
        result = run("import", folder, *out)
        assert result.code == 2
        assert result.err.endswith("give that as --pad-id\n")
        result = run("import", folder, *out, "--pad-id", 259)
        assert result.code == 0, result.err
        model = keras.saving.load_model(tmp_path / "ids.keras")
        assert model.encoder.pad_id == 259

    def test_keys_to_ignore(self, run, checkpoint):
        """By the command that the error asks for."""
        config = Path(checkpoint, "config.json")
        more = {"it's $(x)": 1, "surprise": 2}
        config.write_text(json.dumps(json.loads(config.read_text()) | more))
        result = run("import", checkpoint)
        assert result.code == 2
        keys = [word for key in more for word in ("--ignore-keys", key)]
        command = shlex.join(["import", "tiny", *keys])
        assert f"keras-posenc {command} passes over" in result.err
        result = run(*shlex.split(command))
        assert result.code == 0, result.err
        result = run("import", checkpoint, "--ignore-keys", "hidden_act")
        assert result.code == 2
        assert "--ignore-keys must not name keys that" in result.err

    def test_layers_after_an_encoder_to_leave_out(self, run, checkpoint):
        """By the command that the error asks for, of other commands too."""
        config = Path(checkpoint, "config.json")
        said = json.loads(config.read_text())
        said["architectures"] = ["BertForMultipleChoice"]
        config.write_text(json.dumps(said))
        command = ("import", checkpoint, "--encoder-only")
        remedy = f"; keras-posenc {shlex.join(command)} loads the encoder"
        for line in ("import", "chat --prompt Hi", "export onnx --out m.onnx"):
            result = run(*line.split(), checkpoint)
            assert result.code == 2
            assert remedy in result.err
        assert run(*command).code == 0

    def test_refusal_in_other_commands(self, run, checkpoint, monkeypatch):
        """Of options that they lack, or that mean something else there."""

        def refuse(path, **_):
            raise ValueError("`max_length`, `pad_id`. Received: max_length=0")

        monkeypatch.setattr(kp, "load_hugging_face", refuse)
        told = "{0}--max-length, {0}--pad-id. Received: {0}--max-length=0\n"
        result = run("import", checkpoint)
        assert result.err.endswith(f": {told.format('')}")
        result = run("export", "onnx", checkpoint, "--out", "m.onnx")
        assert result.err.endswith(f": {told.format('keras-posenc import ')}")

    def test_what_a_terminal_would_obey(self, run, checkpoint):
        config = Path(checkpoint, "config.json")
        said = json.loads(config.read_text())
        config.write_text(json.dumps(said | {"\x1b[2J": 1}))
        result = run("import", checkpoint)
        assert result.code == 2
        assert r"\x1b[2J=1" in result.err


class TestInPlaceOfAFile:
    def test_export(self, run, checkpoint):
        out = ("--out", "tiny.tflite", "--no-verify", "--max-length", 4)
        result = run("export", "litert", checkpoint, *out)
        assert result.code == 0, result.err
        assert list(kp.inspect_export("tiny.tflite").signatures) == [
            "serving_default"
        ]
