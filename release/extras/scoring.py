"""A file answers the rows of a table."""

import keras
import pyarrow as pa

import keras_posenc as kp

model = keras.Sequential(
    [
        keras.Input((None,), dtype="int32", name="ids"),
        keras.layers.Embedding(20, 8, mask_zero=True),
        kp.PositionalEncoding(),
        kp.Pooling1D("mean"),
    ]
)
kp.export_litert(model, "judge.tflite")
good, bad = kp.Scorer("judge.tflite")(pa.table({"ids": [[3, 4], [5]]}))
assert (good.num_rows, bad.num_rows) == (2, 0)
