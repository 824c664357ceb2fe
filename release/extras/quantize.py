"""A file whose matrices are rounded to blocks of int4."""

import keras

import keras_posenc as kp

model = keras.Sequential(
    [
        keras.Input((8, 64)),
        kp.PositionalEncoding(),
        kp.TransformerEncoder(num_layers=1, num_heads=2, intermediate_dim=64),
        keras.layers.GlobalAveragePooling1D(),
    ]
)
exported = kp.export_litert(model, "int4.tflite", quantization="int4")
assert exported.report.passed
