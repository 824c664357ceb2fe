"""Sizes and times for people."""

from keras_posenc.export import units


def test_units():
    sizes = {0: "0 bytes", 1_000: "1.00 kB", 999_400: "999 kB"}
    sizes |= {999_600: "1.00 MB", 2.5e15: "2500 TB"}
    assert {value: units.size(value) for value in sizes} == sizes
    times = {0: "0 µs", 4e-7: "0.4 µs", 0.0043: "4.30 ms", 0.99951: "1.00 s"}
    times |= {4321: "4321 s"}
    assert {value: units.time(value) for value in times} == times
