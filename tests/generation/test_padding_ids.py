"""Models in which every id is a token, or in which padding is any id.

The oracle: a model with one id more, 0, that is padding and never likely. Its
ids are those of the other model plus 1.
"""

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc import training
from tests.layers import randomised

SIZES = {
    "d_model": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 16,
    "norm": "before",
    "attention": "rotary",
    "input_position": None,
}
VOCABULARY = 11  # without padding
# Id 0 is among the tokens; padding is at either end, and an example is empty.
IDS = np.array([[0, 4, 7, 0, -1], [-1, -1, 6, 0, 10], [-1] * 5], "int32")
TARGETS = np.array([[0, 5, -1], [1, 0, 2], [3, -1, -1]], "int32")
START, ENDS = 1, (8, 10)
# Per token, of logits below 8 in float32.
BOUND = 1e-5


def alike(make, **options):
    """A model in which 0 is padding, and one of the same weights without."""
    padded = randomised(make(VOCABULARY + 1, **SIZES))
    plain = make(VOCABULARY, **SIZES, **options)
    # The first feature that logits are made of is 1, and padding's -1e9.
    first = np.arange(16) == 0
    norm = padded.decoder.final_norm
    norm.gamma.assign(np.where(first, 0, ops.convert_to_numpy(norm.gamma)))
    norm.beta.assign(np.where(first, 1, ops.convert_to_numpy(norm.beta)))
    for one, other in zip(padded.weights, plain.weights, strict=True):
        value = np.array(ops.convert_to_numpy(one))
        if one.shape != other.shape:
            value[0] = -1e9 * first
            one.assign(value)
            value = value[1:]
        other.assign(value)
    return padded, plain


def generators(models, **options):
    return [
        kp.Generator(
            model,
            max_length=6,
            start_id=START + shift,
            end_ids=[each + shift for each in ENDS],
            **options,
        )
        for model, shift in zip(models, (1, 0), strict=True)
    ]


def check_alike(expected, actual):
    np.testing.assert_array_equal(expected["ids"] - 1, actual["ids"])
    for name in "score", "token_score":
        np.testing.assert_allclose(
            expected[name], actual[name], rtol=0, atol=6 * BOUND
        )
    np.testing.assert_array_equal(expected["ended"], actual["ended"])


def outputs(generator, ids, **options):
    found = generator.search(ops.convert_to_tensor(ids), **options)
    return {name: ops.convert_to_numpy(each) for name, each in found.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"beams": 3, "n_best": 2, "length_penalty": 0.6},
        {"temperature": 4.0, "repetition_penalty": 1.3},
    ],
    ids=["greedy", "beams", "sampled"],
)
def test_every_id_is_a_token(options):
    models = alike(kp.TransformerDecoderModel, pad_id=-1)
    padded, plain = generators(models, **options)
    noise = {}
    if "temperature" in options:
        draws = np.linspace(0.02, 0.98, 18, dtype="float32").reshape(3, 6)
        noise = {"noise": ops.convert_to_tensor(draws)}
    expected = outputs(padded, IDS + 1, **noise)
    assert {0, 1} <= {*expected["ids"].flat}, "an end comes, and id 0"
    check_alike(expected, outputs(plain, IDS, **noise))


def test_scores_and_streams():
    models = alike(kp.TransformerDecoderModel, pad_id=-1)
    padded, plain = generators(models)
    padded.scorer_from_ids.run_eagerly = True
    np.testing.assert_allclose(
        plain.score(IDS, TARGETS),
        padded.score(IDS + 1, TARGETS + 1),
        rtol=0,
        atol=4 * BOUND,
    )
    first = IDS[0]
    assert [*plain.stream(first)] == [i - 1 for i in padded.stream(first + 1)]


def test_source_and_target_with_padding_of_their_own():
    padding = 5  # in no source
    models = alike(kp.Transformer, pad_id=padding, target_pad_id=-1)
    padded, plain = generators(models, beams=2)
    sources = np.where(IDS == -1, padding, IDS)
    check_alike(outputs(padded, IDS + 1), outputs(plain, sources))
    given = {"source": sources, "target": TARGETS}
    found = plain.model(given)
    expected = padded.model({"source": IDS + 1, "target": TARGETS + 1})
    real = TARGETS != -1
    np.testing.assert_allclose(
        ops.convert_to_numpy(found)[real],
        ops.convert_to_numpy(expected)[..., 1:][real],
        rtol=0,
        atol=BOUND,
    )
    again = type(plain.model).from_config(plain.model.get_config())
    again.set_weights(plain.model.get_weights())
    np.testing.assert_array_equal(
        *map(ops.convert_to_numpy, (again(given), found))
    )


@pytest.mark.parametrize("start", [None, 0])
def test_teacher_forcing(start):
    segments = [[1, 1, 2, 2, 0], [0, 0, 1, 2, 2], [0] * 5]
    packed = {"segment_ids": np.array(segments)}
    shifted = training.TeacherForcing(start_id=None if start is None else 1)
    plain = training.TeacherForcing(start_id=start, pad_id=-1)
    ids = np.where(IDS == 0, 2, IDS)  # none begins with the start
    for expected, found in zip(
        shifted(ids + 1, **packed), plain(ids, **packed), strict=True
    ):
        np.testing.assert_array_equal(found, expected - 1)


def test_other_ids_are_refused():
    _, plain = generators(alike(kp.TransformerDecoderModel, pad_id=-1))
    with pytest.raises(
        ValueError, match=r"in \[0, 11\).* or -1, which is padding.*: -2"
    ):
        plain.predict([[3, -2]])
    with pytest.raises(ValueError, match=r"`pad_id` must be .* -1"):
        kp.TransformerDecoderModel(VOCABULARY, pad_id=VOCABULARY)
