"""Rows of learned tables, and tables of other lengths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_posenc.ops.tables import resized_table, rows_at
from tests import reference


@given(
    positions=st.lists(st.integers(-9, 20), min_size=1, max_size=12),
    length=st.integers(1, 12),
    masked=st.booleans(),
)
def test_rows(positions, length, masked):
    table = np.arange(3 * length, dtype="float32").reshape(length, 3)
    mask = np.array([[place % 2 == 0 for place in range(len(positions))]])
    got = rows_at(table, np.array(positions), mask=mask if masked else None)
    got = np.reshape(ops.convert_to_numpy(got), (len(positions), 3))
    for row, position, real in zip(got, positions, mask[0], strict=True):
        if 0 <= position < length:
            assert np.array_equal(row, table[position])
        elif masked and not real:
            assert np.array_equal(row, table[0 if position < 0 else -1])
        else:
            assert np.all(np.isnan(row))


@given(old=st.integers(1, 20), new=st.integers(1, 40))
def test_resized(old, new):
    table = np.random.default_rng(old).normal(size=(old, 2))
    got, want = resized_table(table, new), reference.resized_table(table, new)
    # A share of at most 20 rows is good to 20 units, between rows below 8.
    np.testing.assert_allclose(got, want, rtol=0, atol=20 * 8 * 2.0**-52)
    assert np.array_equal(resized_table(table, old), table)
