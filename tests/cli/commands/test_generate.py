"""`keras-posenc generate`."""

import functools
import io
import json
import os
import sys

import numpy as np
import pytest

from keras_posenc_cli import main
from keras_posenc_cli.commands import generate

pytestmark = pytest.mark.tensorflow

LENGTH = 6
TEXTS = ["abc", "한a", "h"]


@pytest.fixture(scope="module")
def generators(tmp_path_factory):
    """Of texts with beams, of texts that are drawn, of ids, and of a decoder.

    The first three have positions for 9 tokens.
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
    beams = kp.Generator(model, max_length=LENGTH, beams=2, n_best=2, **texts)
    beams.save(folder / "beams.keras")
    draws = kp.Generator(model, max_length=LENGTH, temperature=9.0, **texts)
    draws.save(folder / "draws.keras")
    bare = kp.Generator(model, max_length=LENGTH, start_id=2, end_ids=3)
    bare.save(folder / "ids.keras")
    without = kp.CharacterTokenizer("ab", add_start=False, add_end=False)
    alone = shaken(kp.TransformerDecoderModel(6, **SIZES))
    kp.Generator(
        alone, source_tokenizer=without, end_ids=(), max_length=LENGTH
    ).save(folder / "alone.keras")
    return folder


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """Generators, which the command does not change."""
    known = functools.cache(generate.load_generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "load_generator", lambda path, _: known(path))
        yield


@pytest.fixture
def stdin(monkeypatch):
    """Sets what standard input holds."""

    def hold(content):
        stream = io.TextIOWrapper(io.BytesIO(content), encoding="ascii")
        monkeypatch.setattr(sys, "stdin", stream)

    return hold


def test_the_models_outputs_are_printed(run, generators, stdin):
    """... of an empty text, too."""
    import keras

    texts = [*TEXTS, ""]
    stdin("한a\r\nh\n\n".encode())
    result = run("generate", generators / "beams.keras", "abc", "-", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert [each["text"] for each in found] == texts
    model = keras.saving.load_model(generators / "beams.keras")
    expected = model.predict(texts, verbose=0)
    for each, wanted, scores in zip(
        found, expected["text"], expected["score"], strict=True
    ):
        outputs = each["outputs"]
        assert [output["text"] for output in outputs] == list(wanted)
        np.testing.assert_allclose(
            [output["score"] for output in outputs], scores, atol=1e-5
        )


def test_ids_and_a_seed(run, generators):
    from keras_posenc import CharacterTokenizer

    model, many = generators / "draws.keras", [*"abcdefgh", ""]
    seed = ("--seed", 1)
    outputs = json.loads(run("generate", model, *many, *seed, "--json").out)
    outputs = [output for each in outputs for output in each["outputs"]]
    assert len({output["text"] for output in outputs}) > 3
    tokenizer = CharacterTokenizer("abcdefgh한국")
    ids = [tokenizer([text]).numpy()[0] for text in many]
    ids = [",".join(map(str, row)) for row in ids]
    result = run("generate", model, *ids, *seed, "--ids", "--scores")
    assert result.code == 0, result.err
    lines = [line.split("\t") for line in result.out.splitlines()]
    rows = [[int(each) for each in row.split()] for _, row in lines]
    padded = [row + [0] * (LENGTH - len(row)) for row in rows]
    found = tokenizer.detokenize(padded).numpy()
    assert [text.decode() for text in found] == [x["text"] for x in outputs]
    assert all(float(score) < 0 for score, _ in lines)
    cut = sum(not output["ended"] for output in outputs)
    assert 0 < cut < len(many)
    assert f"{cut} of {len(many)} outputs were cut off at" in result.err
    other = run("generate", model, *ids, "--seed", 4, "--ids", "--scores")
    assert other.out != result.out
    # It has no end symbol.
    result = run("generate", generators / "alone.keras", "a")
    assert result.code == 0
    assert "cut off" not in result.err


def test_a_pipe_that_is_closed_is_not_a_texts_fault(generators, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

        def fileno(self):
            return nowhere.fileno()

    arguments = ["generate", str(generators / "ids.keras"), "5 7 3", "--ids"]
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stdout", Closed())
        assert main(arguments) == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("none abc", "none' does not exist"),
        ("beams.keras ab|abcabcabc", "learned only 9 positions"),
        ("beams.keras abc|\udcff", "text 2 is no UTF-8"),
        ("beams.keras abc|--seed|1", "does not sample"),
        ("beams.keras abc|--ids", "a text must be ids, integers above 0"),
        ("ids.keras abc", "has no tokenizer. Give ids"),
        ("ids.keras 5|6 7|99|--ids", "model's vocabulary. Received: 99"),
        ("draws.keras 5|--ids|--seed|-1", "--seed: -1 is below 0"),
    ],
)
def test_bad_arguments(run, generators, line, reason):
    model, given = line.split(" ", 1)
    result = run("generate", generators / model, *given.split("|"))
    assert result.code == 2
    assert result.out == ""
    assert reason in result.err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "standard input holds no line"),
        (b"abc\n\xff\n", "text 2 is no UTF-8"),
    ],
)
def test_bad_standard_input(run, generators, stdin, content, reason):
    stdin(content)
    result = run("generate", generators / "beams.keras", "-")
    assert result.code == 2
    assert reason in result.err


def test_models_that_generate_nothing(cli):
    result = cli("generate", "model.tflite", "5 6", "--ids")
    assert result.code == 2
    assert "'model.tflite' must be a .keras file" in result.err
    result = cli("generate", "model.keras", "abc")
    assert result.code == 2
    assert "'model.keras' is a Sequential, not a Generator" in result.err
