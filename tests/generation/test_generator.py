"""From a model to sequences: what a generator says is what its model says."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.export.signatures import signature
from keras_posenc.generation import search
from keras_posenc.generation.step import numbers_of
from keras_posenc_worker.runtimes import read_graph
from tests.generation.toy import SIZES, compiled, eager, in_graph, shaken

VOCABULARY, START, END = 12, 2, 3
# Per token, of logits below 8 in float32, by other kernels.
BOUND = 1e-5
# What other backends, whose compilers take seconds for each, need not repeat:
# the searches themselves are tested on all of them.
HOME = pytest.mark.tensorflow
BEAMS = {"beams": 2, "length_penalty": 0.6}
SOURCES = [[5, 6, 7, 3, 0, 0], [4, 3, 0, 0, 0, 0], [0] * 6, [9, 8, 7, 6, 5, 3]]


def translator(**options):
    return shaken(kp.Transformer(VOCABULARY, **SIZES, **options))


def continuer(**options):
    options = {**SIZES, **options}
    return shaken(kp.TransformerDecoderModel(VOCABULARY, **options))


def generator(model, **options):
    given = {"max_length": 7, "start_id": START, "end_ids": END, **options}
    return kp.Generator(model, **given)


@pytest.fixture(scope="module")
def models():
    """Those that no test changes."""
    return {make: make() for make in (translator, continuer)}


@pytest.fixture(scope="module")
def generators(models):
    """Greedy ones of them, which remember nothing."""
    return {make: generator(model) for make, model in models.items()}


def answers(generator, ids):
    """Found without a graph, whose making takes most of a test."""
    found = generator(np.array(ids, "int32"))
    return {name: ops.convert_to_numpy(each) for name, each in found.items()}


def predicted(generator, ids):
    return generator.predict(np.array(ids, "int32"), verbose=0)


def n_best(rows):
    """`(batch, ...)` or `(batch, n, ...)` as the latter."""
    return rows if rows.ndim == 3 else rows[:, np.newaxis]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (translator, {"beams": 3, "n_best": 3}),
        (continuer, {"temperature": 1.5, "seed": 1}),
        pytest.param(
            continuer,
            {"attention": kp.RotaryEmbedding, "beams": 2},
            marks=HOME,
        ),
        pytest.param(
            translator,
            {
                "dtype": "float64",
                "beams": 2,
                "prefix_ids": [5, 6],
                "min_length": 4,
            },
            marks=HOME,
        ),
    ],
)
def test_scores_are_those_of_the_parallel_model(make, options):
    """... for sources of any length, the empty one among them."""
    options = {"max_length": 5, **options}
    of_model = {"dtype": options.pop("dtype", None)}
    if position := options.pop("attention", None):
        of_model["attention"] = position()
    model = make(**of_model)
    made = generator(model, **options)
    found = answers(made, SOURCES)
    ids, each = n_best(found["ids"]), n_best(found["token_score"])
    assert ids.shape == each.shape == (4, made.n_best, 5)
    score = found["score"].reshape(4, -1)
    np.testing.assert_allclose(each.sum(-1), score, atol=BOUND)
    prefix = made.prefix_ids
    np.testing.assert_array_equal(
        ids[..., : len(prefix)],
        np.broadcast_to(prefix, (4, ids.shape[1], len(prefix))),
    )
    scorer = generator(model).scorer
    for beam in range(ids.shape[1]):
        scored = scorer(
            {"source": np.array(SOURCES, "int32"), "target": ids[:, beam]}
        )
        parallel = np.array(ops.convert_to_numpy(scored["token_score"]))[:, :5]
        parallel[:, : len(prefix)] = 0
        np.testing.assert_allclose(each[:, beam], parallel, atol=BOUND)
    ended = np.cumsum(ids == END, axis=-1) - (ids == END) > 0
    np.testing.assert_array_equal(ids == 0, ended)
    assert np.all(ids[..., : made.min_length] != END)
    assert np.all(ids != START)


def test_scores_are_as_large_as_the_logits_that_they_are_made_of():
    """... whatever they are themselves: rounding goes by the larger."""
    model = translator(embeddings="separate")
    made = generator(model)
    before = made.output_scales()
    model.head.kernel.assign(16 * model.head.kernel)
    for each in (made, made.from_ids, made.scorer, made.scorer_from_ids):
        for name, size in each.output_scales().items():
            assert size == pytest.approx(16 * before[name], rel=1e-3)


@pytest.mark.parametrize(
    ("make", "options"),
    [pytest.param(continuer, {}, marks=HOME), (translator, {"beams": 3})],
)
def test_a_row_is_answered_as_if_it_were_alone(models, make, options):
    """However the rows beside it make it padded, on either side."""
    made = generator(models[make], max_length=4, **options)
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


def test_an_empty_prompt_without_a_start_symbol(models):
    """All ids are as likely to be the first, and it stands at position 0."""
    made = generator(models[continuer], start_id=None)
    prompts = [[0, 0, 0], [5, 6, 0]], np.zeros((2, 0))
    for prompt, ask in zip(prompts, (made.from_ids.predict, made), strict=True):
        ids = np.array(prompt, "int32")
        found = {
            name: ops.convert_to_numpy(value)
            for name, value in ask(ids).items()
        }
        scored = made.scorer({"source": ids, "target": found["ids"]})["score"]
        scores = ops.convert_to_numpy(scored)
        np.testing.assert_allclose(scores, found["score"], atol=BOUND)
        first = found["token_score"][0, 0]
        assert abs(first + np.log(VOCABULARY)) <= BOUND


@HOME
@pytest.mark.parametrize("make", [translator, continuer])
def test_targets_are_scored_wherever_their_padding_is(generators, make):
    made = generators[make]

    def score(target):
        ids = {"source": SOURCES[:1], "target": [target]}
        ids = {side: np.array(rows, "int32") for side, rows in ids.items()}
        return ops.convert_to_numpy(made.scorer(ids)["score"])

    alone = score([5, 6, END])
    for target in ([5, 6, END, 0, 0], [0, 0, 5, 6, END], [0, 2, 5, 6, END]):
        np.testing.assert_allclose(score(target), alone, atol=BOUND)


@HOME
def test_a_table_of_positions_is_used_to_its_end():
    """The last of 6 + 7 tokens is read by nobody."""
    of_target = kp.PositionEmbedding(12)
    of_source = {
        "input_position": kp.PositionEmbedding(6),
        "target_input_position": "sinusoidal",
    }
    for model, size in (
        (continuer(input_position=of_target), 12),
        (translator(**of_source), 6),
    ):
        made = generator(model)
        found = answers(made, SOURCES)["ids"]
        (longest,) = (i for i, x in enumerate(SOURCES) if np.all(x))
        alone = answers(made, SOURCES[longest : longest + 1])
        for ids in (alone["ids"], [[*made.stream(SOURCES[longest])]]):
            ids = np.array(ids)[0]
            expected = found[longest]
            if len(ids) < len(expected):  # without its end
                expected = expected[: len(ids)]
            np.testing.assert_array_equal(ids, expected)
        asks = (
            made.predict,
            lambda x, made=made: made(np.array(x, "int32")),
            lambda x, made=made: [*made.stream(x[0])],
        )
        for ask in asks:
            what = "source of length 7" if size == 6 else "prompt of 7 tokens"
            with pytest.raises(
                ValueError, match=f"learned only {size} pos.*a {what}"
            ):
                ask([[4] * 7])


@HOME
@pytest.mark.parametrize(
    ("beams", "score"), [(1, np.nan), (2, np.finfo("float32").min)]
)
def test_a_source_beyond_a_table_has_no_score_in_a_graph(beams, score):
    """... as in a file, which raises nothing; the other rows have one."""
    of_source = {"target_input_position": "sinusoidal"}
    model = translator(input_position=kp.PositionEmbedding(6), **of_source)
    made = generator(model, beams=beams)
    rows = [[4] * 7, [5, 6, 7, 0, 0, 0, 0], [9, 8, 7, 6, 5, 3, 0]]
    rows = np.array(rows, "int32")
    run = in_graph(made.search, autograph=beams == 1)
    found = ops.convert_to_numpy(run(rows)["score"])
    np.testing.assert_array_equal(found[0], np.float32(score))
    alone = answers(made, rows[1:, :6])["score"]
    np.testing.assert_allclose(found[1:], alone, atol=BOUND)


@HOME
@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (translator, 6, "a target of 7 tokens"),
        (continuer, 10, "a source and a target of 12 tokens together"),
    ],
)
def test_a_target_is_scored_up_to_the_last_position(make, size, message):
    """... which is where its last token is foretold, and not read."""
    model = make(input_position=kp.PositionEmbedding(size))
    made = generator(model, max_length=6)
    source, target = SOURCES[3][:5], [5, 6, 7, 8, 9, END]
    scores = made.score([source], [target])
    for given in (target, [2, *target], [*target, 0, 0]):
        inputs = {"source": np.array([source]), "target": np.array([given])}
        found = ops.convert_to_numpy(made.scorer(inputs)["score"])
        np.testing.assert_allclose(found, scores, atol=BOUND)
    # What comes before the last token is scored as it is without it.
    *tokens, _ = made.scorer(inputs)["token_score"][0]
    shorter = {**inputs, "target": np.array([target[:3]])}
    *before, _ = made.scorer(shorter)["token_score"][0]
    np.testing.assert_allclose(tokens[:3], before, atol=BOUND)
    for ask in (
        made.score,
        lambda s, t: made.scorer(
            {"source": np.array(s), "target": np.array(t)}
        ),
    ):
        with pytest.raises(
            ValueError, match=f"learned only {size} .*{message}"
        ):
            ask([source], [[4, *target]])


@HOME
def test_padding_takes_no_positions():
    made = generator(continuer(input_position=kp.PositionEmbedding(9)))
    expected = ops.convert_to_numpy(made(np.array([[5, 6, 7]]))["ids"])
    padded = np.array([[0] * 5 + [5, 6, 7] + [0] * 4], "int32")
    for found in (made(padded)["ids"], made.from_ids.predict(padded)["ids"]):
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
    beyond = made.from_ids.predict(np.full((1, 12), 5, "int32"), verbose=0)
    assert np.isnan(beyond["score"])


@pytest.mark.slow
@pytest.mark.filterwarnings(
    # Keras says so of every layer that has nothing to quantize.
    "ignore:Layer .* does not have a `quantize` method:UserWarning"
)
@HOME
def test_what_was_quantized_answers():
    """... and not what was compiled before."""
    made = generator(continuer())
    before = predicted(made, SOURCES)["score"]
    streamed = list(made.stream(SOURCES[0]))
    made.quantize("int8")
    called = made(np.array(SOURCES, "int32"))
    found = predicted(made, SOURCES)
    np.testing.assert_allclose(
        found["score"], ops.convert_to_numpy(called["score"]), atol=BOUND
    )
    assert np.abs(found["score"] - before).max() > 1e-3
    # What int8 rounds need not show in a stream: other weights do.
    table = made.model.embedding.embeddings
    table.assign(ops.roll(table, 1, axis=0))
    found = predicted(made, SOURCES[:1])["ids"][0].tolist()
    stream = list(made.stream(SOURCES[0]))
    assert stream == [token for token in found if token not in (0, END)]
    assert stream != streamed


def test_models_of_nan_are_named():
    model = continuer()
    table = ops.convert_to_numpy(model.embedding.embeddings).copy()
    table[5] = np.nan
    model.embedding.embeddings.assign(table)
    made = generator(model, beams=2, n_best=2, max_length=3)
    made.from_ids.run_eagerly = made.scorer_from_ids.run_eagerly = True
    asks = [
        lambda: predicted(made, SOURCES),
        lambda: made.score(SOURCES, SOURCES),
        lambda: list(generator(model).stream(SOURCES[0])),
    ]
    for ask in asks:
        with pytest.raises(ValueError, match=r"`model` must give.*NaN"):
            ask()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (translator, {"temperature": 2.0, "top_k": 5, "seed": 3}),
        pytest.param(
            continuer,
            {"prefix_ids": [7], "repetition_penalty": 2.0, "min_length": 3},
            marks=HOME,
        ),
    ],
)
def test_a_stream_is_what_is_generated(models, make, options):
    model = models[make]
    whole = answers(generator(model, **options), SOURCES[:1])["ids"][0]
    # Another one, whose noise begins where the other's began.
    stream = generator(model, **options).stream(SOURCES[0])
    assert stream.ended is None
    pieces = list(stream)
    assert pieces == stream.ids
    assert pieces == [t for t in whole.tolist() if t not in (0, END)]
    assert stream.ended == (END in whole)


@HOME
def test_parts_of_a_stream_are_what_their_blocks_compute():
    """Equal blocks share one trace. After LoRA is added, all are traced."""
    rotary = kp.RotaryEmbedding()
    near, far = (kp.Attention(rotary, window=w) for w in (1, None))
    several = {"attention": [far, near] * 3, "num_layers": 6}
    model = continuer(**several)
    made = generator(model, max_length=3)
    assert [*made.stream(SOURCES[3])]
    lower, other = (
        x.feed_forward.intermediate for x in model.decoder.blocks[4:]
    )
    lower.enable_lora(2)
    lower.lora_kernel_b.assign(ops.ones_like(lower.lora_kernel_b))
    other.activation = ops.tanh
    whole = answers(made, SOURCES[3:])["ids"][0].tolist()
    assert [*made.stream(SOURCES[3])] == [t for t in whole if t not in (0, END)]
    first, step = made._steps
    ids = np.array(SOURCES[3:], "int32")
    state = {
        **first.run({"ids": ids, "free": ids}),
        "noise": np.zeros(1, "float32"),
        "seen": ids,
        "index": np.full(1, 5, "int32"),
        "numbers": numbers_of(made.search),
    }
    found, expected = step.run(state, first), step(state)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=BOUND)
    graph = step.predict_function.get_concrete_function().graph
    kinds = [each.type for each in graph.get_operations()]
    assert kinds.count("PartitionedCall") == 2


class Unhashable:
    """An activation that Python cannot look up."""

    __hash__ = None

    def __call__(self, x):
        return ops.tanh(x)


@HOME
def test_alike_blocks_of_a_large_models_file_are_one_function(
    monkeypatch, tmp_path
):
    """The file gives what the model does, whose last block is apart."""
    import tensorflow as tf

    model = continuer(attention=kp.RotaryEmbedding(), num_layers=4)
    last = model.decoder.blocks[-1].feed_forward
    last.intermediate.activation = Unhashable()
    made = generator(model)
    monkeypatch.setattr(signature, "_MANY", 0)
    monkeypatch.setattr(search, "_SMALL", 0)  # as of no large model
    signatures = {"serving_default": made.from_ids}
    file = kp.export_saved_model(
        made, tmp_path, signatures=signatures, verbose=False
    )
    function = tf.saved_model.load(file.path).signatures["serving_default"]
    answered = function(ids=tf.constant(SOURCES))
    expected = answers(made, SOURCES)
    np.testing.assert_array_equal(answered["ids"], expected["ids"])
    for name in ("score", "token_score"):
        np.testing.assert_allclose(answered[name], expected[name], atol=BOUND)
    graph = read_graph(str(file.path)).graph_def
    shared = {
        each.signature.name
        for each in graph.library.function
        if each.attr["_noinline"].b
    }
    calls = [
        node.attr["f"].func.name
        for each in graph.library.function
        for node in each.node_def
    ]
    # Of the prompt, and of the step.
    assert [calls.count(name) for name in shared] == [2] * 2


@HOME
@pytest.mark.parametrize(
    ("make", "most", "is_small"),
    [(translator, 2**24, True), (continuer, 0, False)],
)
def test_only_a_small_model_is_searched_by_one_thread(
    make, most, is_small, models, monkeypatch
):
    keras.config.set_dtype_policy("mixed_bfloat16")  # not the model's
    made = generator(models[make], temperature=2.0)
    keras.config.set_dtype_policy("float32")
    ids = np.array(SOURCES, "int32")
    noise = np.random.default_rng(0).random((4, 7), "float32")
    expected = made.search(ids, noise=noise)
    monkeypatch.setattr(search, "_SMALL", most)
    function = in_graph(lambda x: made.search(x, noise=noise))
    found = function(ids)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    for name in ("score", "token_score"):
        np.testing.assert_allclose(found[name], expected[name], atol=BOUND)
    graph = function.get_concrete_function().graph
    executors = [
        each.get_attr("executor_type")
        for each in graph.get_operations()
        if each.type.endswith("PartitionedCall")
    ]
    assert (b"SINGLE_THREADED_EXECUTOR" in executors) == is_small


@HOME
def test_a_stream_of_given_noise(models):
    """... says whether it was cut off."""
    made = generator(models[translator], temperature=3.0)
    noise = np.random.default_rng(0).random((8, 7), "float32")
    rows = np.repeat(np.array(SOURCES[:1], "int32"), 8, axis=0)
    found = made.offered_signatures()["from_ids"]([rows, noise])
    ended = found["ended"].numpy().tolist()
    assert {*ended} == {True, False}
    for ids, end, drawn in zip(found["ids"], ended, noise, strict=True):
        stream = made.stream(SOURCES[0], noise=drawn)
        pieces = [*stream, *[END] * stream.ended]
        assert pieces == ids.numpy()[: len(pieces)].tolist()
        assert stream.ended == end
    for each, row in ((made, noise[0, 1:]), (generator(made.model), noise[0])):
        with pytest.raises(ValueError, match=r"`noise` must be .*\(max_length"):
            each.stream(SOURCES[0], noise=row)
    row = np.append(noise[0, 1:], np.float32(1))
    with pytest.raises(ValueError, match=r"must be in \[0, 1\). Received"):
        made.stream(SOURCES[0], noise=row)


def test_one_seed_draws_the_same_sequences_call_by_call(models):
    model = models[translator]
    first, second = (
        generator(model, temperature=2.0, seed=5, max_length=3)
        for _ in range(2)
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
    assert loaded.search.decoding == made.search.decoding
    found = answers(loaded, SOURCES)
    for name, value in answers(made, SOURCES).items():
        np.testing.assert_array_equal(found[name], value)


# ---- Bad input

PAST = kp.RotaryEmbedding(
    scaling={
        "rope_type": "dynamic",
        "factor": 2.0,
        "original_max_position_embeddings": 4,
    }
)
BAD = [
    ({"beams": 0}, "`beams` must be a positive integer.*beams=0"),
    ({"beams": 13}, "`beams` must be at most the number of ids, 12"),
    (
        {"beams": 2, "top_k": 3},
        "`top_k` is an option of sampling.*top_k=3, beams=2",
    ),
    ({"n_best": 2}, "`n_best` must be at most the number of beams, 1"),
    ({"length_penalty": 0.6}, "`length_penalty` ranks beams"),
    ({"seed": 1}, "`seed` is an option of sampling"),
    ({"end_ids": [3, START]}, "`start_id` must not be one of `end_ids`"),
    ({"end_ids": "x"}, "`end_ids` must be an id or several"),
    ({"start_id": 0}, "`start_id` must be of the model's ids"),
    ({"start_id": None}, "`start_id`, the first id of targets"),
    ({"prefix_ids": [5] * 7}, "`prefix_ids` must be fewer than `max_length`"),
    ({"min_length": 7}, r"`min_length` must be an integer in \[0, max_length"),
    ({"start_id": 2.0}, "`start_id` must be an integer.*2.0"),
    ({"end_ids": True}, "`end_ids` must be an id or several"),
    ({"temperature": -1}, "`temperature` must be 0, for .* or a finite"),
    ({"temperature": 1.0, "top_k": 0}, "`top_k` must be a positive integer"),
    ({"temperature": 1.0, "top_p": 0}, r"`top_p` must be a number in \(0, 1"),
    ({"temperature": 1.0, "min_p": 1}, r"`min_p` must be a number in \[0, 1"),
    ({"repetition_penalty": 0}, "`repetition_penalty` must be a positive"),
    ({"beams": 2, "length_penalty": -1}, "`length_penalty` must be a finite"),
    (
        {"prefix_ids": [5, END]},
        "`prefix_ids` must contain none of `end_ids`.* 3",
    ),
    ({"temperature": 1.0, "seed": 1.5}, "`seed` must be an integer.*1.5"),
    ({"max_length": 0}, "`max_length` must be a positive integer"),
    ({"source_tokenizer": len}, "`source_tokenizer` must be a layer"),
    ({"target_tokenizer": keras.layers.Dense(1)}, "must have `detokenize`"),
]


def test_what_does_not_fit_is_named(models):
    for wrong, message in BAD:
        with pytest.raises(ValueError, match=message):
            generator(models[translator], **wrong)


def test_models_that_cannot_are_refused_by_name():
    with pytest.raises(ValueError, match="`model` must be a Transformer or a"):
        kp.Generator(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(
        ValueError, match="rope_type='dynamic' cannot be cached"
    ):
        generator(continuer(attention=PAST))
    table = continuer(input_position=kp.PositionEmbedding(9))
    with pytest.raises(ValueError, match="9"):
        predicted(generator(table), [[4] * 6])


def test_a_dict_by_the_name_of_the_input(generators):
    made = generators[translator]
    ids = np.array(SOURCES[:1], "int32")
    expected = ops.convert_to_numpy(made(ids)["ids"])
    for ask in (made, made.predict):
        found = ask({"ids": ids})["ids"]
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)
        with pytest.raises(ValueError, match=r"keys \['source'\]"):
            ask({"source": ids})


@HOME
def test_ragged_rows_are_padded(generators):
    import tensorflow as tf

    made = generators[continuer]
    rows = tf.ragged.constant([[5, 6], [7], []], "int32")
    expected = answers(made, rows.to_tensor())["ids"]
    batches = tf.data.Dataset.from_tensors(rows)
    for found in (made(rows), made.predict(rows), made.predict(batches)):
        np.testing.assert_array_equal(found["ids"], expected)


def test_a_row_without_tokens_is_answered(generators):
    """... which a list of none has no dtype for."""
    made = generators[continuer]
    expected = answers(made, [[0, 0]])["ids"]
    np.testing.assert_array_equal(
        made.predict([[]], verbose=0)["ids"], expected
    )
    stream = made.stream([])
    assert [*stream, *[END] * stream.ended] == [t for t in expected[0] if t]


def test_ids_and_sources_that_do_not_fit_are_named(models, generators):
    made = generators[translator]
    with pytest.raises(ValueError, match=r"`ids` must be in \[0, 12\).*: 12"):
        made.from_ids(np.array([[12]], "int32"))
    right = np.array([[5]])
    asks = {
        "x": made.predict,
        "text": lambda ids: made.stream(ids[0]),
        "source": lambda ids: made.score(ids, right),
        "target": lambda ids: made.score(right, ids),
    }
    for name, ask in asks.items():
        for wrong, message in (
            (np.array([[5, -1]]), r"in \[0, 12\).*: -1"),
            (np.array([[5.0]]), "of an integer dtype.*float64"),
            (np.array([[[5]]]), r"shape \((batch, seq|seq,)\).*\W1, 1|\[\[5"),
            ([["a"]], r"be ids of shape \(batch, seq\).*'a'"),
        ):
            with pytest.raises(ValueError, match=f"`{name}` must.*{message}"):
                ask(wrong)
    for wrong in ("abc", None, [[5, 6], [7]]):
        with pytest.raises(ValueError, match=r"`text` must be ids .*\(seq,\)"):
            made.stream(wrong)
    with pytest.raises(ValueError, match="`x` must hold at least one"):
        predicted(made, np.zeros((0, 3)))
    with pytest.raises(ValueError, match="`target` must hold at least one"):
        made.score(SOURCES, np.zeros((0, 3), "int32"))
    with pytest.raises(ValueError, match="`target` must have as many"):
        made.score(SOURCES, SOURCES[:1])
    with pytest.raises(ValueError, match="`beams` must be 1 for a stream"):
        generator(models[translator], beams=2).stream([4])


@HOME
def test_the_compiler_finds_the_same(models):
    """XLA, which knows every shape and keeps every buffer where it is."""
    made = generator(models[continuer])
    expected = answers(made, SOURCES)
    made.from_ids.compile(jit_compile=True)
    found = predicted(made, SOURCES)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["score"], expected["score"], atol=BOUND)


@pytest.mark.parametrize(
    ("make", "options", "runs"),
    [
        (translator, {}, (eager, in_graph)),
        (continuer, BEAMS, (eager, in_graph)),
        pytest.param(continuer, BEAMS, (compiled,), marks=pytest.mark.slow),
    ],
)
def test_of_nothing_comes_nothing(models, make, options, runs):
    """No texts have no answers: eager, in a graph, compiled, and scored."""
    made = generator(models[make], **options)
    wanted = {
        name: tuple(size or 0 for size in spec.shape)
        for name, spec in made.output.items()
    }
    for run in runs:
        ask = run(lambda ids: made.search(ids))
        for length in (4,) if run is compiled else (0, 4):
            found = ask(ops.zeros((0, length), "int32"))
            assert {k: tuple(x.shape) for k, x in found.items()} == wanted
    for length in (0, 4):
        ids = np.zeros((0, length), "int32")
        scored = made.scorer_from_ids({"source": ids, "target": ids})
        assert tuple(scored["score"].shape) == (0,)
        assert tuple(scored["token_score"].shape) == (0, length + 1)
