"""The id of padding where the config and the tokenizer say different ones."""

import json
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402

FIXTURES = Path(__file__).parent.parent / "fixtures"
BY_TOKENIZER = FIXTURES / "padded_by_tokenizer"
WITH_END = FIXTURES / "padded_with_end"
# As in `test_parity.py`.
TOLERANCE = 5e-6
SETTINGS, WHOLE = "tokenizer_config.json", "tokenizer.json"
TOKENIZER = json.loads((BY_TOKENIZER / WHOLE).read_text(encoding="utf-8"))
PIECES = [piece for piece, _ in TOKENIZER["model"]["vocab"]]
PAD = {"pad_token": "<pad>"}


def loaded(folder, **options):
    return kp.load_hugging_face(folder, verbose=False, **options)


def expected_of(folder):
    with np.load(folder / "expected.npz") as arrays:
        return dict(arrays)


def check(model, inputs, arrays):
    """Checks the outputs at tokens, which are those of transformers."""
    found = keras.ops.convert_to_numpy(model(inputs))
    mask = arrays["mask"].astype(bool)[:, :, None]
    error = np.abs(np.where(mask, found - arrays["hidden"], 0)).max()
    assert error <= TOLERANCE * np.abs(arrays["hidden"]).max()


@pytest.fixture
def made(tmp_path):
    """A copy of a folder, with other files: their content, or None."""

    def made(original, **files):
        folder = shutil.copytree(original, tmp_path / "copy")
        for name, content in files.items():
            name = name.replace("__", ".")
            path = folder / (name if "." in name else f"{name}.json")
            path.unlink(missing_ok=True)
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            elif content is not None:
                path.write_text(json.dumps(content), encoding="utf-8")
        return folder

    return made


GONE = {"tokenizer": None, "tokenizer_config": None}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"tokenizer_config": {"pad_token": {"content": "<pad>"}}},
        GONE | {"vocab__txt": "\n".join(PIECES)},
        GONE | {"vocab": {piece: i for i, piece in enumerate(PIECES)}},
        GONE | {"sentencepiece.bpe__model": "a model"},
        GONE,
    ],
)
def test_ids_are_masked_as_their_tokenizer_pads(made, files):
    arrays = expected_of(BY_TOKENIZER)
    options = {"pad_id": 1} if files == GONE else {}
    model = loaded(made(BY_TOKENIZER, **files), from_ids=True, **options)
    check(model, arrays["ids"], arrays)


def test_texts_are_padded_as_by_their_tokenizer(tmp_path):
    arrays = expected_of(BY_TOKENIZER)
    model = loaded(BY_TOKENIZER)
    texts = arrays["texts"].astype("object")
    np.testing.assert_array_equal(model.layers[0](texts), arrays["ids"])
    check(model, texts, arrays)
    saved = kp.save_hugging_face(model.encoder, tmp_path, verify=False)
    assert json.loads((saved / "config.json").read_text())["pad_token_id"] == 1
    check(loaded(saved, from_ids=True), arrays["ids"], arrays)


def test_pairs(made):
    """Whatever their config says, for types and mask alike."""
    pairs = FIXTURES / "pairs" / "bert"
    said = json.loads((pairs / "config.json").read_text())
    ids = expected_of(pairs)["ids_24"].astype("int32")
    options = {"from_ids": True, "pairs": True}
    other = loaded(made(pairs, config=said | {"pad_token_id": 7}), **options)
    np.testing.assert_array_equal(other(ids), loaded(pairs, **options)(ids))


