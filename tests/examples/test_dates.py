"""Dates as people write them: what they mean, and that the demo runs."""

import datetime
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


def test_there_are_many_ways_to_write(styles):
    locales = {str(style.locale) for style in styles}
    assert len(locales) == 46
    assert locales >= {"ko", "ja"}
    day = datetime.date(2024, 3, 7)
    korean = {style(day) for style in styles if str(style.locale) == "ko"}
    assert korean >= {"2024년 3월 7일 목요일", "2024. 3. 7.", "24. 3. 7."}


def test_texts_that_mean_two_days_are_found(written, styles):
    readings = written.Readings(styles)
    by_pattern = {(str(s.locale), s.pattern): s for s in styles}
    english = by_pattern["en_US", "M/d/y"]
    day = datetime.date
    for date, meant in (
        (day(2024, 3, 7), {day(2024, 3, 7), day(2024, 7, 3)}),
        (day(2024, 3, 13), {day(2024, 3, 13)}),
        (day(2024, 7, 7), {day(2024, 7, 7)}),
    ):
        assert readings(english, date) == meant
    # The weekday would tell, and is not asked.
    named = by_pattern["en_US", "E, M/d/y"]
    assert len(readings(named, day(2024, 3, 7))) == 2
    long = by_pattern["en_US", "MMMM d, y"]
    assert readings(long, day(2024, 3, 7)) == {day(2024, 3, 7)}
    short = by_pattern["ko", "yy. M. d."]
    assert readings(short, day(2024, 3, 17)) == {
        day(2024, 3, 17),
        day(2017, 3, 24),
    }
    assert readings(short, day(1999, 3, 7)) == {day(1999, 3, 7)}


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


def test_rules_read_what_they_claim(written, texts):
    _, asked = texts
    for rule in written.RULES.values():
        assert rule("7/3/2024") == "2024-03-07"
        assert rule("2024-03-07") == "2024-03-07"
        right = np.mean([rule(text) == day for text, day in asked.items()])
        assert 0.3 < right < 0.6
    assert written.by_dateutil("March 7, 2024") == "2024-03-07"
    assert written.by_regular_expression("March 7, 2024") == ""


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
