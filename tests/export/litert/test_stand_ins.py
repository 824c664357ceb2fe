"""Weights that the converter never sees."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.formats import litert_convert
from keras_posenc.export.formats.litert_stand_ins import StandIns
from keras_posenc_worker.formats import litert_schema

pytestmark = pytest.mark.tensorflow

ROWS, DIM = 1100, 64  # of a weight that is large enough


@keras.saving.register_keras_serializable("test_stand_ins")
class Head(layers.Layer):
    """Vectors, and what a function makes of them and of one table."""

    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def build(self, input_shape):
        self.table = self.add_weight(shape=(ROWS, DIM), name="table")

    def call(self, ids):
        table = ops.convert_to_tensor(self.table)
        return self.function(ops.take(table, ids, axis=0), table)


def make(function):
    keras.utils.set_random_seed(0)
    ids = keras.Input((4,), dtype="int32", name="ids")
    return keras.Model(ids, {"y": Head(function)(ids)})


def exported(model, path, monkeypatch):
    """Exports a model; returns what each attempt to fill its file gave."""
    found = []

    class Spy(StandIns):
        def fit(self, functions):
            found.append(super().fit(functions))
            return found[-1]

        def fill(self, file):
            found.append(super().fill(file))
            return found[-1]

    monkeypatch.setattr(litert_convert, "StandIns", Spy)
    kp.export_litert(model, path, verify=False, verbose=False)
    return found


@pytest.mark.parametrize(
    ("function", "attempts"),
    [
        (lambda x, table: x @ ops.transpose(table), [True, True]),
        # The converter would multiply the kernel, but not the table.
        (lambda x, table: (x @ ops.transpose(table)) * 3.0, [True, False]),
        (lambda x, table: x @ ops.transpose(3.0 * table), [False]),
        (lambda x, table: x + ops.sum(table), [False]),
        (lambda x, table: x @ ops.transpose(table[:1090]), [False]),
        # A product of constants.
        (
            lambda x, table: x @ (ops.transpose(table) @ table),
            [False],
        ),
    ],
)
def test_files_have_the_models_outputs(
    function, attempts, tmp_path, monkeypatch, run_litert
):
    """Whether the weights are put in afterwards, or converted."""
    model = make(function)
    path = tmp_path / "m.tflite"
    found = exported(model, path, monkeypatch)
    assert found == attempts
    ids = np.array([[0, 7, 1080, ROWS - 1]], "int32")
    wanted = model(ids)["y"].numpy()
    actual = run_litert(path)(ids=ids)["y"]
    np.testing.assert_allclose(
        actual, wanted, rtol=0, atol=1e-5 * np.max(np.abs(wanted))
    )


def test_no_number_stays_in_a_file(tmp_path, monkeypatch):
    """Kernels, tables and square kernels have the model's bits."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(520, 256),
            layers.Dense(300),
            layers.Dense(300),
            layers.Dense(256),
        ]
    )
    path = tmp_path / "m.tflite"
    assert exported(model, path, monkeypatch) == [True, True]
    file = litert_schema().Model.GetRootAs(path.read_bytes(), 0)
    arrays = [
        file.Buffers(number).DataAsNumpy()
        for number in range(file.BuffersLength())
    ]
    found = {bytes(x) for x in arrays if isinstance(x, np.ndarray)}
    table, *kernels = (w.numpy() for w in model.weights if len(w.shape) == 2)
    assert table.tobytes() in found
    for kernel in kernels:
        assert np.ascontiguousarray(kernel.T).tobytes() in found
