"""`keras-posenc generate`."""

import io
import json
import os
import sys

import numpy as np
import pytest

from keras_posenc_cli import main

pytestmark = pytest.mark.tensorflow

LENGTH = 6
TEXTS = ["abc", "한a", "h"]


@pytest.fixture(scope="module")
def generators(tmp_path_factory):
    """A SavedModel of texts with beams, a LiteRT file of ids that are drawn.

    The one has positions for 9 tokens, and the other takes 8, in each of two
    rows.
    """
    import keras_posenc as kp
    from tests.generation.toy import SIZES, shaken

    folder = tmp_path_factory.mktemp("generators")
    model = shaken(
        kp.Transformer(
            14,
            **{**SIZES, "num_layers": 1},
            input_position=kp.PositionEmbedding(9),
        )
    )
    tokenizer = kp.CharacterTokenizer("abcdefgh한국")
    texts = {"source_tokenizer": tokenizer, "target_tokenizer": tokenizer}
    silent = {"verify": False, "verbose": False}
    beams = kp.Generator(model, max_length=LENGTH, beams=2, n_best=2, **texts)
    beams.save(folder / "beams.keras")
    kp.export_saved_model(beams, folder / "beams", **silent)
    draws = kp.Generator(model, max_length=LENGTH, temperature=9.0, **texts)
    draws.save(folder / "draws.keras")
    sizes = {"ids": (2, 8), "noise": (2, LENGTH)}
    by_noise = draws.offered_signatures()["from_ids"]
    kp.export_litert(
        draws,
        folder / "draws.tflite",
        signatures={"two_of_8": (by_noise, sizes)},
        **silent,
    )
    bare = kp.Generator(model, max_length=LENGTH, start_id=2, end_ids=3)
    bare.save(folder / "ids.keras")
    without = kp.CharacterTokenizer("ab", add_start=False, add_end=False)
    alone = shaken(kp.TransformerDecoderModel(6, **SIZES))
    kp.Generator(
        alone, source_tokenizer=without, end_ids=(), max_length=LENGTH
    ).save(folder / "alone.keras")
    return folder


@pytest.fixture
def stdin(monkeypatch):
    """Sets what standard input holds."""

    def hold(content):
        stream = io.TextIOWrapper(io.BytesIO(content), encoding="ascii")
        monkeypatch.setattr(sys, "stdin", stream)

    return hold


def test_a_saved_model_answers_as_its_model(run, generators, stdin):
    """... an empty text, too."""
    import keras

    texts = [*TEXTS, ""]
    stdin("한a\r\nh\n\n".encode())
    result = run("generate", generators / "beams", "abc", "-", "--json")
    assert result.code == 0, result.err
    assert "Running " in result.err
    found = json.loads(result.out)
    assert [each["text"] for each in found] == texts
    model = keras.saving.load_model(generators / "beams.keras")
    expected = model(keras.ops.convert_to_tensor(texts))
    for each, wanted, scores in zip(
        found, expected["text"].numpy(), expected["score"], strict=True
    ):
        answers = each["outputs"]
        wanted = [text.decode() for text in wanted]
        assert [answer["text"] for answer in answers] == wanted
        np.testing.assert_allclose(
            [answer["score"] for answer in answers], scores, atol=1e-5
        )


def test_a_file_of_ids_takes_a_tokenizer_or_ids(run, generators):
    """... and one seed draws the same from a file as from its model."""
    from keras_posenc import CharacterTokenizer

    file, model = generators / "draws.tflite", generators / "draws.keras"
    seed = ("--seed", 3)
    result = run("generate", model, *TEXTS, *seed, "--json")
    assert result.code == 0, result.err
    answers = [each["outputs"] for each in json.loads(result.out)]
    texts = [answer["text"] for (answer,) in answers]
    assert len(set(texts)) == 3
    result = run("generate", file, *TEXTS, *seed, "--tokenizer", model)
    assert result.out.splitlines() == texts, result.err

    tokenizer = CharacterTokenizer("abcdefgh한국")
    ids = [tokenizer([text]).numpy()[0] for text in TEXTS]
    ids = [",".join(map(str, row)) for row in ids]
    result = run("generate", file, *ids, *seed, "--ids", "--scores")
    assert result.code == 0, result.err
    lines = [line.split("\t") for line in result.out.splitlines()]
    rows = [[int(each) for each in row.split()] for _, row in lines]
    padded = [row + [0] * (LENGTH - len(row)) for row in rows]
    found = tokenizer.detokenize(padded).numpy()
    assert [text.decode() for text in found] == texts
    scores = [float(score) for score, _ in lines]
    expected = [answer["score"] for (answer,) in answers]
    np.testing.assert_allclose(scores, expected, atol=6e-5)  # of 4 digits
    other = run("generate", file, *ids, "--seed", 4, "--ids", "--scores")
    assert other.out != result.out


