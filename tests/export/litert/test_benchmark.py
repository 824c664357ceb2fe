"""How fast a LiteRT file runs here."""

import json
import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


def test_each_signature_length_and_thread_count(litert):
    found = kp.benchmark_export(
        litert.path, lengths=[2, 5], threads=[1, 2], repeats=4, verbose=False
    )
    assert {
        (t.signature, tuple(t.shapes["ids"]), t.threads) for t in found.timings
    } == {
        *(("serving_default", (1, n), t) for n in (2, 5) for t in (1, 2)),
        *(("short", (1, 4), t) for t in (1, 2)),
    }
    for timing in found.timings:
        assert 0 < timing.median_milliseconds <= timing.p95_milliseconds
        assert timing.load_seconds > 0
        # Whoever runs the file has read it.
        assert timing.peak_bytes > found.size_bytes
    assert found.size_bytes == litert.path.stat().st_size
    assert json.loads(json.dumps(found.to_dict()))["timings"][0]["threads"] == 1
    for word in ("(1, 5)", "short", "median", "memory"):
        assert word in str(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": 16}, "list of integers above 0. Received: lengths=16"),
        ({"threads": [0]}, "`threads` must be a list of integers above 0"),
        ({"repeats": 0}, "a positive integer. Received: repeats=0"),
        ({"signatures": "short"}, "must be None, or a list of names"),
        ({"signatures": ["long"]}, "serving_default, short. Received: signa"),
    ],
)
def test_arguments_that_do_not_fit(litert, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kp.benchmark_export(litert.path, verbose=False, **options)


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
        kp.benchmark_export(
            path, lengths=[8, 9], threads=[1], repeats=1, verbose=False
        )


def test_saved_model_is_not_timed(saved_model):
    with pytest.raises(ValueError, match="must be a LiteRT file"):
        kp.benchmark_export(saved_model.path)
