"""Generation by transformers' rules, against what transformers generated."""

import json

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.generation.likelihoods import sampler
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


@pytest.mark.parametrize(
    "case",
    [x for x in EXPECTED["cases"] if "num_beams" not in x["options"]],
    ids=lambda x: x["case"],
)
def test_streams_have_the_same_ids(models, case):
    """With repetitions that are forbidden, and ends that are forced."""
    model = models[case["model"]].with_options(
        max_new_tokens=EXPECTED["max_new_tokens"], **case["options"]
    )
    for row, expected in zip(case["inputs"], case["ids"], strict=True):
        stream = model.stream(row)
        is_ended = expected[-1] in model.end_ids
        assert [*stream] == (expected[:-1] if is_ended else expected)
        assert stream.ended is is_ended


def test_what_follows_must_have_positions(models):
    model, ids = models["language_model"], np.full((1, 30), 5)
    message = "30 tokens, and 3 more.*32 positions.*most 2"
    with pytest.raises(ValueError, match=message):
        model.generate(ids, max_new_tokens=3)
    assert model.generate(ids, max_new_tokens=2).shape == (1, 2)
    with pytest.raises(ValueError, match="Shorten it to at most 31"):
        model.generate(np.full((1, 32), 5), max_new_tokens=1)


def test_samples_are_drawn_where_a_start_is_an_end():
    """As in GPT-2: likelihoods of its exports are measured on samples."""
    decoder = kp.TransformerDecoderModel(
        9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
    )
    made = kp.PretrainedGenerator(decoder, start_id=3, end_ids=3)
    draw = sampler(made.search, 4)
    ids = draw(np.array([[5, 7]]), np.full((1, 4), 0.5, "float32"))
    assert tuple(ids.shape) == (1, 4)