def test_outputs_of_an_onnx_file(run, tmp_path):
    """No output has an input's name; NaN is the score of too long a text.

    `tests/generation` checks that a generator gives NaN then, or with beams the
    lowest number, in a graph as in an exported file.
    """
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        generator (int32[rows, length] ids) => (
            int32[rows, length] output_ids,
            float[rows] score,
            float[rows, length] token_score
        ) {
            output_ids = Identity(ids)
            token_score = Cast<to = 1>(ids)
            most = ReduceMax<axes = [1], keepdims = 0>(token_score)
            seven = Constant<value_float = 7.0>()
            beyond = Greater(most, seven)
            zero = Sub(most, most)
            nan = Div(zero, zero)
            score = Where(beyond, nan, most)
        }
    """)
    path = tmp_path / "generator.onnx"
    onnx.save(model, path)
    result = run("generate", path, "5,6", "7", "--ids", "--scores")
    assert result.code == 0, result.err
    assert result.out.splitlines() == ["6.0000\t5 6", "7.0000\t7"]
    result = run("generate", path, "5,6", "8", "--ids")
    assert (result.code, result.out) == (2, "")
    assert "text 2 has no output" in result.err


@pytest.mark.slow
def test_answers_that_were_cut_off_are_counted(run, generators):
    model = generators / "draws.keras"
    many = [*"abcdefgh", ""]
    result = run("generate", model, *many, "--seed", 1, "--json")
    answers = [each["outputs"] for each in json.loads(result.out)]
    cut = sum(not answer["ended"] for (answer,) in answers)
    assert 0 < cut < len(many)
    note = f"{cut} of {len(many)} outputs were cut off at"
    file = (generators / "draws.tflite", "--tokenizer", model)
    result = run("generate", *file, *many, "--seed", 1)
    assert note in result.err
    assert len(result.out.splitlines()) == len(many)
    streamed = run("generate", model, *many, "--seed", 1, "--stream")
    assert streamed.out == result.out
    assert note in streamed.err
    for how in ((), ["--stream"]):  # it has no end symbol
        result = run("generate", generators / "alone.keras", "a", *how)
        assert result.code == 0
        assert "reached" not in result.err
    given = (generators / "ids.keras", "5 7", "8", "--ids")
    whole, streamed = (
        run("generate", *given, *how).out for how in ((), ["--stream"])
    )
    for ids, pieces in zip(
        whole.split("\n"), streamed.split("\n"), strict=True
    ):
        assert pieces == ids.removesuffix(" 3")  # the end symbol


def test_the_text_that_has_no_answer_is_named(run, generators):
    """Ids that the model does not have, among others that it has."""
    ids = ("5", "6 7", "99")
    result = run("generate", generators / "draws.tflite", *ids, "--ids")
    assert result.code == 1
    assert "draws.tflite' fails for text 3: " in result.err
    assert "An id is beyond its vocabulary" in result.err
    result = run("generate", generators / "ids.keras", *ids, "--ids")
    assert result.code == 2
    assert "[0, 14), the model's vocabulary. Received: 99" in result.err
    assert "longest" not in result.err  # that is another text
    arguments = ("generate", generators / "ids.keras", *ids, "--ids")
    result = run(*arguments, "--stream")
    assert result.code == 2
    assert "ids.keras' fails for text 3: " in result.err
    assert "[0, 14), the model's vocabulary. Received: 99" in result.err


def test_a_pipe_that_is_closed_is_not_a_texts_fault(generators, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

        def fileno(self):
            return nowhere.fileno()

    arguments = ["generate", str(generators / "ids.keras"), "5 7 3", "--ids"]
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stdout", Closed())
        assert main([*arguments, "--stream"]) == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("none abc", "none' does not exist"),
        ("beams ab|abcabcabc", "text 2 has no output"),
        ("beams.keras ab|abcabcabc", "learned only 9 positions"),
        ("beams.keras abc|\udcff", "text 2 is no UTF-8"),
        ("beams.keras abc|--seed|1", "does not sample"),
        ("beams.keras abc|--signature|x", "is for exported files, not .keras"),
        ("beams.keras abc|--ids", "text 1 must be ids, integers above 0"),
        ("ids.keras abc", "has no tokenizer. Give ids"),
        ("draws.tflite abc", "--tokenizer FILE.keras. Or give ids: --ids"),
        (
            "draws.tflite 1 1 1 1 1 1 1 1 1|--ids",
            "text 1 is too long: it has 9 ids, and signature 'two_of_8'",
        ),
        ("draws.tflite 5|--ids|--seed|-1", "--seed: -1 is below 0"),
        ("beams 5|--ids", "takes texts. The signatures of "),
        ("beams 5|--tokenizer|x", "beams' has its own"),
        ("beams.keras abc|--stream", "of the same model with beams=1"),
        ("draws.tflite 5|--ids|--stream", "--stream is for .keras files"),
        ("draws.keras 5|--ids|--stream", "draws.keras' takes texts, not ids"),
    ],
)
def test_bad_arguments(run, generators, line, reason):
    artifact, given = line.split(" ", 1)
    result = run("generate", generators / artifact, *given.split("|"))
    assert result.code == 2
    assert result.out == ""
    assert reason in result.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "standard input holds no line"),
        (b"abc\n\xff\n", "line 2 of standard input is no UTF-8"),
    ],
)
def test_bad_standard_input(run, generators, stdin, content, reason):
    stdin(content)
    result = run("generate", generators / "beams.keras", "-")
    assert result.code == 2
    assert reason in result.err


def test_artifacts_of_other_models(cli):
    result = cli("generate", "model.tflite", "5 6", "--ids")
    assert result.code == 2
    assert "is not that of a kp.Generator" in result.err
    assert "It takes ids: int32 (None, None), and returns scores" in result.err
    result = cli("generate", "model.keras", "abc")
    assert result.code == 2
    assert "'model.keras' is a Sequential, not a Generator" in result.err
