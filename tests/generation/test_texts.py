"""Texts in, texts out: in Python, in a graph, and in what is exported."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_posenc as kp
from tests.generation.toy import SIZES, generator, shaken, tokenizer

pytestmark = pytest.mark.tensorflow

TEXTS = ["abc", "", "hello", "없다"]


@pytest.fixture(scope="module")
def made():
    """A greedy generator that no test changes."""
    return generator()


@pytest.fixture(scope="module")
def beams():
    """One of two beams, likewise."""
    return generator(beams=2, length_penalty=0.6)


def test_texts_are_the_ids_of_texts():
    made = generator(beams=3, n_best=2)
    found = made.predict(TEXTS, verbose=0)
    ids = made.from_ids(tokenizer()(TEXTS).numpy())
    texts = tokenizer().detokenize(ids["ids"]).numpy()
    np.testing.assert_array_equal(
        np.char.encode(found["text"].astype(str)), texts
    )
    np.testing.assert_allclose(found["score"], ids["score"], atol=1e-5)
    np.testing.assert_array_equal(
        found["ended"], np.any(ids["ids"] == 3, axis=-1)
    )
    called = made(tf.constant(TEXTS))  # as in a graph
    np.testing.assert_array_equal(called["text"], texts)
    batches = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2)
    again = made.predict(batches, verbose=0)
    np.testing.assert_array_equal(again["text"], found["text"])


def test_pieces_of_a_stream_are_its_text(made):
    texts = made(tf.constant(TEXTS))["text"].numpy()
    for text, expected in zip(TEXTS, texts, strict=True):
        assert "".join(made.stream(text)) == expected.decode()


def test_texts_are_scored_with_their_end(made):
    """... whether their tokenizer appends it or not."""
    bare = kp.Generator(
        made.model,
        source_tokenizer=tokenizer(),
        target_tokenizer=kp.CharacterTokenizer(
            "abcdefgh", add_start=False, add_end=False
        ),
        max_length=6,
    )
    bare.scorer_from_ids.run_eagerly = True
    texts = ["ab", "a", "", "cab"]
    pairs = {"source": tf.constant(TEXTS), "target": tf.constant(texts)}
    expected = made.scorer(pairs)["score"]
    for each in (made, bare):
        np.testing.assert_allclose(
            each.score(TEXTS, texts), expected, atol=1e-5
        )


def test_a_prompt_goes_on_behind_its_end_symbol():
    """A tokenizer appends one, and a prompt has not ended."""
    model = shaken(kp.TransformerDecoderModel(12, **SIZES))
    with_end, without = (
        kp.Generator(
            model,
            source_tokenizer=kp.CharacterTokenizer("abcdefgh", add_end=add_end),
            max_length=6,
        )(tf.constant(TEXTS))
        for add_end in (True, False)
    )
    np.testing.assert_array_equal(with_end["text"], without["text"])
    np.testing.assert_allclose(with_end["score"], without["score"], atol=1e-5)


def test_a_file_has_the_tokenizers(beams, tmp_path):
    beams.save(tmp_path / "generator.keras")
    loaded = keras.saving.load_model(tmp_path / "generator.keras")
    found = [g(tf.constant(TEXTS))["text"].numpy() for g in (beams, loaded)]
    np.testing.assert_array_equal(*found)


def test_a_tokenizer_of_more_ids_than_the_model_has_is_refused():
    model = kp.Transformer(11, **SIZES)
    with pytest.raises(ValueError, match=r"no more ids than the model.*11.*12"):
        kp.Generator(model, source_tokenizer=tokenizer())


def test_tokenizers_of_any_name():
    """... those of the inputs and layers of a generator too."""
    model = shaken(kp.TransformerDecoderModel(12, **SIZES))
    texts = []
    for name in ("characters", "text", "search"):
        made = kp.Generator(
            model,
            source_tokenizer=kp.CharacterTokenizer("abcdefgh", name=name),
            max_length=6,
            temperature=1.0,
            seed=1,
        )
        assert len(made.offered_signatures()) == 3
        texts.append(made(tf.constant(TEXTS))["text"].numpy().tolist())
    assert texts[1:] == 2 * texts[:1]


def test_ids_that_the_tokenizer_lacks_are_not_generated():
    """A vocabulary is often rounded up."""
    model = shaken(kp.TransformerDecoderModel(12, **SIZES))
    drawn = {"max_length": 6, "temperature": 9.0, "seed": 1}
    made = kp.Generator(model, **drawn)
    prompts = np.array([[4], [5]], "int32")
    assert np.max(made(prompts)["ids"]) > 5
    made = kp.Generator(
        model, source_tokenizer=kp.CharacterTokenizer("ab"), **drawn
    )
    assert np.max(made.from_ids(prompts)["ids"]) <= 5


def test_what_are_no_texts_is_named(made):
    for ask in (made.predict, lambda x: made.score(x, TEXTS)):
        with pytest.raises(ValueError, match=r"must be a list.*'abc'"):
            ask("abc")
        for wrong, reason in (
            (None, "texts.*None"),
            ("\ud800", "Unicode, .*ud800"),
        ):
            with pytest.raises(ValueError, match=f"` must be {reason}"):
                ask(["abc", wrong])
    rows = tf.data.Dataset.from_tensor_slices(TEXTS)
    with pytest.raises(ValueError, match=r"batches of texts, \(batch,\)"):
        made.predict(rows)
    with pytest.raises(ValueError, match=r"batches of ids, \(batch, seq\)"):
        kp.Generator(made.model, start_id=2).predict(rows.batch(2))


# Files of loops are verified below with each change.
def test_saved_models_answer_texts_ids_and_pairs(beams, tmp_path):
    artifact = kp.export_saved_model(
        beams, tmp_path, verify=False, verbose=False
    )
    loaded = tf.saved_model.load(str(artifact.path))
    assert set(loaded.signatures) == {"serving_default", "from_ids", "score"}
    answer = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    expected = beams(tf.constant(TEXTS))
    np.testing.assert_array_equal(answer["text"], expected["text"])
    pairs = loaded.signatures["score"](
        source=tf.constant(TEXTS), target=tf.constant(["ab"] * 4)
    )
    expected = beams.scorer(
        {"source": tf.constant(TEXTS), "target": tf.constant(["ab"] * 4)}
    )
    np.testing.assert_allclose(pairs["score"], expected["score"], atol=1e-5)
    card = (artifact.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Generates with max_length=6, beams=2, " in card
    assert "length_penalty=0.6, start_id=2, " in card


def test_litert_files_have_the_whole_loop(tmp_path):
    biased = {"attention": kp.RelativePositionBias()}
    made = generator(beams=2, length_penalty=0.6, of_model=biased)
    path = tmp_path / "generator.tflite"
    kp.export_litert(made, path, max_length=2, verbose=False)
    assert "WHILE" in kp.inspect_export(path).operators
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    for wrong in 12, -1:
        run = interpreter(str(path)).get_signature_runner("serving_default")
        with pytest.raises(RuntimeError, match="out of bounds"):
            run(ids=np.full((1, 2), wrong, "int32"))
    run = interpreter(str(path)).get_signature_runner("serving_default")
    for text in TEXTS:  # of any length, in a loop of any number of steps
        ids = np.asarray(tokenizer()([text]))
        expected = made.from_ids(ids)
        found = run(ids=ids)
        np.testing.assert_array_equal(found["ids"], expected["ids"])
        np.testing.assert_array_equal(found["ended"], expected["ended"])
        np.testing.assert_allclose(
            found["token_score"], expected["token_score"], atol=1e-5
        )
    assert found["ended"].dtype == "int32"  # LiteRT.js takes no bools


def stream(path, ids, ends, *, steps):
    """As an app does: the likeliest token each time."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    file = interpreter(str(path))
    state = file.get_signature_runner("encode")(ids=ids)
    decode = file.get_signature_runner("decode")
    for _ in range(steps):
        found = decode(**state)
        token = found.pop("logits").argmax(axis=-1).astype("int32")
        yield int(token[0])
        if token[0] in ends:
            return
        state.update(found, token=token)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        pytest.param(
            kp.Transformer,
            {"min_length": 3, "prefix_ids": [5]},
            marks=pytest.mark.slow,
        ),
        (kp.TransformerDecoderModel, {}),
    ],
)
def test_litert_files_of_steps_stream_what_is_generated(
    tmp_path, make, options
):
    rows = 12_000  # of a table that weighs more than two graphs
    sizes = {**SIZES, "d_model": 16, "num_layers": 2}
    model = shaken(make(rows, **sizes), noise=0.2)
    sources = np.random.default_rng(0).integers(4, rows, (6, 1, 5), "int32")

    def answers(**end):
        made = kp.Generator(model, start_id=2, max_length=6, **options, **end)
        return made, np.asarray(made.from_ids(np.concatenate(sources))["ids"])

    _, endless = answers()
    # One that ends some of the answers before their last token.
    end = next(
        end
        for end in np.setdiff1d(endless, [5]).tolist()  # no prefix
        if 0 < np.any(endless[:, :-1] == end, axis=1).sum() < len(sources)
    )
    made, wanted = answers(end_ids=end)
    path = tmp_path / "steps.tflite"
    kp.export_litert(
        made,
        path,
        signatures=made.step_signatures(),
        max_length=2,
        verbose=False,
    )
    weights = sum(weight.numpy().nbytes for weight in model.weights)
    assert path.stat().st_size < 1.4 * weights  # in the file once
    prefix = list(made.prefix_ids)
    steps = made.max_length - len(prefix)
    for ids, right in zip(sources, wanted, strict=True):
        found = stream(path, ids, made.end_ids, steps=steps)
        right = right[: np.count_nonzero(right)]
        assert [*prefix, *found] == right.tolist()


