"""Keras's own `model.export` of what is exact, to ONNX."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.positional.attention_kinds import ATTENTION_KINDS

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tf2onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DIM = 8
LONGER = {
    "rope_type": "dynamic",
    "factor": 2.0,
    "original_max_position_embeddings": 4,
}
ENCODINGS = [
    kp.PositionalEncoding(),
    kp.positions.IndexEncoding(normalize=True),
    kp.PositionEmbedding(9),
    kp.TimeEncoding(),
    kp.TimeEncoding(kind="learned"),
    kp.RotaryEmbedding(),
    kp.RotaryEmbedding(scaling=LONGER),
]
# Two of the tables' errors, and ten roundings of sums below 4.
BOUND = 2 * 5.8e-7 + 10 * 4 * 2**-24


def encodings(x, positions, whole):
    """What is added to tokens, or turns them."""
    outputs = [
        layer(x, positions=whole if layer in ENCODINGS[:3] else positions)
        for layer in ENCODINGS
    ]
    # By names of their own, since Keras may count from 1 again.
    outputs += [
        kp.PositionalEncoding(name="counted")(x),
        kp.positions.IndexEncoding(name="indices")(x),
    ]
    return [*outputs, kp.AxialPositionalEncoding(1, name="axes")(x)]


def attentions(x, positions, whole):
    """All kinds of positions inside attention that take floats."""
    outputs = [kp.PositionalEncoding()(x, positions=whole)]
    for kind in ATTENTION_KINDS:
        if kind != "deberta":
            attention = kp.SelfAttention(2, attention=kind)
            outputs.append(attention(x, positions=positions))
    return outputs


# Keras asks NumPy for what it no longer has.
@pytest.mark.filterwarnings("ignore:In the future `np.object`:FutureWarning")
@pytest.mark.parametrize(
    "made", [encodings, pytest.param(attentions, marks=pytest.mark.slow)]
)
def test_onnx_files_of_keras(tmp_path, made):
    keras.utils.set_random_seed(0)
    x = keras.Input((None, DIM), name="x")
    positions = keras.Input((None,), name="positions")
    whole = keras.Input((None,), dtype="int32", name="whole")
    outputs = made(x, positions, whole)
    exact = keras.Model([x, positions, whole], outputs)
    given = {
        "x": np.random.default_rng(0).normal(size=(2, 5, DIM)),
        # The last one of a row is NaN, or beyond any table.
        "positions": [[0, 1, 2, 300.5, np.nan], [7, 6, -5, 4, 3]],
        "whole": [[0, 1, 2, 3, 2**25], [7, 6, 5, 4, 3]],
    }
    dtypes = {"x": "float32", "positions": "float32", "whole": "int32"}
    given = {name: np.array(x, dtypes[name]) for name, x in given.items()}
    # In a graph, where a position beyond a table is NaN, and no error.
    want = exact.predict(given, verbose=0)
    path = str(tmp_path / "model.onnx")
    exact.export(path, format="onnx", verbose=False)
    got = onnxruntime.InferenceSession(path).run(None, given)
    assert len(got) == len(want)
    for index, (each, wanted) in enumerate(zip(got, want, strict=True)):
        assert np.array_equal(np.isnan(each), np.isnan(wanted)), index
        np.testing.assert_allclose(each, wanted, rtol=0, atol=BOUND)
    assert any(np.isnan(each).any() for each in want)


def test_litert_files_of_tensorflow_alone():
    """TensorFlow's converter inlines what two blocks call at any length."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    x = keras.Input((None, DIM))
    y = x
    for kind in ("rotary", "alibi"):
        y = kp.SelfAttention(2, attention=kind)(y)
    model = keras.Model(x, y)
    content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    run = Interpreter(model_content=content).get_signature_runner()
    given = np.random.default_rng(0).normal(size=(2, 5, DIM)).astype("float32")
    (found,) = run(**{x.name: given}).values()
    wanted = keras.ops.convert_to_numpy(model(given))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
