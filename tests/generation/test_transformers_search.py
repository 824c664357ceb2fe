"""Generation by transformers' rules, against what transformers generated."""

import json

import numpy as np
import pytest

import keras_posenc as kp
from tests.text.files import FIXTURES

FOLDER = FIXTURES / "language_model"
EXPECTED = json.loads((FOLDER / "generated.json").read_text())


@pytest.fixture(scope="module")
def model():
    return kp.load_hugging_face(FOLDER, from_ids=True, verbose=False)


@pytest.fixture(scope="module")
def prompts():
    rows = EXPECTED["prompts"]
    ids = np.full((len(rows), max(map(len, rows))), -1, "int32")
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


@pytest.mark.parametrize("case", EXPECTED["cases"])
def test_ids_are_those_of_transformers(model, prompts, case):
    options = dict(EXPECTED["cases"][case]["options"])
    if words := options.pop("bad_words_ids", ()):  # of the folder alone
        options["suppress_tokens"] += [word[0] for word in words]
    found = model.generate(
        prompts, max_new_tokens=EXPECTED["max_new_tokens"], **options
    )
    rows = found.reshape(-1, found.shape[-1]).tolist()
    assert [[each for each in row if each >= 0] for row in rows] == (
        EXPECTED["cases"][case]["ids"]
    )
