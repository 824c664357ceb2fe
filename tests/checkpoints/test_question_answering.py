"""Question answering against `transformers`, on random weights."""

import base64
import gzip
import inspect
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
pytest.importorskip("safetensors")

from safetensors.numpy import load_file, save_file  # noqa: E402

import keras_posenc as kp  # noqa: E402
from keras_posenc.text.byte_pairs import BYTES  # noqa: E402
from keras_posenc.text.sentencepiece_file import convert_tokenizer  # noqa: E402
from keras_posenc.text.sentencepiece_model import model_class  # noqa: E402
from keras_posenc.text.spans import token_spans  # noqa: E402

FIXTURES = Path(__file__).parent.parent / "fixtures" / "answers"
PAIRS = json.loads((FIXTURES / "pairs.json").read_text(encoding="utf-8"))
NAMES = sorted(each.name for each in FIXTURES.iterdir() if each.is_dir())
TOLERANCE = 5e-6  # as in `test_parity.py`
FORBIDDEN = -10000.0


def loaded(folder, **options):
    return kp.load_hugging_face(folder, verbose=False, **options)


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def models():
    return {}


@pytest.fixture(scope="module")
def model(name, models):
    return models.setdefault(name, loaded(FIXTURES / name))


@pytest.fixture(scope="module")
def bert(models):
    return models.setdefault("bert", loaded(FIXTURES / "bert"))


def check_logits(outputs, folder):
    """The context's logits, and the first token's; no other can be chosen."""
    with np.load(folder / "expected.npz") as arrays:
        allowed = arrays["part"] == 1
        allowed[:, 0] = True
        assert not allowed.all(axis=1).any()
        assert set(outputs) == {"start", "end"}
        for key, found in outputs.items():
            found = keras.ops.convert_to_numpy(found)
            np.testing.assert_array_equal(found[~allowed], FORBIDDEN)
            errors = np.abs(found - arrays[key])[allowed]
            largest = np.abs(arrays[key][allowed]).max()
            assert errors.max() / largest <= TOLERANCE


def test_logits_from_texts(name, model):
    check_logits(model(PAIRS), FIXTURES / name)


def test_logits_from_ids(name):
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        ids = arrays["ids"].astype("int32")
    model = loaded(FIXTURES / name, from_ids=True)
    check_logits(model(ids), FIXTURES / name)


@pytest.mark.parametrize("key", ["answers", "or_nothing"])
def test_answers(name, model, key):
    expected = json.loads((FIXTURES / name / "expected.json").read_text())[key]
    found = model.answer(
        PAIRS,
        max_answer_length=15,
        allow_no_answer=key == "or_nothing",
        batch_size=3,
    )
    for one, (text, start, end, score), (_, context) in zip(
        found, expected, PAIRS, strict=True
    ):
        assert (one["text"], one["start"], one["end"]) == (text, start, end)
        assert one["score"] == pytest.approx(score, rel=1e-4)
        assert context[start:end] == text


def test_characters_of_tokens(name, model):
    """Except white space at their ends, where "tokenizers" has its own ways.

    A piece that is only white space has the character after it there.
    """
    expected = json.loads((FIXTURES / name / "expected.json").read_text())
    contexts = [context for _, context in PAIRS]
    found = token_spans(model.layers[1], contexts)
    assert [ids for ids, _ in found] == expected["ids"]
    for text, (_, spans), offsets in zip(
        contexts, found, expected["offsets"], strict=True
    ):
        for span, offset in zip(spans, offsets, strict=True):
            token = text[slice(*span)].strip()
            assert token == text[slice(*offset)].strip() or not token
            assert span[0] in range(offset[0] - 1, offset[1])


def test_characters_that_become_several():
    """A piece with a part of what one becomes has all of it."""
    said = json.loads((FIXTURES / "expansions.json").read_text())
    with gzip.open(FIXTURES.parent / "sentencepiece_parity.json.gz") as file:
        rules = (
            model_class()
            .FromString(base64.b64decode(json.load(file)["model"]))
            .normalizer_spec.precompiled_charsmap
        )
    encoded = base64.b64encode(rules).decode()
    (normalizer,) = said["tokenizer"]["normalizer"]["normalizers"]
    normalizer["precompiled_charsmap"] = encoded
    model, options = convert_tokenizer(said["tokenizer"])
    tokenizer = kp.SentencepieceTokenizer(model, **options)
    found = token_spans(tokenizer, said["texts"])
    assert [ids for ids, _ in found] == said["ids"]
    for text, (ids, spans), offsets in zip(
        said["texts"], found, said["offsets"], strict=True
    ):
        for index, span, offset in zip(ids, spans, offsets, strict=True):
            token = text[slice(*span)].strip()
            # There, a piece of white space has the character after it.
            wanted = text[slice(*offset)].strip() * (
                index != tokenizer.space_id
            )
            assert token == wanted


@pytest.mark.parametrize(
    ("options", "text", "tokens"),
    [
        # Letters keep their marks; what is deleted belongs to no token.
        ({}, "cafe\u0301 \u200bx\u00e9!", ["cafe\u0301", "x", "\u00e9", "!"]),
        ({}, "a[SEP]\u3000caf\u00e9", ["a", "[SEP]", "caf\u00e9"]),
        ({"lowercase": False}, "xe\u0301 A", ["xe\u0301", "A"]),
        ({}, f"{'x' * 101} a", ["x" * 101, "a"]),
        ({"added_tokens": ["cafe"]}, "xCAF\u00c9 a", ["x", "CAF\u00c9", "a"]),
        ({}, "", []),
    ],
)
def test_characters_of_words(options, text, tokens):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cafe", "x", "##e", "a"]
    tokenizer = kp.WordpieceTokenizer(
        vocabulary, normalization="bert", **options
    )
    ((_, spans),) = token_spans(tokenizer, [text])
    found = [text[slice(*span)] for span in spans]
    assert found == tokens


