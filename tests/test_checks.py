"""Checks of arguments: what passes, in which type, and what is said if not."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from keras_posenc import checks as check

CHOICES = ("a", "b", None)
# Each check: values it returns, values it refuses, and the message.
CHECKS = {
    check.check_integer: (
        [(-3, -3), (np.uint8(3), 3)],
        [1.0, "1", None, True, np.array([1, 2])],
        "`size` must be an integer.",
    ),
    check.check_positive_int: (
        [(1, 1), (np.int64(3), 3)],
        [0, -1, 1.0, "1", None, True],
        "`size` must be a positive integer.",
    ),
    check.check_count: (
        [(0, 0), (np.int64(3), 3)],
        [-1, 1.0, None, True],
        "`size` must be an integer of at least 0.",
    ),
    check.check_positive: (
        [(2, 2.0), (np.float32(0.5), 0.5), (1e-300, 1e-300)],
        [0, -1, math.inf, math.nan, "1", None, True, 1j, np.ones(2)],
        "`size` must be a positive finite number.",
    ),
    check.check_not_negative: (
        [(0, 0.0), (np.float32(0.5), 0.5)],
        [-1e-9, math.inf, math.nan, "1", None, True],
        "`size` must be a finite number of at least 0.",
    ),
    check.check_rate: (
        [(0, 0.0), (np.float32(0.5), 0.5), (math.nextafter(1, 0),) * 2],
        [1, -0.1, math.inf, math.nan, "0", None, True, np.zeros(2)],
        "`size` must be a number in [0, 1).",
    ),
    check.check_bool: (
        [(True, True), (False, False)],
        [0, 1, None, "True", np.array([True, False])],
        "`size` must be True or False.",
    ),
    lambda name, value: check.check_choice(name, value, CHOICES): (
        [(each, each) for each in CHOICES],
        ["c", 0, ["a"], np.array(["a", "b"])],
        "`size` must be 'a', 'b' or None.",
    ),
    lambda name, value: check.check_index(name, value, 3): (
        [(0, 0), (np.int64(2), 2)],
        [-1, 3, 1.0, None, True],
        "`size` must be an integer in [0, 3).",
    ),
    lambda name, value: check.check_max_wavelength(value): (
        [(1, 1.0), (np.int64(100), 100.0), (Fraction(5, 2), 2.5)],
        [0.999, -5, math.inf, math.nan, "5", None, np.ones(2)],
        "`max_wavelength` must be a finite number of at least 1.",
    ),
}


@pytest.mark.parametrize(
    ("function", "passes", "fails", "message"),
    [(function, *each) for function, each in CHECKS.items()],
)
def test_checks(function, passes, fails, message):
    for value, want in passes:
        got = function("size", value)
        assert got == want
        assert type(got) is type(want)
        json.dumps(got)  # as a configuration is saved
    name = message.split("`")[1]
    for value in fails:
        with pytest.raises(ValueError, match="must be") as error:
            function("size", value)
        assert str(error.value) == f"{message} Received: {name}={value!r}"
