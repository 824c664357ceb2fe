"""Ids of SentencePiece and of `tokenizers`, from fixtures; files; refusals.

What every tokenizer keeps to is in `test_tokenizer_contract.py`.
"""

import base64
import json

import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_posenc.text import SentencepieceTokenizer  # noqa: E402
from keras_posenc.text.sentencepiece_model import (  # noqa: E402
    model_class,
)
from tests.text.files import (  # noqa: E402
    FIXTURES,
    content,
    sentencepiece_json,
)

TEXTS = content("tokenizer")["texts"]
CONTENT = content("sentencepiece")
MODEL = base64.b64decode(CONTENT["model"])


@pytest.fixture
def file(tmp_path):
    def write(said):
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(said), encoding="utf-8")
        return path

    return write


def different(tokenizer, expected):
    """How many texts of each category have other ids."""
    counts = {}
    for category, ids in expected.items():
        rows = tokenizer.split(TEXTS[category]).to_list()
        counts[category] = sum(a != b for a, b in zip(rows, ids, strict=True))
    return {category: count for category, count in counts.items() if count}


class TestParity:
    def test_a_model(self, tmp_path):
        path = tmp_path / "text.model"
        path.write_bytes(MODEL)
        tokenizer = SentencepieceTokenizer(path, pad_token="<unk>")
        assert different(tokenizer, CONTENT["ids"]) == {}

    # What is otherwise: of equally likely pieces "]]" and "]" another one is
    # first.
    @pytest.mark.parametrize(
        ("whitespace", "otherwise"),
        [
            ("model", {"docs": 1, "special": 1}),
            ("split", {"special": 1}),
            ("collapse", {"special": 1}),
            ("keep", {"special": 1}),
        ],
    )
    def test_a_tokenizer_json(self, file, whitespace, otherwise):
        path = file(sentencepiece_json(whitespace))
        tokenizer = SentencepieceTokenizer.from_tokenizer_json(path)
        assert tokenizer.whitespace == whitespace
        expected = CONTENT["tokenizers"][whitespace]["ids"]
        assert different(tokenizer, expected) == otherwise


def test_a_token_that_is_looked_for_in_normalized_texts(file):
    """It is found where it is spelled, which the last four texts do not."""
    said = sentencepiece_json("split")
    said["added_tokens"][-1]["normalized"] = True
    tokenizer = SentencepieceTokenizer.from_tokenizer_json(file(said))
    content = (FIXTURES / "normalized_tokens.json").read_text(encoding="utf-8")
    texts, expected = zip(*json.loads(content), strict=True)
    found = tokenizer.split(list(texts)).to_list()
    same = [a == b for a, b in zip(found, expected, strict=True)]
    assert same == [True] * (len(texts) - 4) + [False] * 4


class TestAsALayer:
    def tokenizer(self, file, **arguments):
        path = file(sentencepiece_json())
        return SentencepieceTokenizer.from_tokenizer_json(path, **arguments)

    def test_detokenize(self, file):
        tokenizer = self.tokenizer(file)
        texts = ["Return the value, or None.", "", "한국어 x", "a <mask> b"]
        found = tokenizer.detokenize(tokenizer(texts)).numpy()
        assert [text.decode() for text in found] == [
            *texts[:2],
            "<unk>국<unk> x",
            "a<mask> b",
        ]
        in_graph = tf.function(tokenizer.detokenize)(tokenizer(texts))
        assert in_graph.numpy().tolist() == found.tolist()

    def test_texts_forge_no_token_where_none_is_wanted(self, file):
        tokenizer = self.tokenizer(file, special_tokens=())
        ids = tokenizer.split(["</s><pad> <mask>", "\x01\x022\x01"])
        assert {0, 1, 2}.isdisjoint(ids.flat_values.numpy())
        usual = self.tokenizer(file)
        ids = usual.split(["\x01\x022\x01"])
        assert {0, 1, 2}.isdisjoint(ids.flat_values.numpy())
        text = ["Return the 한국어"]
        assert tokenizer.split(text).to_list() == usual.split(text).to_list()


class TestRefusals:
    def test_files(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="`model` must be a file"):
            SentencepieceTokenizer(tmp_path / "none.model")
        for model in (b"", b"no model", b"\xff" * 9):
            with pytest.raises(ValueError, match="must be a SentencePiece mod"):
                SentencepieceTokenizer(model)

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({}, "`pad_token` must be .*'<pad>'"),
            ({"pad_token": "<unk>", "end_token": "[x]"}, "`end_token` must be"),
            (
                {"pad_token": "<unk>", "special_tokens": ["<m>"]},
                "`special_tokens` must be .*'<m>'",
            ),
            ({"pad_token": "<unk>", "normalization": ["x"]}, "`normalizatio"),
        ],
    )
    def test_arguments(self, arguments, match):
        with pytest.raises(ValueError, match=match):
            SentencepieceTokenizer(MODEL, **arguments)

    def test_other_kinds_of_models(self):
        model = model_class().FromString(MODEL)
        model.trainer_spec.model_type = 3
        with pytest.raises(ValueError, match=r"a Unigram .*model_type=3"):
            SentencepieceTokenizer(model.SerializeToString())

    def test_a_token_between_pieces_of_spaces(self, file):
        said = sentencepiece_json("model")
        said["added_tokens"][-1]["normalized"] = True
        with pytest.raises(ValueError, match=r"added_tokens=.*mask"):
            SentencepieceTokenizer.from_tokenizer_json(file(said))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("normalizer", {"type": "Prepend", "prepend": "x"}),
            ("pre_tokenizer", {"type": "Whitespace"}),
            ("post_processor", {"type": "RobertaProcessing"}),
        ],
    )
    def test_what_a_file_says_and_is_not_known(self, file, key, value):
        path = file({**sentencepiece_json(), key: value})
        with pytest.raises(ValueError, match=f"{key}="):
            SentencepieceTokenizer.from_tokenizer_json(path)
