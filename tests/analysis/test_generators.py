"""What a generator attends to."""

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc import analysis
from tests.generation.toy import SIZES, shaken

VOCABULARY, START, LAST = 12, 2, 3
SOURCE = [5, 6, 7, 3]
# Of log-likelihoods of 6 tokens in float32, of logits below 8.
BOUND = 1e-5


@pytest.fixture(scope="module")
def model():
    return shaken(kp.Transformer(VOCABULARY, **{**SIZES, "num_layers": 2}))


def generator(model, **options):
    given = {"max_length": 6, "start_id": START, "end_ids": LAST, **options}
    return kp.Generator(model, **given)


def answers(made):
    found = made(ops.convert_to_tensor([SOURCE], "int32"))
    return {k: ops.convert_to_numpy(v) for k, v in found.items()}


# ---- Attention


@pytest.mark.parametrize("kind", ["cross", "source", "target"])
def test_attention_is_that_of_the_place_that_writes_a_token(model, kind):
    """Row t has read the start and t tokens, and writes the next one."""
    target = [8, 4, 9]
    found = analysis.attention_map(
        generator(model), SOURCE, [START, *target], kind=kind
    )
    expected = model.attention_weights([SOURCE], [[START, *target]])[kind]
    expected = np.stack([ops.convert_to_numpy(each)[0] for each in expected])
    np.testing.assert_array_equal(found.weights, expected)
    written, read = ["8", "4", "9", "3"], ["2", "8", "4", "9"]
    sources = ["5", "6", "7", "3"]
    queries, keys = {
        "cross": (written, sources),
        "source": (sources, sources),
        "target": (written, read),
    }[kind]
    assert (found.queries, found.keys) == (queries, keys)


def test_attention_to_what_the_generator_writes(model):
    made = generator(model, beams=3, n_best=2)
    written = [each for each in answers(made)["ids"][0, 0].tolist() if each]
    found = analysis.attention_map(made, SOURCE)
    assert found.queries == [str(each) for each in written]
    # One that is given has an end, also where the answer was cut.
    again = analysis.attention_map(made, SOURCE, written)
    assert again.queries == [*found.queries, "3"][: len(again.queries)]
    same = again.weights[:, :, : len(written)]
    np.testing.assert_allclose(found.weights, same, atol=1e-6)


def test_means_are_of_what_is_not_chosen(model):
    found = analysis.attention_map(generator(model), SOURCE, [8])
    weights = found.weights
    assert weights.shape[:2] == (2, 2)
    for layer, head, expected in (
        (1, 0, weights[1, 0]),
        (1, None, weights[1].mean(0)),
        (None, 1, weights[:, 1].mean(0)),
        (None, None, weights.mean((0, 1))),
    ):
        mean = found.mean(layer=layer, head=head)
        np.testing.assert_allclose(mean, expected, atol=1e-15)
    for name in ("layer", "head"):
        with pytest.raises(ValueError, match=f"`{name}` must be from 0 to 1"):
            found.mean(**{name: 2})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"source": []}, "`source` must be ids|`source` must not be empty"),
        ({"source": "abc"}, "`source` must be ids of shape"),
        ({"source": [5, 12]}, r"in \[0, 12\).*Received: 12"),
        ({"target": [12]}, r"`target` must be in \[0, 12\).*Received: 12"),
        ({"kind": "both"}, "`kind` must be"),
    ],
)
def test_attention_names_what_does_not_fit(model, wrong, message):
    given = {"source": SOURCE, "target": [8], **wrong}
    with pytest.raises(ValueError, match=message):
        analysis.attention_map(
            generator(model), given.pop("source"), given.pop("target"), **given
        )


def test_a_decoder_alone_has_no_source():
    decoder = kp.TransformerDecoderModel(VOCABULARY, **SIZES)
    made = generator(decoder, beams=2)
    with pytest.raises(ValueError, match="must be a Generator of a Transform"):
        analysis.attention_map(made, SOURCE)


# ---- Tokens


@pytest.mark.tensorflow
def test_labels_of_tokens():
    characters = kp.CharacterTokenizer("a 한")
    assert analysis.token_labels(characters, [2, 4, 5, 6, 1, 3]) == [
        *("<start>", "a", "␣", "한", "<unknown>", "<end>")
    ]
    tokens = kp.ByteTokenizer()
    ids = np.asarray(tokens(["é"]))[0].tolist()
    first, second = (f"#{each}" for each in ids[1:3])
    assert analysis.token_labels(tokens, ids)[1:3] == [first, second]
    assert analysis.token_labels(characters, [7]) == ["#7"]  # unknown to it
    assert analysis.token_labels(None, [7, 3]) == ["7", "3"]
