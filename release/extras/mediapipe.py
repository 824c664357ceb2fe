"""A file that MediaPipe has answered with."""

import keras

import keras_posenc as kp

texts = ["a cat sat on the mat", "the dog did not", "to be or not to be"]
tokenizer = kp.WordpieceTokenizer.learn(texts * 3, 60)
model = keras.Sequential(
    [
        keras.Input((), dtype="string", name="text"),
        tokenizer,
        keras.layers.Embedding(tokenizer.vocabulary_size(), 8, mask_zero=True),
        kp.PositionalEncoding(),
        kp.Pooling1D("mean"),
        keras.layers.Dense(2, activation="softmax", name="scores"),
    ]
)
artifact = kp.export_litert(
    model, "judge.tflite", task="text_classifier", labels=["no", "yes"]
)
assert artifact.report.passed
