"""Packages of sentence encoders, in LiteRT-LM's own engine.

Its tokenizer is Hugging Face's library, which is the oracle for token ids;
vectors are those of sentence-transformers, kept in `tests/fixtures`.
"""

import json
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

litert_lm = pytest.importorskip("litert_lm")
pytest.importorskip("litert_lm_builder")

import keras_posenc as kp  # noqa: E402
from keras_posenc.export.formats import litertlm_embedder  # noqa: E402
from keras_posenc.export.formats.litert_convert import convert  # noqa: E402
from keras_posenc.export.formats.litertlm_package import (  # noqa: E402
    write_package,
)
from keras_posenc.export.formats.litertlm_run import vectors  # noqa: E402
from keras_posenc_cli import main  # noqa: E402
from tests.text.files import FIXTURES  # noqa: E402

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:Cut to 24 tokens"),
]
SAID = json.loads((FIXTURES / "sentences" / "variants.json").read_text())
TEXTS, LONGEST = SAID["texts"], 24
# Of the engine, the converter and sentence-transformers: two blocks in float32.
TOLERANCE = 1e-5


def write(folder, files, kind="bert"):
    """Writes the folder of a sentence encoder, with some of its files."""
    source = FIXTURES / "pairs" / kind
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder)
    tensors = load_file(source / "model.safetensors")
    kept = {k: v for k, v in tensors.items() if "classifier" not in k}
    save_file(kept, folder / "model.safetensors")
    for name, said in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(said))
    return folder


def loaded(folder, **options):
    return kp.load_hugging_face(folder, verbose=False, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("several") / "model"
    return write(path, SAID["variants"]["several"])


@pytest.fixture(scope="module")
def model(folder):
    """With four poolings in one vector."""
    return loaded(folder)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("package") / "several.litertlm"
    return kp.export_litertlm(
        model, path, lengths=(8, LONGEST), samples=TEXTS, verbose=False
    )


def run(path, texts, **options):
    with litert_lm.EmbeddingEngine(str(path), cache_dir=":nocache") as engine:
        given = litert_lm.EmbeddingOptions(**options)
        return np.array(
            [engine.compute_embedding(x, given).embedding for x in texts]
        )


CUT = {"input_overflow_strategy": litert_lm.InputOverflowStrategy.TRUNCATE}


def test_the_engine_gives_sentence_transformers_vectors(exported):
    with np.load(FIXTURES / "sentences" / "expected.npz") as arrays:
        expected = arrays["several/usual"]
    found = run(exported.path, TEXTS, normalize=False, **CUT)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error <= TOLERANCE
    with pytest.raises(RuntimeError, match="Failed to compute"):
        run(exported.path, [" text" * LONGEST])


def test_the_command_exports_a_folder(tmp_path, capfd):
    folder = write(tmp_path / "model", SAID["variants"]["lasttoken"])
    path = tmp_path / "m.litertlm"
    options = ["--lengths", "24", "--no-verify"]
    asked = ["export", "litertlm", str(folder), "--out", str(path)]
    assert main([*asked, *options]) == 0
    assert "not verified" in capfd.readouterr().out
    assert [*kp.inspect_export(path).signatures] == ["embed", "encoder_24"]
    assert main([*asked, "--cache-length", "64"]) != 0
    assert "an option of language models" in capfd.readouterr().err


def test_the_report_says_what_was_run(exported):
    text = exported.report.details()
    (ids,) = (x for x in exported.report.checks if "the vectors of" in x)
    assert int(ids.split()[-2]) >= 20
    assert "before its texts: query 'a query of a text: '" in text
    found = kp.inspect_export(exported.path)
    assert [*found.signatures] == ["embed", "encoder_24", "encoder_8"]
    (replayed,) = kp.verify_export(exported.path, verbose=False).runtimes
    assert replayed.errors == []
    assert replayed.cases >= 2


def test_the_command_chats_with_no_embedder(exported, capsys):
    assert main(["chat", str(exported.path), "--prompt", "Hello"]) == 2
    assert "makes vectors of texts, not replies" in capsys.readouterr().err


def test_rounded_weights_of_roberta_whose_texts_may_spell_padding(tmp_path):
    files = SAID["variants"]["weightedmean"]
    model = loaded(write(tmp_path / "model", files, "roberta"))
    model = model.with_prompt("")
    exported = kp.export_litertlm(
        model, tmp_path / "m.litertlm", quantization="int8", verbose=False
    )
    texts = ["a <pad> b", "<pad><pad>", "the text of one file"]
    found = run(exported.path, texts)
    vectors = model.predict(texts, verbose=0)
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = np.sum(found * vectors, axis=1) / lengths
    # 8 bits turn a vector by less than five degrees; positions that count
    # padding turn it by 30.
    assert cosines.min() > 0.996
    assert exported.report.quantization == "int8"


def test_a_package_of_other_weights_does_not_appear(
    model, tmp_path, monkeypatch
):
    def damaged(signatures, mode, file):
        convert(signatures, mode, file)
        encoder = signatures[0].model
        if encoder.name == "text_encoder":  # one norm of it, by a thousandth
            *_, norm = (x for x in encoder.weights if x.name == "gamma")
            gamma = keras.ops.convert_to_numpy(norm)
            content = file.read_bytes()
            assert gamma.tobytes() in content
            other = (gamma * np.float32(1.001)).tobytes()
            file.write_bytes(content.replace(gamma.tobytes(), other))

    monkeypatch.setattr(litertlm_embedder, "convert", damaged)
    with pytest.raises(kp.ExportVerificationError, match="does not reproduce"):
        kp.export_litertlm(
            model, tmp_path / "m.litertlm", lengths=(LONGEST,), verbose=False
        )
    assert not [*tmp_path.iterdir()]


def test_a_package_that_the_engine_does_not_run(model, tmp_path):
    path = tmp_path / "ids.litertlm"
    metadata = litertlm_embedder._metadata(model.embedder_parts(), [LONGEST])
    write_package(path, metadata, {}, {})
    texts = [("embedding", np.array(["a"], object))]
    with pytest.raises(kp.ExportVerificationError, match="LiteRT-LM's engine"):
        vectors(path, texts)


# ---- What is refused


def test_what_no_package_can_hold(model, tmp_path):
    path = tmp_path / "m.litertlm"
    ids = loaded(FIXTURES / "pairs" / "bert", from_ids=True, encoder_only=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    for given, options, reason in (
        (plain, {}, "kp.PretrainedModel"),
        (model, {"cache_length": 64}, "an option of language models"),
        (ids, {}, "must turn single texts into one vector"),
        (model.with_prompt("query: "), {}, r"model.with_prompt\(''\)"),
        (model, {"lengths": (8, 32)}, "at most 24, as many as the model"),
        (model, {"lengths": "8"}, "must be a list of integers"),
        (model, {"lengths": (2,)}, "must be a list of integers"),
        (model, {"quantization": "int8-static"}, "'float16', 'int8'"),
        (model, {"samples": [np.zeros((1, 4))]}, "must be texts"),
    ):
        with pytest.raises(ValueError, match=reason):
            kp.export_litertlm(given, path, verbose=False, **options)
    with pytest.raises(ValueError, match="normalization='bert'"):
        kp.WordpieceTokenizer(words).tokenizer_json()
    assert not [*tmp_path.iterdir()]
