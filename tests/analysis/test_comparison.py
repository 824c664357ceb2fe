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


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"length": 1}, "`length` must be above 1. Received: length=1"),
        ({"dim": 7}, "`dim` must be even: .* Received: dim=7"),
    ],
)
def test_sizes_that_some_scheme_cannot_have(sizes, message, capsys):
    with pytest.raises(ValueError, match=message):
        analysis.compare(**sizes)
    assert capsys.readouterr().err == ""  # before anything is measured
