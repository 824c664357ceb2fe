"""A search that is run again decides its ties as told, and nothing else."""

import numpy as np
import pytest

import keras_posenc as kp
from tests.generation.toy import SIZES, shaken

START, END = 2, 3
TWINS = 7, 8  # ids of one embedding, and so of one probability
TOLERANCE = 1e-5
SOURCES = np.array([[5, 6, 7, 3, 0], [4, 3, 0, 0, 0], [0] * 5], "int32")
NOISE = np.random.default_rng(0).random((3, 6), "float32")

MAKERS = kp.Transformer, kp.TransformerDecoderModel
BEAMS = {"beams": 4, "n_best": 2, "length_penalty": 0.6}
DRAWN = {"temperature": 1.5}


def generator(make, apart=0.0, **options):
    """Whose twins are apart by so much of their embedding."""
    model = shaken(make(12, **SIZES))
    table = model.target_embedding.embeddings
    values = np.array(table)
    values[TWINS[1]] = (1 + apart) * values[TWINS[0]]
    table.assign(values)
    return kp.Generator(
        model, max_length=6, start_id=START, end_ids=END, **options
    )


def answered(made):
    inputs = {"ids": SOURCES}
    if made.search.draw is not None:
        inputs["noise"] = NOISE
    found = made.search(SOURCES, noise=inputs.get("noise"))
    return inputs, {name: np.array(value) for name, value in found.items()}


def retraced(made, inputs, ids, tolerance=TOLERANCE):
    found = made.retrace(inputs, {"ids": ids}, tolerance)
    return {name: np.array(value) for name, value in found.items()}


def swapped(ids):
    """The other twin wherever there is one."""
    first, second = TWINS
    other = np.where(ids == second, first, ids)
    return np.where(ids == first, second, other)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("options", [{}, BEAMS])
def test_ties_fall_as_told(make, options):
    made = generator(make, **options)
    inputs, answers = answered(made)
    claim = swapped(answers["ids"])
    assert np.any(claim != answers["ids"])
    found = retraced(made, inputs, claim)
    np.testing.assert_array_equal(found["ids"], claim)
    # The scores are those of a pass over all tokens at once.
    rows = claim.reshape(3, -1, 6)
    each = found["token_score"].reshape(rows.shape)
    for beam in range(rows.shape[1]):
        scored = made.scorer.predict(
            {"source": SOURCES, "target": rows[:, beam]}, verbose=0
        )
        np.testing.assert_allclose(
            each[:, beam], scored["token_score"][:, :6], atol=1e-5
        )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("options", [{}, BEAMS, DRAWN])
def test_nothing_else_falls_as_told(make, options):
    """Every id but its twin, in every place: the model's own answer stays."""
    made = generator(make, **options)
    inputs, answers = answered(made)
    rng = np.random.default_rng(1)
    for _ in range(6):
        claim = answers["ids"].copy()
        row, place = rng.integers(3), rng.integers(6)
        first = claim.reshape(3, -1, 6)[row, 0]  # a view
        others = {*range(-1, 13)} - {int(first[place]), *TWINS}
        first[place] = rng.choice(sorted(others))
        found = retraced(made, inputs, claim)
        assert np.any(found["ids"][row] != claim[row])
        np.testing.assert_allclose(found["score"], answers["score"], atol=1e-5)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("options", [{}, BEAMS])
def test_how_far_apart_a_tie_may_be(make, options):
    """What is true of twins is not of those that are well apart."""
    made = generator(make, apart=0.05, **options)
    inputs, answers = answered(made)
    claim = swapped(answers["ids"])
    rows = np.any((claim != answers["ids"]).reshape(3, -1), axis=1)
    assert np.any(rows)
    for tolerance, is_tie in ((TOLERANCE, False), (1e6, True)):
        found = retraced(made, inputs, claim, tolerance)["ids"]
        same = np.all((found == claim).reshape(3, -1), axis=1)
        assert np.all(same[rows] == is_tie)


def test_noise_next_to_a_border_draws_either_token():
    made = generator(kp.TransformerDecoderModel, **DRAWN)
    logits = np.array(made.model(SOURCES[:1, :3]))[:, -1] / 1.5
    logits[:, [0, START]] = -np.inf
    share = np.exp(logits) / np.exp(logits).sum()
    noise = NOISE.copy()
    noise[0, 0] = share[0, : TWINS[0] + 1].sum()  # between the twins
    inputs = {"ids": np.array([[5, 6, 7]] * 3, "int32"), "noise": noise}
    own = np.array(made.search(inputs["ids"], noise=noise)["ids"])
    claims = []
    for token in (*TWINS, 9):
        claim = own.copy()
        claim[0, 0] = token
        found = retraced(made, inputs, claim)["ids"]
        claims.append(found[0, 0] == token)
    assert claims == [True, True, False]