@pytest.mark.parametrize(
    "name",
    [
        *("albert", "bert", "deberta_v2", "distilbert", "electra", "esm"),
        *("eurobert", "gte", "modernbert", "mpnet", "nomic_bert", "roberta"),
        *("roformer", "xlm_roberta"),
    ],
)
def test_no_family_masks_by_another_id_than_the_tokenizer(made, name):
    tokens = [f"word{number}" for number in range(10)]
    vocabulary = "\n".join([*tokens, "[PAD]"])
    folder = made(FIXTURES / "hugging_face" / name, vocab__txt=vocabulary)
    if "roberta" in name or name == "mpnet":  # which count tokens by the id
        with pytest.raises(ValueError, match=r"'\[PAD\]', id 10. Correct the"):
            loaded(folder, from_ids=True)
        return
    encoder = loaded(folder, from_ids=True, encoder_only=True).encoder
    assert encoder.pad_id == encoder.embedding.pad_id == 10


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_text_that_spells_the_padding(name):
    """Its token is attended to, as by transformers; also from the text's ids.

    RoBERTa's has the position of padding, and none is counted for it.
    """
    spelled = json.loads((FIXTURES / "pairs" / "spelled.json").read_text())
    texts, wanted = spelled[name]["texts"], np.array(spelled[name]["first"])
    model = loaded(FIXTURES / "pairs" / name, encoder_only=True)
    ids = np.array(model.layers[0](texts))
    with_more = np.pad(ids, ((0, 0), (2, 3)), constant_values=ids[2][-1])
    of_ids = kp.TransformerEncoderModel.from_config(model.encoder.get_config())
    of_ids.set_weights(model.encoder.get_weights())
    # A layer after the encoder pools all tokens, of a model from texts too.
    text, pooling = keras.Input((), dtype="string"), kp.Pooling1D("mean")
    pooled = keras.Sequential([text, *model.layers, pooling])
    lengths = np.argmax(ids == model.layers[0].end_id, axis=1) + 1
    for found, length, tokens in zip(
        pooled(tf.constant(texts)), lengths, model(texts), strict=True
    ):
        np.testing.assert_allclose(
            found, np.mean(tokens[:length], 0), atol=1e-6
        )
    for found in (
        model(texts)[:, 0],
        of_ids(ids)[:, 0],
        of_ids(with_more[:, 2:])[:, 0],
    ):
        error = np.abs(found[:, :8] - wanted).max()
        assert error <= TOLERANCE * np.abs(wanted).max()
    # Padding before a text is none of it either.
    mask = model.encoder.embedding.compute_mask(with_more)
    assert np.array_equal(
        mask, np.pad(mask[:, 2:-3], ((0, 0), (2, 3)), constant_values=False)
    )
    by_id = loaded(FIXTURES / "pairs" / name, encoder_only=True, from_ids=True)
    assert np.abs(by_id(ids)[:, 0, :8] - wanted).max() > 0.01


def test_padded_with_the_end(made):
    """As the message says, with the id of a reserved token."""
    arrays, model = expected_of(WITH_END), loaded(WITH_END)
    pad_id = model.layers[0].pad_id
    ids = np.array(model.layers[0](arrays["texts"]))
    assert set(ids[~arrays["mask"].astype(bool)]) == {pad_id}
    for folder in (WITH_END, made(WITH_END, **GONE)):
        with pytest.raises(ValueError, match=r"257, which .* that as `pad"):
            loaded(folder, from_ids=True)
        check(loaded(folder, from_ids=True, pad_id=pad_id), ids, arrays)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("bert", {"pad_id": 1}, "`pad_id` must be None"),
        ("bert", {"from_ids": True, "pad_id": 48}, "`pad_id` must be"),
        ("bert", {"from_ids": True, "pad_id": 1.5}, "`pad_id` must be"),
        (
            "roberta",
            {"from_ids": True, "pad_id": 0},
            "`pad_id` must be 1, the pad_token_id of",
        ),
    ],
)
def test_refused(name, options, word):
    with pytest.raises(ValueError, match=re.escape(word)):
        loaded(FIXTURES / "hugging_face" / name, **options)


def test_a_padding_that_is_no_token(made):
    files = {"tokenizer_config": PAD, "vocab__txt": "[UNK]\n[PAD]"}
    folder = made(FIXTURES / "hugging_face" / "bert", **files)
    with pytest.raises(ValueError, match=r"'<pad>', which is in none of its"):
        loaded(folder, from_ids=True)
