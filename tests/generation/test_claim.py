"""A search that is run again decides its ties as told, and nothing else."""

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests.generation.toy import SIZES, shaken, swapped, twins

START, END = 2, 3
TOLERANCE = 1e-5
SOURCES = np.array([[5, 6, 7, 3, 0], [4, 3, 0, 0, 0], [0] * 5], "int32")
NOISE = np.random.default_rng(0).random((3, 6), "float32")

MAKERS = kp.Transformer, kp.TransformerDecoderModel
GREEDY = {"min_length": 4}
BEAMS = {**GREEDY, "beams": 4, "n_best": 2, "length_penalty": 0.6}
DRAWN = {"temperature": 1.5}


def generator(make, **options):
    given = {"max_length": 6, "start_id": START, "end_ids": END, **options}
    return kp.Generator(shaken(make(12, **SIZES)), **given)


def numpy(x):
    return np.array(ops.convert_to_numpy(x))


def answered(made):
    inputs = {"ids": SOURCES}
    if made.search.decoding.draw is not None:
        inputs["noise"] = NOISE
    found = made.search(SOURCES, noise=inputs.get("noise"))
    return inputs, {name: numpy(value) for name, value in found.items()}


def retraced(made, inputs, ids):
    found = made.retrace(inputs, {"ids": ids}, TOLERANCE)
    return {name: numpy(value) for name, value in found.items()}


@pytest.mark.parametrize(
    ("make", "options"), [(MAKERS[0], BEAMS), (MAKERS[1], GREEDY)]
)
def test_ties_fall_as_told(make, options):
    made = generator(make, **options)
    pair = twins(made, SOURCES)
    inputs, answers = answered(made)
    claim = swapped(answers["ids"], pair)
    assert np.any(claim != answers["ids"])
    found = retraced(made, inputs, claim)
    np.testing.assert_array_equal(found["ids"], claim)
    # The scores are those of a pass over all tokens at once.
    rows = claim.reshape(3, -1, 6)
    each = found["token_score"].reshape(rows.shape)
    for beam in range(rows.shape[1]):
        scored = made.scorer({"source": SOURCES, "target": rows[:, beam]})
        scored = {name: numpy(value) for name, value in scored.items()}
        np.testing.assert_allclose(
            each[:, beam], scored["token_score"][:, :6], atol=1e-5
        )


@pytest.mark.parametrize(
    ("make", "options"),
    [(MAKERS[1], BEAMS), (MAKERS[0], DRAWN)],
)
def test_nothing_else_falls_as_told(make, options):
    """Any id but a twin, in any place: the model's own answer stays."""
    made = generator(make, **options)
    pair = () if options is DRAWN else twins(made, SOURCES)
    inputs, answers = answered(made)
    rng = np.random.default_rng(1)
    claim = answers["ids"].copy()
    for first in claim.reshape(3, -1, 6)[:, 0]:  # views
        place = rng.integers(6)
        others = {*range(-1, 13)} - {int(first[place]), *pair}
        first[place] = rng.choice(sorted(others))
    found = retraced(made, inputs, claim)
    other = found["ids"] != claim
    assert np.all(np.any(other.reshape(3, -1), axis=1))
    np.testing.assert_allclose(found["score"], answers["score"], atol=1e-5)


def test_noise_next_to_a_border_draws_either_token():
    made = generator(kp.TransformerDecoderModel, temperature=20.0)
    ids = np.array([[5, 6, 7]] * 3, "int32")
    logits = numpy(made.model(ids[:1]))[0, -1].astype("float64") / 20
    logits[[0, START]] = -np.inf
    shares = np.exp(logits) / np.exp(logits).sum()
    noise = NOISE.copy()
    noise[0, 0] = shares[:8].sum()  # where 7 ends, and 8 begins
    inputs = {"ids": ids, "noise": noise}
    own = numpy(made.search(ids, noise=noise)["ids"])
    found = []
    for token in range(5, 11):
        claim = own.copy()
        claim[0, 0] = token
        if retraced(made, inputs, claim)["ids"][0, 0] == token:
            found.append(token)
    assert found == [7, 8]
