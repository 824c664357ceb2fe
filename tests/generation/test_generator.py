"""From a model to sequences: what a generator says is what its model says."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.generation.toy import SIZES, shaken

VOCABULARY, START, END = 12, 2, 3
# Per token, of logits below 8 in float32, by other kernels.
BOUND = 1e-5
# What other backends, whose compilers take seconds for each, need not repeat:
# the searches themselves are tested on all of them.
HOME = pytest.mark.tensorflow
SOURCES = [[5, 6, 7, 3, 0, 0], [4, 3, 0, 0, 0, 0], [0] * 6, [9, 8, 7, 6, 5, 3]]


def translator(**options):
    return shaken(kp.Transformer(VOCABULARY, **SIZES, **options))


def continuer(**options):
    return shaken(kp.TransformerDecoderModel(VOCABULARY, **SIZES, **options))


def generator(model, **options):
    given = {"max_length": 7, "start_id": START, "end_ids": END, **options}
    return kp.Generator(model, **given)


def answers(generator, ids, **options):
    return generator.predict(np.array(ids, "int32"), verbose=0, **options)


def n_best(rows):
    """`(batch, ...)` or `(batch, n, ...)` as the latter."""
    return rows if rows.ndim == 3 else rows[:, np.newaxis]


@pytest.mark.parametrize("make", [translator, continuer])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=HOME),
        {"beams": 3, "n_best": 3},
        {"temperature": 1.5, "seed": 1},
        pytest.param({"prefix_ids": [5, 6], "min_length": 4}, marks=HOME),
        pytest.param(
            {"attention_position": kp.RotaryEmbedding, "beams": 2}, marks=HOME
        ),
    ],
)
def test_scores_are_those_of_the_parallel_model(make, options):
    """... for sources of any length, the empty one among them."""
    options = dict(options)
    position = options.pop("attention_position", None)
    model = make(
        **({"attention_position": position()} if position else {}),
    )
    made = generator(model, **options)
    found = answers(made, SOURCES)
    ids, each = n_best(found["ids"]), n_best(found["token_score"])
    assert ids.shape == each.shape == (4, made.search.n_best, 7)
    score = found["score"].reshape(4, -1)
    np.testing.assert_allclose(each.sum(-1), score, atol=BOUND)
    prefix = made.search.prefix_ids
    np.testing.assert_array_equal(
        ids[..., : len(prefix)],
        np.broadcast_to(prefix, (4, ids.shape[1], len(prefix))),
    )
    scorer = generator(model).scorer
    for beam in range(ids.shape[1]):
        scored = scorer.predict(
            {"source": np.array(SOURCES, "int32"), "target": ids[:, beam]},
            verbose=0,
        )
        parallel = scored["token_score"][:, :7]
        parallel[:, : len(prefix)] = 0
        np.testing.assert_allclose(each[:, beam], parallel, atol=BOUND)
    ended = np.cumsum(ids == END, axis=-1) - (ids == END) > 0
    np.testing.assert_array_equal(ids == 0, ended)
    assert np.all(ids[..., : made.search.min_length] != END)
    assert np.all(ids != START)


@pytest.mark.parametrize("make", [translator, continuer])
@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=HOME), {"beams": 3}]
)
def test_a_row_is_answered_as_if_it_were_alone(make, options):
    """However the rows beside it make it padded, on either side."""
    made = generator(make(), **options)
    together = answers(made, SOURCES)["ids"]
    for row in (1, 2):  # the shortest and the empty one
        source = SOURCES[row]
        alone = answers(made, [source[: np.count_nonzero(source)]])
        np.testing.assert_array_equal(together[row], alone["ids"][0])
    if make is continuer:
        turned = [
            np.roll(row, len(row) - np.count_nonzero(row)) for row in SOURCES
        ]
        np.testing.assert_array_equal(together, answers(made, turned)["ids"])


@pytest.mark.parametrize("make", [translator, continuer])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=HOME),
        pytest.param({"prefix_ids": [7]}, marks=HOME),
        {"temperature": 2.0, "top_k": 5, "seed": 3},
        pytest.param({"repetition_penalty": 2.0, "min_length": 3}, marks=HOME),
    ],
)
def test_a_stream_is_what_is_generated(make, options):
    model = make()
    whole = answers(generator(model, **options), SOURCES[:1])["ids"][0]
    # Another one, whose noise begins where the other's began.
    pieces = list(generator(model, **options).stream(SOURCES[0]))
    assert pieces == [t for t in whole.tolist() if t not in (0, END)]


def test_one_seed_draws_the_same_sequences_call_by_call():
    model = translator()
    first, second = (
        generator(model, temperature=2.0, seed=5) for _ in range(2)
    )
    calls = [
        [answers(g, SOURCES)["ids"] for _ in range(2)] for g in (first, second)
    ]
    np.testing.assert_array_equal(*calls)
    assert np.any(calls[0][0] != calls[0][1])


def test_a_file_answers_as_the_generator_did(tmp_path):
    made = generator(
        continuer(), beams=3, n_best=2, length_penalty=0.6, prefix_ids=[5]
    )
    made.save(tmp_path / "generator.keras")
    loaded = keras.saving.load_model(tmp_path / "generator.keras")
    assert loaded.search.options() == made.search.options()
    for name, value in answers(made, SOURCES).items():
        np.testing.assert_array_equal(answers(loaded, SOURCES)[name], value)


# ---- Bad input

PAST = kp.RotaryEmbedding(
    rope_type="dynamic", scaling_factor=2.0, original_max_position_embeddings=4
)
BAD = [
    ({"beams": 0}, "`beams` must be a positive integer.*beams=0"),
    ({"beams": 13}, "`beams` must be at most the number of ids, 12"),
    ({"beams": 2, "top_k": 3}, "`top_k` is of sampling.*top_k=3, beams=2"),
    ({"beams": 2, "repetition_penalty": 2.0}, "`repetition_penalty` is of"),
    ({"n_best": 2}, "`n_best` must be at most the number of beams, 1"),
    ({"length_penalty": 0.6}, "`length_penalty` ranks beams"),
    ({"seed": 1}, "`seed` is of sampling"),
    ({"end_ids": [3, START]}, "`start_id` must not be one of `end_ids`"),
    ({"end_ids": 12}, "`end_ids` must be of the model's ids, 1 to 11"),
    ({"end_ids": "x"}, "`end_ids` must be an id or several"),
    ({"start_id": 0}, "`start_id` must be of the model's ids"),
    ({"start_id": None}, "`start_id`, with which targets begin"),
    ({"prefix_ids": [5] * 7}, "`prefix_ids` must be fewer than `max_length`"),
    ({"min_length": 7}, r"`min_length` must be an integer in \[0, max_length"),
    ({"max_length": 0}, "`max_length` must be a positive integer"),
    ({"source_tokenizer": len}, "`source_tokenizer` must be a layer"),
    ({"target_tokenizer": keras.layers.Dense(1)}, "must have `detokenize`"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_what_does_not_fit_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        generator(translator(), **wrong)


def test_models_that_cannot_are_refused_by_name():
    with pytest.raises(ValueError, match="`model` must be a Transformer or a"):
        kp.Generator(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(
        ValueError, match="rope_type='dynamic' cannot be cached"
    ):
        generator(continuer(attention_position=PAST))
    table = continuer(input_position=kp.PositionEmbedding(9))
    with pytest.raises(ValueError, match="9"):
        answers(generator(table), [[4] * 6])


def test_ids_and_sources_that_do_not_fit_are_named():
    made = generator(translator())
    with pytest.raises(ValueError, match=r"Ids must be in \[0, 12\).*: 12"):
        made.from_ids(np.array([[12]], "int32"))
    for ask in (made.predict, lambda ids: made.stream(ids[0])):
        with pytest.raises(ValueError, match=r"Ids must be in.*: -1"):
            ask(np.array([[5, -1]]))
    with pytest.raises(ValueError, match="`ids` must be of an integer dtype"):
        made.predict(np.array([[5.0]]))
    with pytest.raises(ValueError, match="`x` must hold at least one"):
        answers(made, np.zeros((0, 3)))
    with pytest.raises(ValueError, match="`target` must be as many as"):
        made.score(SOURCES, SOURCES[:1])
    with pytest.raises(ValueError, match="A stream takes one token after"):
        generator(translator(), beams=2).stream([4])


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("make", "options"),
    [(translator, {"beams": 3, "length_penalty": 0.6}), (continuer, {})],
)
def test_the_compiler_finds_the_same(make, options):
    """XLA, which knows every shape and keeps every buffer where it is."""
    made = generator(make(), **options)
    expected = answers(made, SOURCES)
    made.from_ids.compile(jit_compile=True)
    found = answers(made, SOURCES)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["score"], expected["score"], atol=BOUND)
