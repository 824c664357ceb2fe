"""A file that ONNX Runtime has answered with."""

import keras

import keras_posenc as kp

model = keras.Sequential(
    [
        keras.Input((None,), dtype="int32", name="ids"),
        keras.layers.Embedding(20, 8, mask_zero=True),
        kp.PositionalEncoding(),
        kp.TransformerEncoder(1, num_heads=2, intermediate_dim=16),
        kp.Pooling1D("mean"),
    ]
)
assert kp.export_onnx(model, "judge.onnx").report.passed
