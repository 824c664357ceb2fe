"""Generation by transformers' rules, against what transformers generated."""

import json

import numpy as np
import pytest

import keras_posenc as kp
from tests.text.files import FIXTURES

EXPECTED = json.loads((FIXTURES / "generated.json").read_text())


@pytest.fixture(scope="module")
def models():
    """The generators of ids, each loaded once."""
    names = {case["model"] for case in EXPECTED["cases"]}
    return {
        name: kp.load_hugging_face(
            FIXTURES / name, from_ids=True, verbose=False
        )
        for name in names
    }


@pytest.mark.parametrize("case", EXPECTED["cases"], ids=lambda x: x["case"])
def test_ids_are_those_of_transformers(models, case):
    model, rows = models[case["model"]], case["inputs"]
    shape = len(rows), max(map(len, rows))
    ids = np.full(shape, model.model.pad_id, "int32")
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    found = model.generate(
        ids, max_new_tokens=EXPECTED["max_new_tokens"], **case["options"]
    )
    found = found.reshape(-1, found.shape[-1]).tolist()
    assert [[each for each in row if each >= 0] for row in found] == case["ids"]


def test_what_follows_must_have_positions(models):
    model = models["language_model"]
    ids = np.full((1, 30), 5)
    with pytest.raises(ValueError, match=r"30 tokens.*=3 after.*32 positions"):
        model.generate(ids, max_new_tokens=3)
    assert model.generate(ids, max_new_tokens=2).shape == (1, 2)