def test_composed_bytes():
    """A piece of a composed letter has all of the letter."""
    tokenizer = kp.BytePairTokenizer(
        ["<s>", "</s>", "<pad>", "<mask>", *BYTES],
        merges=[],
        normalization="nfc",
        add_prefix_space=True,
        special_tokens=[" <mask>"],
    )
    text = "e\u0301  <mask>\u00e4"
    ((_, spans),) = token_spans(tokenizer, [text])
    found = [text[slice(*span)] for span in spans]
    letter, other = "e\u0301", "\u00e4"
    assert found == ["", letter, letter, "  <mask>", "", other, other]


def test_kinds_that_have_no_spans():
    with pytest.raises(ValueError, match="Received: ByteTokenizer"):
        token_spans(kp.ByteTokenizer(), ["a"])


class TestAnswers:
    def test_several(self, bert):
        several = bert.answer(PAIRS[:2], top_k=5)
        best = bert.answer(PAIRS[:2])
        for (_, context), found, one in zip(
            PAIRS[:2], several, best, strict=True
        ):
            assert found[0] == one
            assert len(found) == 5
            scores = [each["score"] for each in found]
            assert scores == sorted(scores, reverse=True)
            spans = {(each["start"], each["end"]) for each in found}
            assert len(spans) == 5
            for each in found:
                assert each["text"] == context[each["start"] : each["end"]]
        assert bert.answer([]) == []

    @pytest.mark.parametrize(
        ("pairs", "message"),
        [
            (["a text", "another"], "an array of pairs of texts"),
            ([["a", 3]], "an array of pairs of texts"),
            ([["a", "b"], ["c", " "]], r"at index 1: context=' '"),
            ([["", "b"]], r"at index 0: question=''"),
            ([["a", "\u200b"]], "A context must have tokens"),
            ([["a [SEP]", "b"]], r"the token that ends it, '\[SEP\]'"),
            ([["a " * 70, "b"]], "72 of the 64 ids of a window"),
            ([["a", "\ud800"]], r"must be Unicode. Received at index 0: con"),
            (tf.constant([["a", "b"]]), "must be a list of pairs"),
        ],
    )
    def test_pairs_that_are_none(self, bert, pairs, message):
        with pytest.raises(ValueError, match=message):
            bert.answer(pairs)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"top_k": 0}, "`top_k`"),
            ({"max_length": 65}, "`max_length` must be at most 64"),
            ({"max_length": 2}, "`max_length` must be at least 3"),
        ],
    )
    def test_options(self, bert, options, message):
        with pytest.raises(ValueError, match=message):
            bert.answer(PAIRS[:1], **options)

    @pytest.mark.parametrize(
        ("max_length", "stride", "count"), [(24, 60, 1), (24, 19, 2), (9, 9, 1)]
    )
    def test_a_question_that_fills_a_window(
        self, bert, max_length, stride, count
    ):
        """Every remedy works when it is copied."""
        question, context = "is a very old word", PAIRS[0][1] * 4
        with pytest.raises(ValueError, match="The question takes") as raised:
            bert.answer(
                [[question, context]], max_length=max_length, stride=stride
            )
        remedies = re.findall(
            r"max_length=(\d+), stride=(\d+)", str(raised.value)
        )
        assert len(remedies) == count
        for longer, other in remedies:
            (found,) = bert.answer(
                [[question, context]], max_length=int(longer), stride=int(other)
            )
            assert found["text"]

    def test_a_model_of_ids(self):
        model = loaded(FIXTURES / "bert", from_ids=True)
        with pytest.raises(ValueError, match="and model 'bert' takes ids"):
            model.answer(PAIRS)


class TestAsAModel:
    @pytest.mark.filterwarnings("ignore:Cut to 64 tokens")
    def test_keras_file(self, bert, tmp_path):
        bert.save(tmp_path / "qa.keras")
        again = keras.saving.load_model(tmp_path / "qa.keras")
        assert again.origin == bert.origin
        assert again.answer(PAIRS) == bert.answer(PAIRS)
        check_logits(again.predict(PAIRS, verbose=0), FIXTURES / "bert")
        assert again.predict([])["start"].shape == (0, 0)
        # Keras makes it by these names, which a first use in a process shows.
        taken = inspect.signature(kp.QuestionAnsweringModel.__init__).parameters
        assert {"inputs", "outputs"} <= {*taken}

    def test_exported(self, bert, tmp_path):
        exported = kp.export_litert(
            bert, tmp_path / "qa.tflite", max_length=12, verbose=False
        )
        assert exported.report.passed
        found = kp.inspect(exported.path).signatures["serving_default"]
        assert {*found["inputs"]} == {"ids"}
        assert {*found["outputs"]} == {"start", "end"}

    def test_folders_that_lack_a_part(self, tmp_path):
        folder = shutil.copytree(FIXTURES / "distilbert", tmp_path / "one")
        tensors = load_file(folder / "model.safetensors")
        del tensors["qa_outputs.weight"]
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(ValueError, match="qa_outputs"):
            loaded(folder)
        (folder / "tokenizer.json").unlink()
        with pytest.raises(FileNotFoundError, match="from_ids=True makes"):
            loaded(folder)
        with pytest.raises(FileNotFoundError, match="has no tokenizer, which"):
            loaded(folder, from_ids=True, pad_id=0)

    def test_the_encoder_alone(self):
        model = loaded(FIXTURES / "distilbert", encoder_only=True)
        assert model(["a text"]).shape[2:] == (8,)
