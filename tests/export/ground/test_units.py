"""Sizes and times for people."""

import pytest

from keras_posenc.export import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1_000, "1.00 kB"),
        (4_321, "4.32 kB"),
        (999_400, "999 kB"),
        (999_600, "1.00 MB"),
        (2.5e15, "2500 TB"),
    ],
)
def test_size(count, text):
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 µs"),
        (4e-7, "0.4 µs"),
        (0.0043, "4.30 ms"),
        (0.99951, "1.00 s"),
        (4321, "4321 s"),
    ],
)
def test_time(seconds, text):
    assert units.time(seconds) == text
