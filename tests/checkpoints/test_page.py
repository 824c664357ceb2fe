"""The code of docs/pretrained.md and of the README, and its command."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints.tensors import CONVERSION
from tests.checkpoints.folders import add_modules

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pretrained.md").read_text(encoding="utf-8")
BERT = ROOT / "tests" / "fixtures" / "hugging_face" / "bert"


def test_conversion(tmp_path, monkeypatch):
    """The page's command makes weights of several files, shared ones too."""
    assert f"```sh\n{CONVERSION}\n```" in PAGE
    torch = pytest.importorskip("torch")
    load_file = pytest.importorskip("safetensors.numpy").load_file
    folder = Path(shutil.copytree(BERT, tmp_path / "bert"))
    expected = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    # Transposed in memory, and one of them twice.
    tensors = {
        name: torch.from_numpy(np.asfortranarray(array))
        for name, array in expected.items()
    }
    twice = tensors["embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.weight"] = twice
    monkeypatch.chdir(folder)
    for part in range(2):
        some = dict([*tensors.items()][part::2])
        torch.save(some, f"pytorch_model-0000{part + 1}-of-00002.bin")
    exec(CONVERSION.split('"')[1])
    found = load_file("model.safetensors")
    assert found.keys() == tensors.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    kp.load_hugging_face(folder, from_ids=True, verbose=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Cut to 24 tokens")  # of tiny models
def test_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    folder = Path(shutil.copytree(BERT, name))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(97, 123))]
    (folder / "vocab.txt").write_text("\n".join(tokens))
    add_modules(folder)
    shutil.copytree(folder, folder.name)
    *blocks, of_pairs, of_classes, of_keras_hub = re.findall(
        r"(?s)```py\n(.*?)```", PAGE
    )
    names = {}
    for code in blocks:
        exec(code, names)
    assert names["vectors"].shape == (3, 16)
    assert Path("minilm.keras").is_file()
    assert Path("mine", "modules.json").is_file()
    assert names["best"].shape == (3,)
    assert names["tuned"].labels == ("files", "threads")
    assert not any("lora" in w.name for w in names["tuned"].weights)
    assert isinstance(names["model"].encoder, kp.TransformerEncoderModel)
    shutil.copytree(BERT.parents[1] / "pairs" / "bert", "ms-marco-MiniLM-L6-v2")
    exec(of_pairs, names)
    assert names["scores"].shape == (2, 1)
    fixtures = BERT.parents[1]
    shutil.copytree(fixtures / "encoder_decoders/bart_mnli", "bart-large-mnli")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(fixtures / "pairs/roberta" / file, "bart-large-mnli")
    exec(of_classes, names)
    assert names["scores"].shape == (3,)
    pytest.importorskip("keras_hub")
    exec(of_keras_hub, names)
    assert isinstance(names["model"], kp.TransformerEncoderModel)
    pytest.importorskip("mediapipe")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?s)```py\n(.*?)```", readme)
    exec(block.partition("chatty")[0], {"kp": kp})  # test_smollm2 chats
    assert Path("minilm.tflite").is_file()
