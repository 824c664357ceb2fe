"""How fast a LiteRT file runs here."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.benchmark import timings

pytestmark = pytest.mark.tensorflow


def test_each_signature_length_and_thread_count(litert):
    found = [*timings(litert.path, None, [2, 5], [1, 2], 4)]
    assert {
        (x["signature"], tuple(x["shapes"]["ids"]), x["threads"]) for x in found
    } == {
        *(("serving_default", (1, n), t) for n in (2, 5) for t in (1, 2)),
        *(("short", (1, 4), t) for t in (1, 2)),
    }
    for each in found:
        assert 0 < each["median_milliseconds"] <= each["p95_milliseconds"]
        assert each["load_seconds"] > 0
        # Whoever runs the file has read it.
        assert each["peak_bytes"] > litert.path.stat().st_size


def test_shape_that_the_model_does_not_take_is_named(tmp_path):
    vectors = keras.Input((None, 4), name="x")
    kernel = keras.Variable(np.ones((8, 4), "float32"))
    cut = layers.Lambda(
        lambda x: x + ops.take(kernel, ops.arange(ops.shape(x)[1]), 0)
    )
    path = kp.export_litert(
        keras.Model(vectors, cut(vectors)),
        tmp_path / "m.tflite",
        max_length=8,
        verbose=False,
    ).path
    with pytest.raises(RuntimeError, match=r", with \{'x': \[1, 9, 4\]\}$"):
        [*timings(path, None, [8, 9], [1], 1)]
