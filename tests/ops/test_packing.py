"""Packing is a choice of rows: by NumPy's indexing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from keras import ops

from keras_posenc.ops.packing import Packing

pytestmark = pytest.mark.tensorflow

DIM = 3
MASKS = npst.arrays(
    bool,
    st.tuples(st.integers(1, 4), st.integers(1, 6)),
    elements=st.booleans(),
)


def vectors(mask: np.ndarray, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(*mask.shape, DIM)).astype("float32")


def chosen(mask: np.ndarray) -> np.ndarray:
    """The tokens that are packed: the first of a row always is."""
    chosen = mask.copy()
    chosen[:, 0] = True
    return chosen


@settings(deadline=None)
@given(MASKS, st.sampled_from([None, False, True]))
def test_tokens_go_and_come_back_in_order(mask, training):
    x = vectors(mask)
    packing = Packing(ops.convert_to_tensor(mask), training=training)
    packed = ops.convert_to_numpy(packing.pack(x))
    np.testing.assert_array_equal(packed, x[chosen(mask)][np.newaxis])
    back = ops.convert_to_numpy(packing.unpack(packed))
    assert back.shape == x.shape
    np.testing.assert_array_equal(back[mask], x[mask])
    # Padding is like something of its own row.
    for row, row_back in zip(x, back, strict=True):
        assert {*map(tuple, row_back)} <= {*map(tuple, row)}