def test_steps_beyond_the_last_slot_are_no_numbers(made):
    steps = made.step_signatures()
    state = dict(steps["encode"](np.array([[4, 5, 3]])))
    for room in range(6, -1, -1):
        found = dict(steps["decode"](state))
        logits = np.asarray(found.pop("logits"))
        assert np.all(np.isnan(logits) == (room == 0))
        state.update(found)


@pytest.mark.parametrize(
    ("export", "ask", "message"),
    [
        (kp.export_saved_model, lambda g: g, "must map names, .*_default': "),
        (
            kp.export_saved_model,
            lambda g: {"score": g.score},
            "must map names, .* to a keras.Model or",
        ),
        (kp.export_saved_model, lambda g: {"a": g}, "by a seed of its own"),
        (kp.export_litert, lambda g: {"a": g.from_ids}, "take the noise too"),
        (
            kp.export_litert,
            lambda g: {"a": generator()},
            r"take no strings.*`signatures` out.*_signatures\(\), .*'from_ids'",
        ),
    ],
)
def test_what_is_no_signature_of_a_generator_is_told(
    tmp_path, export, ask, message
):
    made = generator(temperature=1.5)
    path = tmp_path / ("a.tflite" if export is kp.export_litert else "a")
    with pytest.raises(ValueError, match=message):
        export(made, path, signatures=ask(made))
