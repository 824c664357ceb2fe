"""Ids of checkpoints' tokenizers: those of transformers, from fixtures."""

import base64
import gzip
import json
import sys
import types
import unicodedata
import zlib
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")

from keras_posenc.checkpoints.folder import Folder  # noqa: E402
from keras_posenc.checkpoints.tokenizers import tokenizer_of  # noqa: E402
from keras_posenc.text.sentencepiece_model import model_class  # noqa: E402
from tests.text.files import content  # noqa: E402

FILE = Path(__file__).parents[1] / "fixtures" / "checkpoint_tokenizers.json.gz"
FIXTURE = json.loads(gzip.decompress(FILE.read_bytes()))
MODEL = base64.b64decode(content("sentencepiece")["model"])
RULES = model_class().FromString(MODEL).normalizer_spec.precompiled_charsmap


def write(folder, files):
    for name, said in files.items():
        path = folder / name
        if isinstance(said, str):
            path.write_text(said, encoding="utf-8")
        elif "base64" in said:  # of Marian
            model = model_class().FromString(base64.b64decode(said["base64"]))
            model.normalizer_spec.precompiled_charsmap = RULES
            path.write_bytes(model.SerializeToString())
        else:
            encoded = base64.b64encode(RULES).decode()
            text = json.dumps(said).replace(
                '"precompiled_charsmap": ""',
                f'"precompiled_charsmap": "{encoded}"',
            )
            path.write_text(text, encoding="utf-8")


def made(folder, case):
    write(folder, case["files"])
    encoder = types.SimpleNamespace(
        pad_id=case["pad_id"], vocabulary_size=2000, input_position=None
    )
    return tokenizer_of(Folder(folder), encoder)


def different(tokenizer, case):
    """Texts with other ids than transformers gives."""
    texts = FIXTURE["texts"]
    ids = np.array(tokenizer(texts))
    lengths = tokenizer.split(texts).row_lengths().numpy() + 2
    rows = (
        row[:length].astype("<i4")
        for row, length in zip(ids, lengths, strict=True)
    )
    sums = [zlib.crc32(row.tobytes()) for row in rows]
    return [
        text
        for text, found, expected in zip(
            texts, sums, case["checksums"], strict=True
        )
        if found != expected
    ]


def becomes_unknown(text):
    """Whether it spells `<unk>` once it is lowercased, without accents."""
    letters = unicodedata.normalize("NFKD", text).lower()
    plain = (each for each in letters if unicodedata.category(each) != "Mn")
    return "<unk>" not in text and "<unk>" in "".join(plain)


@pytest.mark.parametrize("name", FIXTURE["cases"])
def test_ids(name, tmp_path):
    case = FIXTURE["cases"][name]
    tokenizer = made(tmp_path, case)
    again = type(tokenizer).from_config(tokenizer.get_config())
    found = different(again, case)
    # Of the pieces of ALBERT's model, "<unk>" is found as it is spelled only.
    assert any(map(becomes_unknown, found)) == (name == "albert_saved")
    assert [text for text in found if not becomes_unknown(text)] == []


@pytest.mark.parametrize(
    ("name", "file", "setting", "word"),
    [
        ("deberta_saved", "tokenizer_config.json", "split_by_punct", "True c"),
        ("albert_saved", "tokenizer_config.json", "keep_accents", "True con"),
        ("esm", "tokenizer_config.json", "do_lower_case", "True is not supp"),
    ],
)
def test_refused(tmp_path, name, file, setting, word):
    case = FIXTURE["cases"][name]
    said = {**case["files"].get(file, {}), setting: True}
    with pytest.raises(ValueError, match=f"{file}', key '{setting}': .*{word}"):
        made(tmp_path, {**case, "files": {**case["files"], file: said}})


def test_files_of_an_older_tokenizer(tmp_path, monkeypatch):
    """transformers makes the new one of them; a stand-in has it here."""
    case = FIXTURE["cases"]["deberta_saved"]
    files = dict(case["files"])
    new = {"tokenizer.json": files.pop("tokenizer.json")}
    older = {**case, "files": {**files, "spm.model": "pieces"}}
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(FileNotFoundError, match=r"save_pretrained\(FOLDER\)"):
        made(tmp_path, older)

    def from_pretrained(path, *, local_files_only, trust_remote_code):
        assert (local_files_only, trust_remote_code) == (True, False)
        if path != str(tmp_path):
            raise OSError("no such folder")
        return types.SimpleNamespace(
            save_pretrained=lambda to: write(Path(to), new)
        )

    known = types.ModuleType("transformers")
    known.AutoTokenizer = types.SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", known)
    assert not any(map(becomes_unknown, different(made(tmp_path, older), case)))
    new["tokenizer.json"] = "no JSON"
    with pytest.raises(ValueError, match=r"does not make it here: .*JSON"):
        made(tmp_path, older)
