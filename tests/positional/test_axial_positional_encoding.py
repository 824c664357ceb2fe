"""Grids: against other libraries, the oracle, and Keras."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference
from tests.layers import cases_of, draw

# What each peer is here, beside the defaults.
PEERS = {
    "tatp22": lambda dim: {},
    "transformers": lambda dim: {"layout": "halves"},
    "mae": lambda dim: {"layout": "halves", "last_axis_first": True},
    "big_vision": lambda dim: {
        "layout": "halves",
        "last_axis_first": True,
        "max_wavelength": 10000 ** (dim / 4 / (dim / 4 - 1)),
    },
}


def alone(inputs, **config):
    layer = kp.AxialPositionalEncoding(
        inputs.ndim - 2, merge_mode=None, **config
    )
    return ops.convert_to_numpy(layer(inputs))


CASES = {
    f"{case}/{dim}": table
    for case, tables in cases_of("axial_parity").items()
    for dim, table in tables.items()
}


@pytest.mark.parametrize("key", CASES)
def test_parity(key, near):
    """Peers in float32 round each frequency about four times.

    So an angle of up to `largest` radians is off by (4 + 1) 2**-24 of itself,
    and its sine and ours by half a unit and 2.1e-7 besides.
    """
    peer, grid, dim = key.split("/")
    grid, dim = tuple(map(int, grid.split("x"))), int(dim)
    got = alone(np.zeros((1, *grid, dim), "float32"), **PEERS[peer](dim))[0]
    largest = max(grid) - 1 if peer == "tatp22" else 0
    near(got, CASES[key], 5 * largest * 2.0**-24 + 2.0**-25 + 2.1e-7)


@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    dim=st.integers(1, 30),
    layout=st.sampled_from(["interleaved", "halves"]),
    last_axis_first=st.booleans(),
    max_wavelength=st.floats(1, 1e6),
)
def test_any_grid(shape, dim, layout, last_axis_first, max_wavelength, near):
    config = {
        "layout": layout,
        "last_axis_first": last_axis_first,
        "max_wavelength": max_wavelength,
    }
    inputs = np.zeros((2, *shape, dim), "float32")
    width = 2 * -(-dim // (2 * len(shape)))
    if dim <= (len(shape) - 1) * width:
        message = (
            rf"A width of {dim} leaves no column for the last of "
            rf"{len(shape)} axes, .* {width}\. Give a multiple of "
            rf"{2 * len(shape)}\. Received: width {dim}"
        )
        with pytest.raises(ValueError, match=message):
            alone(inputs, **config)
        return
    want = reference.axial_encoding(
        shape, dim, max_wavelength, layout, last_axis_first
    )
    near(alone(inputs, **config), np.stack([want] * 2), 2.1e-7)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param("float64", marks=pytest.mark.tensorflow), "mixed_bfloat16"],
)
def test_other_precisions(dtype, near, half_ulp):
    """Of rows that bfloat16 does not tell apart."""
    layer = kp.AxialPositionalEncoding(merge_mode=None, dtype=dtype)
    want = reference.axial_encoding((600, 3), 16)
    bound = 1e-12
    if dtype != "float64":
        bound = 2.1e-7 + half_ulp(np.abs(want) + 2.1e-7, "bfloat16")
    near(layer(draw(1, 600, 3, 16))[0], want, bound)


@pytest.mark.parametrize("last_axis_first", [False, True])
def test_learned_tables_meet_at_each_cell(last_axis_first, near):
    layer = kp.AxialPositionalEncoding(
        3,
        grid_shape=(5, 4, 6),
        last_axis_first=last_axis_first,
        merge_mode=None,
    )
    inputs = draw(2, 5, 3, 2, 10)
    layer(inputs)
    tables = [ops.convert_to_numpy(table) for table in layer.embeddings]
    assert [weight.name for weight in layer.weights] == [
        "height_embeddings",
        "width_embeddings",
        "depth_embeddings",
    ]
    want = np.empty(inputs.shape)
    for i, j, k in np.ndindex(5, 3, 2):
        rows = [tables[0][i], tables[1][j], tables[2][k]]
        rows = rows[::-1] if last_axis_first else rows
        want[:, i, j, k] = np.concatenate(rows)
    near(layer(inputs), want)


@pytest.mark.tensorflow
def test_in_a_graph_beyond_the_tables_is_nan():
    import tensorflow as tf

    layer = kp.AxialPositionalEncoding(grid_shape=(3, 4), merge_mode=None)
    spec = tf.TensorSpec((None, None, None, 8))
    outputs = tf.function(layer, input_signature=[spec])(draw(2, 4, 5, 8))
    nan = np.isnan(outputs.numpy())
    assert not nan[:, :3, :4].any()
    assert nan[:, 3, :, :4].all()
    assert nan[:, :, 4, 4:].all()
    assert not nan[:, :3, :, :4].any()


# Keras.


@pytest.mark.tensorflow
def test_litert_of_any_grid(tmp_path, near):
    from ai_edge_litert.interpreter import Interpreter

    inputs = keras.Input((None, None, None, 12), name="cells")
    layer = kp.AxialPositionalEncoding(3, layout="halves", merge_mode="concat")
    model = keras.Model(inputs, layer(inputs))
    path = tmp_path / "grid.tflite"
    kp.export_litert(model, path, max_length=9)  # of each of the axes
    runner = Interpreter(str(path)).get_signature_runner("serving_default")
    for shape in ((1, 1, 1), (65, 3, 2), (2, 7, 5)):
        data = draw(2, *shape, 12)
        (outputs,) = runner(cells=data).values()
        # Both within the encoding's bound, and one rounding of a sum below 8.
        near(outputs, model(data), 2 * 2.1e-7 + 4 * 2.0**-24)
