"""Dates as people write them: one meaning each, and that the demo runs."""

import itertools
import re

import numpy as np
import pytest

from tests.examples import scripts


@pytest.fixture(scope="module")
def written():
    return scripts.load("written_dates")


@pytest.fixture(scope="module")
def styles(written):
    return written.make_styles()


@pytest.fixture(scope="module")
def texts(written, styles):
    readings = written.Readings(styles)
    days, held_out = written.split_days(2000, np.random.default_rng(0))
    found = [
        written.write_dates(
            styles, readings, part, 4000, np.random.default_rng(1)
        )
        for part in (days, held_out)
    ]
    return [dict(zip(*each, strict=True)) for each in found]


def test_no_text_has_two_answers(texts):
    learned, asked = texts
    together = itertools.chain(learned.items(), asked.items())
    meanings = {}
    for text, answer in together:
        assert meanings.setdefault(text, answer) == answer
    assert not set(learned.values()) & set(asked.values())
    assert all(
        re.fullmatch(r"(19[7-9]|20[0-6])\d(-\d\d){2}", answer)
        for answer in meanings.values()
    )


@pytest.mark.tensorflow
@pytest.mark.slow
def test_quick_run_reports_and_exports(tmp_path):
    report = scripts.run("dates", "--quick", "--out", "out", folder=tmp_path)
    for part in ("no positions", "rotary positions", "dateutil"):
        assert part in report
    # Keras, the SavedModel and the LiteRT file answer alike, Korean first.
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in report.partition("From raw text")[2].splitlines()
        if line.startswith("│")
    ]
    assert rows[0][0] == "2031년 8월 25일 월요일"
    assert len(rows) == 7
    for _, *answers in rows:
        assert len(set(answers)) == 1
    for name in ("dates.tflite", "dates.keras"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert (tmp_path / "out" / "dates" / "1" / "saved_model.pb").is_file()
