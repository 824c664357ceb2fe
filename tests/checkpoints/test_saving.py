"""What is saved, and read again."""

import json
import resource
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
BERT = {
    "vocabulary_size": 12,
    "d_model": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 6,
    "input_position": "table",
    "embedding_norm": True,
}
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] to be or not ##s , é e".split()


def made(options, **others):
    options = {**options, **others}
    if options["input_position"] == "table":
        options["input_position"] = kp.PositionEmbedding(10)
    return kp.TransformerEncoderModel(**options)


def classifier(*layers, **options):
    return kp.PretrainedModel(
        [
            keras.Input((None,), dtype="int32"),
            kp.TransformerEncoderModel(
                **{**BERT, "input_position": kp.PositionEmbedding(10)},
                name="encoder",
            ),
            *layers,
        ],
        **options,
    )


def answers(model, ids):
    return keras.ops.convert_to_numpy(model(ids))


@pytest.mark.parametrize("name", ["bert", "bert_classifier"])
def test_what_was_loaded_is_saved_as_it_was(name, tmp_path):
    model = kp.load_hugging_face(FIXTURES / name, from_ids=True, verbose=False)
    saved = kp.save_hugging_face(model, tmp_path / "new" / "saved")
    again = kp.load_hugging_face(saved, from_ids=True, verbose=False)
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        ids = arrays["ids"]
    assert np.array_equal(answers(again, ids), answers(model, ids))
    assert again.labels == model.labels
    first, last = (
        json.loads((folder / "config.json").read_text("utf-8"))
        for folder in (FIXTURES / name, saved)
    )
    both = first.keys() & last.keys()
    assert {key: last[key] for key in both} == {key: first[key] for key in both}
    assert len(both) >= 14
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["saved"]


def test_an_encoder_of_ones_own(tmp_path):
    model = made(BERT, activation="gelu_tanh", pad_id=2)
    for weight in model.weights:
        if "beta" not in weight.path:
            weight.assign(keras.random.normal(weight.shape, seed=1))
    saved = kp.save_hugging_face(model, tmp_path)
    again = kp.load_hugging_face(saved, from_ids=True, verbose=False)
    ids = np.array([[4, 5, 6, 7, 1, 0, 2, 2], [8, 1, 3, 4, 5, 6, 7, 9]])
    assert np.array_equal(answers(again, ids), answers(model, ids))
    with pytest.raises(FileExistsError, match="new or empty"):
        kp.save_hugging_face(model, tmp_path)


@pytest.mark.parametrize(
    ("activation", "of_tokens"),
    [("softmax", True), ("sigmoid", False), (None, False)],
)
def test_classifiers(activation, of_tokens, tmp_path):
    layers = (
        []
        if of_tokens
        else [
            kp.Pooling1D("first"),
            keras.layers.Dense(8, activation="tanh"),
        ]
    )
    layers.append(keras.layers.Dense(3))
    if activation is not None:
        layers.append(keras.layers.Activation(activation))
    model = classifier(*layers, labels=["a", "é", "c"])
    saved = kp.save_hugging_face(model, tmp_path)
    again = kp.load_hugging_face(saved, from_ids=True, verbose=False)
    ids = np.array([[4, 5, 6]])
    assert np.array_equal(answers(again, ids), answers(model, ids))
    assert again.labels == model.labels


def test_a_tokenizer_and_lora(tmp_path):
    tokenizer = kp.WordpieceTokenizer(
        VOCABULARY, normalization="bert", max_length=7, strip_accents=False
    )
    encoder = made(BERT, name="encoder")
    projection = encoder.encoder.blocks[1].feed_forward.intermediate
    projection.enable_lora(2)
    projection.lora_kernel_b.assign(keras.ops.ones((2, 6)))
    model = kp.PretrainedModel(
        [keras.Input((), dtype="string"), tokenizer, encoder]
    )
    saved = kp.save_hugging_face(model, tmp_path)
    again = kp.load_hugging_face(saved, verbose=False)
    texts = keras.ops.convert_to_tensor(["TO be, or nots É [SEP]", "é"])
    # A sum of two products, for one of sums: each of 8 terms about 1.
    np.testing.assert_allclose(
        answers(again, texts), answers(model, texts), atol=8 * 2**-20
    )


def positions_of_tokens():
    position = kp.PositionEmbedding(10, skip_masked=True)
    return kp.TransformerEncoderModel(**BERT | {"input_position": position})


def quantized():
    model = made(BERT)
    model.encoder.blocks[1].feed_forward.intermediate.quantize("int8")
    return model


def with_tokenizer(**options):
    tokenizer = kp.WordpieceTokenizer(VOCABULARY, **options)
    return kp.PretrainedModel(
        [keras.Input((), dtype="string"), tokenizer, made(BERT, pad_id=1)]
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(BERT, embedding_norm=False), "`embedding_norm` of the"),
        (lambda: made(BERT, use_gate=True), "`use_gate` of the encoder must"),
        (lambda: made(BERT, activation="elu"), "`activation` of the encoder"),
        (lambda: made(BERT, norm="between"), "`norm_at` of the encoder"),
        (positions_of_tokens, "`input_position` of the encoder must be"),
        (
            lambda: made(BERT, attention=kp.RotaryEmbedding()),
            "`attention_position` of the encoder must be",
        ),
        (quantized, "is quantized"),
        (lambda: keras.Sequential([]), "`model` must be a PretrainedModel"),
        (
            lambda: classifier(kp.Pooling1D("mean")),
            r"save its encoder: save_hugging_face\(model.encoder, folder\)",
        ),
        (
            lambda: classifier(
                kp.Pooling1D("mean"),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.Dense(3),
            ),
            "After the encoder there must be BERT's classifier",
        ),
        (with_tokenizer, "`normalization` of the tokenizer"),
        (lambda: with_tokenizer(normalization="bert"), "`pad_id`"),
        (
            lambda: with_tokenizer(normalization="bert", special_tokens=()),
            "`special_tokens` of the tokenizer",
        ),
    ],
)
def test_refuses_what_cannot_be_said(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        kp.save_hugging_face(make(), tmp_path / "new")
    assert not list(tmp_path.iterdir())


def contents(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


class TestFolder:
    """A folder is there whole, or not at all, and nothing lies next to it."""

    @pytest.fixture
    def save(self):
        model = made(BERT)
        return lambda folder: kp.save_hugging_face(model, folder)

    def test_what_a_killed_process_left_is_removed(self, save, tmp_path):
        half = tmp_path / f".{'0' * 32}.partial"
        half.mkdir()
        (half / "model.safetensors").write_text("half")
        saved = save(tmp_path / "mine")
        assert contents(tmp_path) == [
            "mine",
            "mine/config.json",
            "mine/model.safetensors",
        ]
        assert kp.load_hugging_face(saved, from_ids=True, verbose=False)

    def test_links(self, save, tmp_path):
        (tmp_path / "empty").mkdir()
        for name in ("empty", "nothing_yet"):
            link = tmp_path / f"to_{name}"
            link.symlink_to(tmp_path / name)
            save(link)
            assert link.is_symlink()
            assert (tmp_path / name / "config.json").exists()

    def test_a_full_disk(self, save, tmp_path):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
        try:
            with pytest.raises(
                kp.ExportError, match=r"Cannot write to .*large"
            ):
                save(tmp_path / "mine")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert contents(tmp_path) == []

        with pytest.raises(kp.ExportError, match="Cannot write to '/proc"):
            save("/proc/mine")
