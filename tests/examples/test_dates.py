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
