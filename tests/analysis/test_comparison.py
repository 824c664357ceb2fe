"""Every scheme beside the others."""

import dataclasses

import pytest

from keras_posenc import analysis


@pytest.fixture
def widest():
    """Numbers of the widest kind that floats of two digits have."""
    fields = dataclasses.fields(analysis.Properties)
    found = analysis.Properties(*[1.2e-100] * len(fields))
    return analysis.Comparison(9, 4, dict.fromkeys(analysis.SCHEMES, found))


def test_no_digit_is_cut_in_80_columns(widest):
    text = str(widest)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("1.2e-100") == 7 * len(analysis.SCHEMES)
    # In tables of their own, each with the names of its rows.
    assert text.count("alibi") == text.count("scheme") == 2


def test_length_that_is_too_short():
    with pytest.raises(ValueError, match="`length` must be above `shift`"):
        analysis.compare(length=1, verbose=False)
