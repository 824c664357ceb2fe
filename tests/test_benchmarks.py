"""What the benchmarks conclude from times, and what they keep of them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import _command
import _contest
import _report
import growth
import memory
import speed

BENCHMARKS = Path(sys.path.pop(0))
SIZES = [1, 10, 100, 1000, 10_000]


def test_power_is_that_of_the_upper_half():
    costs = [7.0, 7.0, *(3 * size**1.5 for size in SIZES[2:])]

    assert growth.power(SIZES, costs) == pytest.approx(1.5, abs=1e-12)


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (lambda n: n**2, "as ours"),
        (lambda n: n**2 / SIZES[1], "theirs everywhere"),
        (lambda n: n**2 * 1.5, "ours everywhere"),
        (lambda n: 2 * n, "ours, theirs from 2"),
        (lambda n: 300 * n, "ours, theirs from 300"),
        (lambda n: n**3 / 300, "theirs, ours from 300"),
        # Differences too small to count decide nothing.
        (
            lambda n: n**2 * np.array([0.98, 1.02, 2.0, 0.98, 2.0]),
            "ours everywhere",
        ),
        (
            lambda n: n**2 * np.array([2.0, 2.0, 0.5, 0.5, 2.0]),
            "ours, theirs from 32, ours from 3162",
        ),
    ],
)
def test_crossings(theirs, words):
    sizes = np.array(SIZES, float)

    assert growth.whose_is_less(SIZES, sizes**2, theirs(sizes)) == words


@pytest.mark.parametrize("fill", [0.1, 0.25, 0.5, 0.75, 1.0])
def test_lengths_fill_what_they_should(fill):
    lengths = growth.even_lengths(32, fill)

    assert min(lengths) >= 1
    assert max(lengths) <= _contest.SEQ
    # Rounding to whole tokens, and at least one in each text.
    assert abs(np.mean(lengths) / _contest.SEQ - fill) <= 1 / _contest.SEQ


def test_contestants_take_turns_and_the_first_round_is_for_warming_up():
    order = []

    def contestant(name, said):
        def run():
            order.append(name)
            return said[order.count(name) - 1]

        return run

    times = _contest.take_turns(
        {
            "one": contestant("one", [9e3, 2e3, 4e3]),
            "other": contestant("other", [9e3, 5e3, 7e3]),
        },
        2,
    )

    assert times == {"one": 3e3, "other": 6e3}
    assert order == ["one", "other"] * 3


def test_short_work_is_woken_before_it_is_measured():
    said = iter([9.0, 9.0, 9.0, 1.0, 2.0, 3.0] * 2)

    times = _contest.take_turns({"short": lambda: next(said)}, 1)

    assert times == {"short": 2.0}
    assert next(said, None) is None


def test_a_part_is_kept_beside_the_others(tmp_path, capsys):
    goal = {"of": "a / b", "found": 0.5, "at most": 1.0}
    contest = {
        "work": "work",
        "milliseconds": {"a": 1.0, "b": 2.0},
        "peaks": {"b": 1.25},
        "goals": [goal, {"of": "b / a", "found": 2.0, "at most": 1.5}],
    }
    speed = {"machine": {"processor": "Fast 2"}, "contests": [contest]}
    growth_part = {"machine": {"processor": "Slow"}, "sweeps": []}
    others = {"Slow": {"growth": growth_part}}
    (tmp_path / "results.json").write_text(json.dumps(others))

    _report.report("speed", speed, None)
    assert not (tmp_path / "RESULTS.md").exists()
    _report.report("speed", speed, tmp_path)

    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept == {**others, "Fast 2": {"speed": speed}}
    page = (tmp_path / "RESULTS.md").read_text()
    assert "| work | a / b | 0.50 | 1.00 |  |" in page
    assert "| work | b / a | 2.00 | 1.50 | missed |" in page
    assert "| work | a | 1.0 | 1.00 |  |" in page
    assert "| work | b | 2.0 | 0.50 | 1.25 |" in page
    assert "growth-slow.png" in page
    assert page.index("### Fast 2") < page.index("### Slow")


def test_some_works_are_kept_beside_the_others(tmp_path, capsys):
    def contest(work, found):
        goal = {"of": "a / b", "found": found, "at most": 1.0}
        return {"work": work, "milliseconds": {}, "peaks": {}, "goals": [goal]}

    whole = [contest("one", 0.25), contest("other", 0.5)]
    machine = {"processor": "Fast 2"}
    found = {"machine": machine, "contests": whole}
    _report.report("speed", found, tmp_path)
    again = {"machine": machine, "contests": [contest("one", 0.75)]}
    _report.report("speed", again, tmp_path, is_whole=False)

    page = (tmp_path / "RESULTS.md").read_text()
    assert "| one | a / b | 0.75 | 1.00 |  |" in page
    assert "| other | a / b | 0.50 | 1.00 |  |" in page
    assert "0.25" not in page
    _report.report("speed", again, tmp_path)
    assert "| other |" not in (tmp_path / "RESULTS.md").read_text()


def test_time_of_a_part_of_the_work_is_told():
    contest = _contest.Contest(
        "a token", dict.fromkeys("ab"), {("a", "b"): 0.5}, parts=32
    )
    kept = _contest.judge(contest, {"a": 64.0, "b": 320.0})
    assert kept["milliseconds"] == {"a": 2.0, "b": 10.0}


def test_memory_is_shown(tmp_path, capsys):
    row = {"work": "export", "format": "LiteRT"}
    row |= {"seconds": 99.6, "peak": 1.25, "ratio": 2.875}
    machine = {"processor": "Fast 2"}
    found = {"machine": machine, "weights": 437.9, "rows": [row]}
    _report.report("memory", found, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert "| export | LiteRT | 100 | 1.25 | 2.88 |" in page
    assert "438 MB of weights" in page


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells it")
def test_memory_is_that_of_children_too():
    size = 2**26
    code = f"x = bytearray(b'x') * {size}; print(len(x), flush=True); input()"
    before = memory.held(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        with memory.watching(os.getpid()) as peak:
            process.stdout.readline()
            time.sleep(3 * memory.EVERY)
        process.stdin.write("\n")
    assert size <= peak[0] - before < 1.5 * size
    assert memory.held(os.getpid()) - before < size / 2


def test_part_of_a_run_is_not_kept(monkeypatch, capsys):
    def parse(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        return _command.parse(
            "", ["blocks", "encodings"], rounds=15, add_options=speed.keep
        )

    assert parse().to == BENCHMARKS
    assert parse("--only", "block").to is None
    assert parse("--only", "block", "--keep").to == BENCHMARKS
    with pytest.raises(SystemExit):
        parse("--only", "nothing")
    assert "blocks, encodings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rounds", "0"), "0 is not above 0"),
        (("--rounds", "few"), "invalid above_0 value: 'few'"),
        (("--torch", "/nowhere/python"), "must be a Python that has PyTorch"),
        (("--torch", sys.executable), "must be a Python that has PyTorch"),
        (("--ctranslate2", sys.executable), "a Python that has CTranslate2"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(
    monkeypatch, capsys, arguments, reason
):
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    with pytest.raises(SystemExit):
        _command.parse("", ["blocks"], rounds=15, peers=_command.PEERS)
    assert reason in capsys.readouterr().err


RESULTS = json.loads((BENCHMARKS / "results.json").read_text())


def test_page_shows_what_is_in_the_file():
    assert (BENCHMARKS / "RESULTS.md").read_text() == _report.markdown(RESULTS)


def test_readme_counts_what_is_missed():
    words = " ".join((BENCHMARKS.parent / "README.md").read_text().split())
    for processor, parts in RESULTS.items():
        contests = [
            contest
            for part in parts.values()
            for contest in part.get("contests", ())
        ]
        rows = _report.goal_rows(contests)
        missed = sum(row[-1] == "missed" for row in rows)
        counted = f"{missed} of {len(rows)} on {processor}"
        assert not rows or counted in words  # a GPU has no targets
