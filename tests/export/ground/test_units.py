"""Sizes and times for people."""

import pytest

from keras_posenc.export import units


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (units.size(0), "0 bytes"),
        (units.size(1_000), "1.00 kB"),
        (units.size(4_321), "4.32 kB"),
        (units.size(999_400), "999 kB"),
        (units.size(999_600), "1.00 MB"),
        (units.size(2.5e15), "2500 TB"),
        (units.time(0), "0 µs"),
        (units.time(4e-7), "0.4 µs"),
        (units.time(0.0043), "4.30 ms"),
        (units.time(0.99951), "1.00 s"),
        (units.time(4321), "4321 s"),
    ],
)
def test_units(text, wanted):
    assert text == wanted
