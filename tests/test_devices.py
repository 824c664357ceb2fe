"""The encodings on every GPU that TensorFlow lists."""

import numpy as np
import pytest

import keras_posenc as kp
from tests import reference

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.gpu]

SEQ, DIM = 130, 63
STARTS = np.array([5000, -70], "int32")
REALS = np.random.default_rng(0).uniform(-5e3, 5e3, (2, SEQ)).astype("float32")
IDS = np.repeat(np.array([[3, 3, 5, 5, 1], [2, 2, 2, 4, 4]], "int32"), 26, 1)
MASK = np.random.default_rng(1).random((2, SEQ)) < 0.7
COUNTED = np.broadcast_to(np.arange(SEQ), (2, SEQ))
# Arguments of the layer and of its call, and the positions that they mean.
CASES = [
    ({}, {"start_index": STARTS}, STARTS[:, np.newaxis] + COUNTED),
    ({}, {"positions": REALS}, REALS),
    ({}, {"segment_ids": IDS}, reference.positions_from_segments(IDS)),
    (
        {"skip_masked": True},
        {"mask": MASK},
        reference.positions_from_mask(MASK),
    ),
    ({"dtype": "mixed_float16"}, {}, COUNTED),
    ({"dtype": "mixed_bfloat16"}, {}, COUNTED),
    ({"dtype": "float64"}, {}, COUNTED),
]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(("config", "call", "positions"), CASES)
def test_every_gpu(config, call, positions, in_graph, near, encoding_bound):
    devices = tf.config.list_logical_devices("GPU")
    if not devices:
        pytest.skip("TensorFlow lists no GPU on this machine")
    want = reference.positional_encoding(positions, DIM)
    dtype = config.get("dtype", "float32").removeprefix("mixed_")
    for device in devices:
        with tf.device(device.name):
            layer = kp.PositionalEncoding(merge_mode=None, **config)
            encode = tf.function(layer) if in_graph else layer
            outputs = encode(tf.zeros((2, SEQ, DIM)), **call)
        assert outputs.device.endswith(device.name)
        near(outputs, want, encoding_bound(positions, want, dtype))
