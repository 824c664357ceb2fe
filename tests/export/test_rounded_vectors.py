"""Exports of vectors as integers: exact, except where two are as near."""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.probes.compare import resolve_ties, retrace_of
from keras_posenc.export.signatures.resolve import (
    resolve_numeric_signatures,
    resolve_serving_signatures,
)

pytestmark = pytest.mark.tensorflow
IDS = np.array([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9]], "int32")
TEXTS = np.array(["abc", "de", "fghi"], object)
# Of the first two vectors, a number between two integers, a zero, and others.
NEAR = {"int8": [127, 0.5, 3.2, -9.9], "binary": [1, 0, 0.4, -0.2]}


def model_of(layer, table, takes_texts, pooling=None):
    """From characters or their ids to the mean of their vectors, rounded."""
    embedding = keras.layers.Embedding(
        *table.shape, mask_zero=True, name="table"
    )
    embedding.build()
    embedding.set_weights([table])
    start = [keras.Input((None,), dtype="int32", name="ids")]
    if takes_texts:
        tokenizer = kp.CharacterTokenizer(
            "abcdefgh", add_start=False, add_end=False
        )
        start = [keras.Input((), dtype="string", name="text"), tokenizer]
    pooling = pooling or kp.Pooling1D("mean")
    return keras.Sequential([*start, embedding, pooling, layer])


@pytest.mark.parametrize("takes_texts", [False, True], ids=["ids", "texts"])
@pytest.mark.parametrize("kind", NEAR)
def test_near_ties(kind, takes_texts):
    """Of ids, with lengths or without; of texts, and cut after them."""
    layer = {
        "int8": kp.Int8Quantization(name="embedding"),
        "binary": kp.BinaryQuantization(name="embedding"),
    }[kind]
    table = np.tile(np.array(NEAR[kind], "float32"), (12, 1))
    model = model_of(layer, table, takes_texts)
    signatures = resolve_serving_signatures(model)
    signatures += resolve_numeric_signatures(model)
    inputs = {"ids": IDS, "lengths": np.array([4, 2, 4]), "text": TEXTS}
    seen = set()
    for signature in signatures:
        given = {name: inputs[name] for name in signature.specs}
        seen.add(tuple(given))
        if kind == "int8":
            wanted = np.tile(np.array([127, 0, 3, -10], "int8"), (3, 1))
            tie = wanted + np.array([0, 1, 0, 0], "int8")
            wrong = wanted + np.array([0, 1, 1, 0], "int8")
        else:
            wanted, tie, wrong = (
                np.full((3, 1), int(bits, 2), "uint8")
                for bits in ("10100000", "11100000", "11000000")
            )
        retrace = retrace_of(signature)
        for got, ties in ((wanted, 0), (tie, 3), (wrong, 0)):
            resolved, found = resolve_ties(
                {"embedding": wanted}, {"embedding": got}, given, retrace, 1e-5
            )
            assert found == ties, (signature.name, got)
            expected = got if ties else wanted
            np.testing.assert_array_equal(resolved["embedding"], expected)
        some = np.where([[True], [False], [False]], tie, wrong)
        resolved, found = resolve_ties(
            {"embedding": wanted}, {"embedding": some}, given, retrace, 1e-5
        )
        assert found == 1
        np.testing.assert_array_equal(resolved["embedding"][1:], wanted[1:])
    assert seen >= {("ids",), ("text",) if takes_texts else ("ids",)}


@pytest.mark.parametrize("layer", [kp.Int8Quantization, kp.BinaryQuantization])
@pytest.mark.parametrize(
    ("export", "name"),
    [
        (kp.export_litert, "m.tflite"),
        pytest.param(kp.export_onnx, "m.onnx", marks=pytest.mark.slow),
        pytest.param(kp.export_saved_model, "m", marks=pytest.mark.slow),
    ],
    ids=["litert", "onnx", "saved-model"],
)
def test_exports(layer, export, name, tmp_path):
    table = np.random.default_rng(0).normal(size=(12, 24)).astype("float32")
    pooling = kp.Pooling1D(["last", "mean_sqrt_length", "weighted_mean"])
    model = model_of(layer(name="embedding"), table, False, pooling)
    artifact = export(model, tmp_path / name, verbose=False)
    assert artifact.report.passed
    other = model_of(layer(name="embedding"), -table, False, pooling)
    report = kp.verify_export(artifact.path, other, verbose=False)
    assert report.largest_difference == np.inf


def test_no_task_of_mediapipe(tmp_path):
    tokenizer = kp.WordpieceTokenizer.learn(["a fair exam"], 40)
    layers = [
        keras.Input((), dtype="string", name="text"),
        tokenizer,
        keras.layers.Embedding(
            tokenizer.vocabulary_size(), 8, mask_zero=True, name="table"
        ),
        kp.Pooling1D("mean", name="embedding"),
    ]
    layers[1:1] = [kp.Prompt("query: ", name="prompt")]
    for model, message in (
        (keras.Sequential(layers), "Of a model with a prompt give"),
        (
            keras.Sequential(
                [layers[0], *layers[2:], kp.Int8Quantization(name="rounded")]
            ),
            "needs one output of floats, .* Received: int8 'rounded'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            kp.export_litert(
                model,
                tmp_path / "m.tflite",
                task="text_embedder",
                verbose=False,
            )
