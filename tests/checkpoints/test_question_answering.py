"""Question answering against `transformers`, on random weights."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402

FIXTURES = Path(__file__).parent.parent / "fixtures" / "answers"
PAIRS = json.loads((FIXTURES / "pairs.json").read_text(encoding="utf-8"))
NAMES = sorted(each.name for each in FIXTURES.iterdir() if each.is_dir())
TOLERANCE = 5e-6  # as in `test_parity.py`
FORBIDDEN = -10000.0


def loaded(folder, **options):
    return kp.load_hugging_face(folder, pairs=True, verbose=False, **options)


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
