"""Texts that T5, mBART and Marian make of texts, as in `transformers`.

Weights are random, the tokenizers real ones. Some sources spell `<pad>`.
"""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")

import keras_posenc as kp  # noqa: E402
from tests.checkpoints.translations import FILE, write_folder  # noqa: E402

SAID = json.loads(FILE.read_text(encoding="utf-8"))
TEXTS, CASES = SAID["texts"], SAID["cases"]


@pytest.mark.parametrize("name", CASES)
def test_translates_as_transformers_does(name, tmp_path):
    case = CASES[name]
    write_folder(tmp_path / name, name, case)
    model = kp.load_hugging_face(tmp_path / name, verbose=False)
    assert model.beams == 4  # of generation_config.json
    assert model.generate(TEXTS) == case["texts"]["beams"]
    ids = np.asarray(model.source_tokenizer(TEXTS))
    greedy = model.with_options(beams=1).from_ids.predict(ids, verbose=0)
    found = [row[row >= 0].tolist() for row in greedy["ids"]]
    assert found == case["greedy"]
