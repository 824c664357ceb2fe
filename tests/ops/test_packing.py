"""Packing is a choice of rows, its gradients too: by NumPy's indexing."""

import keras
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


@settings(deadline=None)
@given(MASKS)
def test_gradients_are_those_of_the_choice(mask):
    import tensorflow as tf

    x = tf.constant(vectors(mask))
    packing = Packing(tf.constant(mask), training=True)
    upstream = tf.constant(vectors(mask, seed=1)[chosen(mask)][np.newaxis])
    with tf.GradientTape() as tape:
        tape.watch(x)
        packed = packing.pack(x)
    got = tape.gradient(packed, x, upstream).numpy()
    want = np.zeros_like(x)
    want[chosen(mask)] = upstream[0]
    want[~mask] = 0  # also where a row begins with padding
    np.testing.assert_array_equal(got, want)

    # Backwards from places where padding's gradient is 0, as attention's is.
    upstream = tf.constant(want)
    with tf.GradientTape() as tape:
        tape.watch(packed)
        back = packing.unpack(packed)
    got = tape.gradient(back, packed, upstream).numpy()
    np.testing.assert_array_equal(got[0], want[chosen(mask)])


def test_low_precision_and_unknown_shapes():
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, DIM], "bfloat16"),
            tf.TensorSpec([None, None], "bool"),
        ]
    )
    def there_and_back(x, mask):
        packing = Packing(mask)
        return packing.unpack(packing.pack(x))

    mask = np.array([[False, True, True], [True, False, False]])
    x = ops.cast(vectors(mask), "bfloat16")
    got = there_and_back(x, mask)
    assert keras.backend.standardize_dtype(got.dtype) == "bfloat16"
    np.testing.assert_array_equal(got.numpy()[mask], x.numpy()[mask])
