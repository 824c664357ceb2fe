"""Figures on pages are those that were measured: benchmarks/results.json."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import reference

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
KERAS_HUB = "keras_posenc / keras-hub"
ENGLISH, KOREAN = "README.md", "README.ko.md"
CHAT, PEERS = "docs/chat.md", "docs/peers.md"
PADDED = f"| six blocks, 32 × 128, 56% filled | {KERAS_HUB} | 0.59 |"
SAVED_MODEL = "| BERT-base | SavedModel | 11.5 | 7.8 |"
LITERT = "| BERT-base | LiteRT | 20.9 | 25.1 |"

# A page, what it says, and the rows of RESULTS.md that it has it from: where a
# row has changed, write the page's sentence again.
FIGURES = [
    (ENGLISH, "run 1.7x as fast as keras-hub's", PADDED),
    (KOREAN, "keras-hub보다 1.7배 빠릅니다", PADDED),
    (ENGLISH, "in 12 s as a SavedModel, in 21 s as", SAVED_MODEL, LITERT),
    (ENGLISH, "verifies nothing, takes 8 and 25 s", SAVED_MODEL, LITERT),
    (KOREAN, "SavedModel로 12초, LiteRT로 21초", SAVED_MODEL, LITERT),
    (KOREAN, "8초와 25초", SAVED_MODEL, LITERT),
    (PEERS, "run 1.7x as fast as keras-hub's", PADDED),
    (
        PEERS,
        "a training step of them 1.7x",
        f"| a training step on that batch | {KERAS_HUB} | 0.60 |",
    ),
    (
        PEERS,
        "1.4x as fast as sentence-transformers",
        "| keras_posenc / sentence-transformers, docstrings | 0.73 |",
    ),
    (
        PEERS,
        "one block 1.3x as fast in float32, 2.1x in bfloat16",
        "| one block, 8 × 128, float32 | keras_posenc / PyTorch | 1.27 |",
        "| one block, 8 × 128, bfloat16 | keras_posenc / PyTorch | 2.05 |",
    ),
    (PEERS, "of 55 and more short", "| theirs, ours from 1, theirs from 55 |"),
    (
        PEERS,
        "7 and more blocks, by 7%",
        "| layers | keras_posenc | 37.9 – 1013.2 |",
        "| layers | keras-hub | 39.0 – 945.5 |",
        "| ours, theirs from 7 |",
    ),
    (
        PEERS,
        "holds 0.80 GB, with PyTorch 0.34",
        "| length | keras_posenc | 7.9 – 1310.2 | 1.56 | 0.80 –",
        "| length | PyTorch | 7.8 – 3622.8 | 1.89 | 0.34 –",
    ),
    (CHAT, "llama.cpp, Q4_0 | 7.5 |", "| llama.cpp, Q4_0 | 7.5 |"),
    (CHAT, "(a [package](litertlm.md)) | 9.3 |", "| LiteRT-LM, int8 | 9.3 |"),
    (CHAT, "LiteRT, int8 | 10.9 |", "| LiteRT, int8 | 10.9 |"),
    (CHAT, "llama.cpp, Q8_0 | 11.5 |", "| llama.cpp, Q8_0 | 11.5 |"),
    (CHAT, "LiteRT, float32 | 23.9 |", "| LiteRT | 23.9 |"),
    (CHAT, "SavedModel | 54.1 |", "| SavedModel | 54.1 |"),
    (CHAT, "on PyTorch, float32 | 78.7 |", "| transformers, PyTorch | 78.7 |"),
    (
        "docs/litertlm.md",
        "| 3.8, 10.7 |",
        "| a text of 16 tokens | LiteRT-LM, int8 | 3.8 |",
        "| a text of 128 tokens | LiteRT-LM, int8 | 10.7 |",
    ),
    (
        "docs/litertlm.md",
        "MediaPipe takes 1.9 and 11.9 ms",
        "| a text of 16 tokens | MediaPipe, int8 | 1.9 |",
        "| a text of 128 tokens | MediaPipe, int8 | 11.9 |",
    ),
    (
        "docs/scoring.md",
        "`r` was 994",
        "| 1,000 docstrings of a table, one core | keras_posenc | 1006.5 |",
    ),
    (
        ENGLISH,
        "(99%, 96% and 96% of [160 public ones]",
        "| all | 159 of 160 | 153 of 160 | 153 of 160 |",
    ),
    (
        KOREAN,
        "[공개 모델 160개](docs/zoo.md)(영어) 중 99%, 96%, 96%",
        "| all | 159 of 160 | 153 of 160 | 153 of 160 |",
    ),
]


@pytest.fixture(scope="module")
def measured():
    """The results, and the page that `benchmarks` writes of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(BENCHMARKS)
        import _report
    results = json.loads((BENCHMARKS / "results.json").read_text("utf-8"))
    return results, _report


def read(page):
    return (ROOT / page).read_text("utf-8")


def test_the_page_of_results_is_of_the_results(measured):
    results, report = measured
    assert read("benchmarks/RESULTS.md") == report.markdown(results)


def test_figures_were_measured():
    rows = read("benchmarks/RESULTS.md") + read("docs/zoo.md")
    for page, words, *wanted in FIGURES:
        assert words in read(page), f"{page} lacks: {words}"
        for row in wanted:
            assert row in rows, f"{page}, {words!r}: no longer {row}"


def test_missed_goals_are_counted(measured):
    results, report = measured
    counts = []
    for processor in ("AMD EPYC", "Intel with AMX"):
        rows = [
            row
            for part in results[processor].values()
            for row in report.goal_rows(part.get("contests", []))
        ]
        counts += [sum(row[-1] == "missed" for row in rows), len(rows)]
    english = "{} of {} on AMD EPYC, {} of {} on Intel with AMX"
    korean = (
        "AMD EPYC에서 {1}개 가운데 {0}개, Intel(AMX)에서 {3}개 가운데 {2}개"
    )
    assert english.format(*counts) in read(ENGLISH)
    assert korean.format(*counts) in read(KOREAN)


@pytest.mark.tensorflow
def test_errors_of_sinusoids_are_those_of_the_pages():
    hub = pytest.importorskip("keras_hub").layers.SinePositionEncoding
    import keras_posenc as kp

    exact = reference.positional_encoding(5000, 512)
    inputs = np.zeros((1, 5000, 512), "float32")

    def error(layer):
        return np.abs(np.array(layer(inputs), "float64") - exact).max()

    ours, theirs = error(kp.PositionalEncoding(merge_mode=None)), error(hub())
    assert ours < 1.85e-7
    assert 3.9e-4 < theirs < 4.1e-4
    assert "at most 1.8e-7, keras-hub's by up to 4.0e-4" in read(ENGLISH)
    assert "1.8e-7 이하이고, keras-hub의 오차는 최대 4.0e-4" in read(KOREAN)
    options = {"dtype": "bfloat16"}
    ours = error(kp.PositionalEncoding(merge_mode=None, **options))
    assert 0.0015 < ours < 0.0025
    assert 1.95 < error(hub(**options)) < 2.05
    words = "4.0e-4 in keras-hub's float32 and 2.0 in its bfloat16"
    assert f"{words}; here of up to 1.8e-7 and 0.002" in read(PEERS)
