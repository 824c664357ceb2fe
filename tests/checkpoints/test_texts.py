"""Models of texts: how these are given, and where they are cut."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.checkpoints.folders import add_modules

pytestmark = pytest.mark.tensorflow
BERT = Path(__file__).parent.parent / "fixtures" / "hugging_face" / "bert"
POSITIONS = 24
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
TEXTS = ["one", "two one"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """That of a sentence encoder, with a tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    shutil.copytree(BERT, folder)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, "one", "two"]))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 6}')
    add_modules(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return kp.load_hugging_face(folder, verbose=False)


@pytest.fixture(scope="module")
def of_pairs():
    pairs = BERT.parents[1] / "pairs" / "bert"
    return kp.load_hugging_face(pairs, pairs=True, verbose=False)


@pytest.fixture(scope="module")
def expected(model):
    return model.predict(keras.ops.convert_to_tensor(TEXTS), verbose=0)


class Column:
    """What a table's column has of the methods of pandas."""

    def to_numpy(self):
        return np.array(TEXTS, "object")


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, "object"),
        np.array(TEXTS, "S"),
        Column(),
    ],
    ids=["list", "tuple", "str", "object", "bytes", "column"],
)
def test_texts(model, expected, texts):
    np.testing.assert_array_equal(model.predict(texts, verbose=0), expected)
    tensor = keras.ops.convert_to_tensor(TEXTS)
    np.testing.assert_array_equal(model(texts), model(tensor))


def test_pairs(of_pairs):
    pairs = [TEXTS, TEXTS[::-1]]
    tensor = keras.ops.convert_to_tensor(pairs)
    expected = of_pairs.predict(tensor, verbose=0)
    np.testing.assert_array_equal(of_pairs.predict(pairs, verbose=0), expected)


def test_no_texts(model, of_pairs):
    assert model.predict([], verbose=0).shape == (0, 16)
    assert of_pairs.predict(np.zeros((0, 2), "U1")).shape == (0, 1)
    with pytest.raises(ValueError, match="array of pairs of texts"):
        of_pairs.predict(TEXTS)


@pytest.mark.parametrize("way", ["predict", "__call__"])
@pytest.mark.parametrize(
    ("texts", "received"),
    [
        (["one", None], "None among"),
        ([TEXTS], "[['one', 'two one']]"),
        (np.ones(2), "1.0 among"),
    ],
)
def test_no_texts_of_the_model(model, way, texts, received):
    with pytest.raises(ValueError, match="takes a list or an array") as raised:
        getattr(model, way)(texts)
    assert f"of texts. Received: {received}" in str(raised.value)


def test_batches_of_any_size_are_traced_once(folder):
    """Without TensorFlow's warnings, which count all models together."""
    for way in (list, keras.ops.convert_to_tensor):
        model = kp.load_hugging_face(folder, verbose=False)
        for size in (1, 3, 2):
            ask = model.encode_query if way is list else model.predict
            ask(way(["one"] * size), verbose=0)
        assert model.predict_function.experimental_get_tracing_count() == 1
    for size in (1, 3, 2):
        model.predict_on_batch(keras.ops.convert_to_tensor(["one"] * size))
    assert model.predict_function.experimental_get_tracing_count() == 2


class TestMaxLength:
    @pytest.mark.parametrize("length", [3, 8, POSITIONS])
    def test_texts_are_cut(self, folder, model, length):
        """At another length than the checkpoint's, which is 6."""
        other = kp.load_hugging_face(folder, max_length=length, verbose=False)
        long = ["one " * POSITIONS]
        assert model.layers[0](long).shape == (1, 6)
        assert other.layers[0](long).shape == (1, length)

    @pytest.mark.parametrize(
        ("length", "reason"),
        [
            (POSITIONS + 1, "at most 24, .* max_length=25"),
            (1, "at least 2, .* max_length=1"),
        ],
    )
    def test_refused(self, folder, length, reason):
        with pytest.raises(ValueError, match=f"`max_length` must be {reason}"):
            kp.load_hugging_face(folder, max_length=length, verbose=False)
