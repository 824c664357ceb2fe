"""Small artifacts that the tests of scoring share."""

import types

import pytest

SHORT = {"max_length": 4, "verbose": False}


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A SavedModel of texts, an ONNX file of ids, a LiteRT file of vectors."""
    import keras

    import keras_posenc as kp

    folder = tmp_path_factory.mktemp("scoring")
    keras.utils.set_random_seed(0)
    text = keras.Input((), dtype="string", name="text")
    tokens = kp.CharacterTokenizer("abcdefgh ")(text)
    vectors = keras.layers.Embedding(14, 8, mask_zero=True)(tokens)
    vectors = kp.PositionalEncoding()(vectors)
    pooled = kp.Pooling1D("mean")(vectors)
    scores = keras.layers.Dense(3, activation="softmax", name="scores")(pooled)
    texts = keras.Model(text, scores)
    # Without a mask each zero counts, so that padding matters.
    ids = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(10, 4),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1, name="score"),
        ]
    )
    numbers = keras.Sequential(
        [keras.Input((3,), name="vector"), keras.layers.Dense(2, name="out")]
    )
    return types.SimpleNamespace(
        folder=folder,
        texts=kp.export_saved_model(
            texts, folder / "texts", labels=["x", "y", "z"], **SHORT
        ).path,
        tokens=kp.export_saved_model(
            keras.Model(text, {"contextual": vectors, "pooled": pooled}),
            folder / "tokens",
            **SHORT,
        ).path,
        ids=kp.export_onnx(ids, folder / "ids.onnx", **SHORT).path,
        vectors=kp.export_litert(
            numbers, folder / "vectors.tflite", **SHORT
        ).path,
        numbers=numbers,
    )
