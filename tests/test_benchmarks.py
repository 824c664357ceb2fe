"""What the benchmarks conclude from times, and what they keep of them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import _contest
import _report
import growth

BENCHMARKS = Path(sys.path.pop(0))
SIZES = [1, 10, 100, 1000, 10_000]


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
