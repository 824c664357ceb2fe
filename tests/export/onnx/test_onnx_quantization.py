"""ONNX files of fewer bits."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers

import keras_posenc as kp
from tests import reference
from tests.export.files import run_file

pytestmark = pytest.mark.tensorflow

DIM = 32
VOCABULARY = 40


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(VOCABULARY, DIM)(ids)
    encoding = kp.PositionalEncoding(merge_mode=None)(x)
    x = layers.Conv1D(DIM, 3, padding="same", name="conv")(
        kp.PositionalEncoding()(x)
    )
    x = kp.TransformerEncoder(1, num_heads=2, intermediate_dim=DIM)(x)
    x = layers.Dense(DIM, name="dense")(layers.GlobalAveragePooling1D()(x))
    scores = layers.Dense(3, activation="softmax", name="scores")(x)
    outputs = {"scores": scores, "encoding": encoding, "next": ids + 1}
    return keras.Model(ids, outputs)


SAMPLES = [
    np.random.default_rng(1).integers(1, VOCABULARY, shape).astype("int32")
    for shape in ((1, 3), (4, 9))
]


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "int8.onnx"
    options = {"max_length": 5, "verbose": False, "samples": SAMPLES}
    return kp.export_onnx(model, path, quantization="int8", **options)


def weights_of(path):
    found = onnx.load(path).graph.initializer
    return {each.name: onnx.numpy_helper.to_array(each) for each in found}


def test_integers_are_the_nearest_of_each_column(exported, model):
    """Of 7 bits: two products of 8 and 7 bits fit 16 bits on any processor."""
    file = exported
    weights = weights_of(file.path)
    kernels = {each.path: each.numpy() for each in model.weights}
    quantized = [
        name
        for name, value in kernels.items()
        if value.ndim > 1 and value.size >= 1024 and not name.startswith("conv")
    ]
    assert len(quantized) == 6
    for path in quantized:
        integers = weights[f"{path}_quantized"].astype("float64")
        scale = weights[f"{path}_scale"].astype("float64")
        zero = weights[f"{path}_zero_point"].astype("float64")
        kernel = kernels[path].reshape(integers.shape)
        is_table = path.startswith("embedding")
        if is_table:  # one scale for all of it, from the least to the largest
            step = np.ptp(kernel) / 255
        else:
            step = np.max(np.abs(kernel), axis=0) / 64
            assert np.max(np.abs(integers)) == 64
        np.testing.assert_allclose(scale, step, rtol=1e-6)
        found = (integers - zero) * scale
        # Half a step, and of a table another half, as its zero is an integer.
        most = (0.5 + 0.5 * is_table) * scale * (1 + 1e-3)
        assert np.all(np.abs(found - kernel) <= most)
    # Of fewer than 1,024 numbers.
    assert weights["scores/kernel"].dtype == "float32"


def test_what_is_no_weight_stays_exact(exported, encoding_bound, near):
    for shape in ((1, 1), (3, 65), (2, 130)):
        ids = np.ones(shape, "int32")
        found = run_file(exported.path, {"ids": ids})
        encoding, after = found["encoding"], found["next"]
        expected = reference.positional_encoding(shape[1], DIM)
        bound = encoding_bound(np.arange(shape[1]), expected)
        near(encoding[0], expected, bound)
        assert after.dtype == "int32"
        assert after.tolist() == (ids + 1).tolist()
        assert found["scores"].shape == (shape[0], 3)


def test_report_says_what_stays_in_float32(exported):
    (note,) = (x for x in exported.report.notes if "leaves" in x)
    assert note.startswith("int8 leaves in float32: conv/kernel. Quanti")


def test_nothing_quantized_is_reported_once(tmp_path):
    x = keras.Input((8, 8, 8), name="x")
    y = layers.Conv2D(32, 3, name="y")(x)
    model, path = keras.Model(x, y), tmp_path / "m.onnx"
    exported = kp.export_onnx(model, path, quantization="int8", verbose=False)
    (nothing,) = exported.report.notes
    assert nothing.startswith("int8 quantized nothing: ")


def test_tables_that_a_loop_reads_stay_in_float32(tmp_path):
    """ONNX Runtime crashes where a loop reads restored rows."""
    ids = keras.Input((4,), dtype="int32", name="ids")
    x = layers.Embedding(VOCABULARY, DIM, name="table")(ids)
    scores = layers.Dense(DIM, name="scores")(layers.SimpleRNN(DIM)(x))
    exported = kp.export_onnx(
        keras.Model(ids, scores),
        tmp_path / "m.onnx",
        quantization="int8",
        verbose=False,
    )
    assert exported.report.passed
    assert kp.inspect_export(exported.path).quantization == "int8"
    assert "leaves in float32: table/embeddings" in str(exported.report)
    (note,) = [x for x in exported.report.notes if "leaves in float32" in x]
    assert "simple_rnn_cell/kernel" in note
