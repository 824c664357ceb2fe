"""The example of word order: its data, and that it runs and refuses."""

import collections
import re

import numpy as np
import pytest

from tests.examples import scripts


@pytest.fixture(scope="module")
def example():
    return scripts.load("word_order")


@pytest.fixture(scope="module")
def sentences(example):
    return example.read_sentences()


def test_reference_has_enough_sentences(sentences):
    assert len(sentences) > 1500
    assert {len(words) for words in sentences} <= set(range(5, 41))


def test_each_sentence_comes_once(sentences):
    assert len({tuple(words) for words in sentences}) == len(sentences)


def test_sentences_have_no_capitals_and_no_markup(sentences):
    text = "\n".join(" ".join(words) for words in sentences)
    assert text == text.lower()
    for markup in ("::=", ">>>", "===", "---", "|"):
        assert markup not in text


def test_own_texts_are_read_and_cleaned(example, tmp_path):
    lines = [f"The number {i} is one of many.\n\n" for i in range(120)]
    code = "   a_grammar ::= one or two or three words.\n\n"
    path = tmp_path / "texts.txt"
    path.write_text("".join([*lines, *lines, code]), encoding="utf-8")
    found = example.read_sentences(path)
    assert len(found) == 120
    assert found[7][:4] == ["the", "number", "7", "is"]


def test_shuffling_changes_order_alone(example, sentences):
    rng = np.random.default_rng(0)
    for words in sentences:
        other = example.shuffled(words, rng)
        assert collections.Counter(other) == collections.Counter(words)
        assert other != words


def test_shuffling_never_keeps_the_order(example):
    rng = np.random.default_rng(0)
    for _ in range(100):
        assert example.shuffled(["a", "b"], rng) == ["b", "a"]
    assert example.shuffled(["a", "a"], rng) == ["a", "a"]


def test_shuffling_follows_its_generator(example, sentences):
    first, second = (
        example.shuffled(sentences[0], np.random.default_rng(3))
        for _ in range(2)
    )
    assert first == second


def test_nothing_says_where_a_sentence_ends(example, sentences):
    """Of the marks that end sentences none is left at the end."""
    assert not any(words[-1].endswith((*'.!?):"',)) for words in sentences)
    last = collections.Counter(words[-1][-1] for words in sentences)
    assert all(mark.isalnum() for mark in last)


def test_rule_knows_what_words_come_first(example):
    # Four begin with "the", which is one word of five; "b" ends as often.
    training = [["the", "a", "b", "c", "d"]] * 4 + [["b", "a", "c", "d", "the"]]
    real = [["the", "x", "y", "z", "w"]] * 3 + [["x", "y", "z", "w", "v"]]
    rng = np.random.default_rng(1)
    fake = [example.shuffled(words, rng)[0] != "the" for words in real]
    expected = np.mean([True, True, True, False, *fake])
    assert example.first_word_accuracy(training, real, 0) == expected


@pytest.mark.tensorflow
@pytest.mark.slow
def test_quick_run_reports_and_exports(tmp_path):
    report = scripts.run(
        "word_order", "--quick", "--out", "out", folder=tmp_path
    )
    for part in (
        "without positions",
        "with positions",
        "Held-out sentences",
        "worst difference",
        "word_order.tflite",
        "MediaPipe, word_order_int8.tflite",
    ):
        assert part in report
    # MediaPipe's score of the same sentence is Keras's.
    found = [
        re.search(rf"│ {name} +│ +(0\.\d+) ", report)[1]
        for name in ("Keras", r"MediaPipe, word_order\.tflite")
    ]
    assert abs(float(found[0]) - float(found[1])) <= 2e-6
    version = tmp_path / "out" / "word_order" / "1"
    assert (version / "saved_model.pb").is_file()
    assert (tmp_path / "out" / "word_order.tflite").stat().st_size > 0


USER_ERRORS = {
    "missing": None,
    "not UTF-8": b"\xff\xfe\xfa caf\xe9 " * 50,
    "too few sentences": b"This is the only sentence here.\n",
}


@pytest.mark.parametrize("content", USER_ERRORS.values(), ids=USER_ERRORS)
def test_user_error_is_one_line(tmp_path, content):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    finished = scripts.run_any("word_order", "--texts", path, folder=tmp_path)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    assert "Traceback" not in finished.stderr
    assert [p.name for p in tmp_path.iterdir() if p != path] == []
