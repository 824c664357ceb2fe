"""Checks of arguments: what passes, in which type, and what is said if not."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from keras_posenc import checks as check

GOOD = [
    (check.check_positive_int, 3, 3),
    (check.check_positive_int, np.int64(3), 3),
    (check.check_positive_int, np.uint8(3), 3),
    (check.check_positive, 2, 2.0),
    (check.check_positive, np.float32(0.5), 0.5),
    (check.check_positive, 1e-300, 1e-300),
    (check.check_rate, 0, 0.0),
    (check.check_rate, np.float32(0.5), 0.5),
    (check.check_rate, math.nextafter(1, 0), math.nextafter(1, 0)),
    (check.check_bool, True, True),
    (check.check_bool, False, False),
]


@pytest.mark.parametrize(("function", "value", "want"), GOOD)
def test_good_values_come_back_plain(function, value, want):
    got = function("size", value)
    assert got == want
    assert type(got) is type(want)
    json.dumps(got)  # as a configuration is saved


@pytest.mark.parametrize(
    "value", [1, 1.0, np.float32(100), np.int64(100), Fraction(5, 2), 1e300]
)
def test_good_wavelengths(value):
    got = check.check_max_wavelength(value)
    assert got == value
    assert type(got) is float


NUMBERS = {
    check.check_positive_int: (
        [0, -1, 1.0, "1", None, True, np.float32(1), np.array([1, 2])],
        "`size` must be a positive integer. Received: size=",
    ),
    check.check_positive: (
        [0, -1, math.inf, math.nan, "1", None, True, 1j, np.array([1.0, 2.0])],
        "`size` must be a positive finite number. Received: size=",
    ),
    check.check_rate: (
        [1, -0.1, math.inf, math.nan, "0", None, True, np.array([0.1, 0.2])],
        "`size` must be a number in [0, 1). Received: size=",
    ),
    check.check_bool: (
        [0, 1, None, "True", np.array([True, False])],
        "`size` must be True or False. Received: size=",
    ),
}


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        (function, value, message)
        for function, (values, message) in NUMBERS.items()
        for value in values
    ],
)
def test_bad_values(function, value, message):
    with pytest.raises(ValueError, match="must be") as error:
        function("size", value)
    assert str(error.value) == f"{message}{value!r}"


@pytest.mark.parametrize(
    "value", [0.999, 0, -5, math.inf, math.nan, "5", None, np.array([5.0, 6.0])]
)
def test_bad_wavelengths(value):
    with pytest.raises(ValueError, match="must be") as error:
        check.check_max_wavelength(value)
    assert str(error.value) == (
        "`max_wavelength` must be a finite number of at least 1. "
        f"Received: max_wavelength={value!r}"
    )


def test_choices():
    choices = ("a", "b", None)
    for choice in choices:
        assert check.check_choice("kind", choice, choices) is choice
    for value in ("c", 0, ["a"], np.array(["a", "b"])):
        with pytest.raises(ValueError, match="must be") as error:
            check.check_choice("kind", value, choices)
        assert str(error.value) == (
            f"`kind` must be 'a', 'b' or None. Received: kind={value!r}"
        )
