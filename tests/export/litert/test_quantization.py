"""LiteRT files of fewer bits."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.formats import litert
from keras_posenc.export.formats.litert_file import read, write
from keras_posenc.export.formats.litert_quantize import (
    resolve_quantization,
    rounded,
)
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc_worker.formats import litert_schema, unpack
from tests import reference
from tests.export.files import loaded_file, run_file

pytestmark = pytest.mark.tensorflow

DIM = 64
VOCABULARY = 900


@pytest.fixture(scope="module")
def model():
    """Ids to scores, and beside them the encoding alone."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(VOCABULARY, DIM, mask_zero=True)(ids)
    encoding = kp.PositionalEncoding(merge_mode=None)(x)
    x = kp.TransformerEncoder(1, num_heads=4, intermediate_dim=128)(
        kp.PositionalEncoding()(x)
    )
    x = kp.Pooling1D("mean")(x)
    scores = layers.Dense(3, activation="softmax")(x)
    return keras.Model(ids, {"scores": scores, "encoding": encoding})


def batches():
    rng = np.random.default_rng(1)
    return [
        {"ids": rng.integers(1, VOCABULARY, (rows, length)).astype("int32")}
        for rows, length in ((1, 3), (4, 17))
    ]


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantized")
    options = {"max_length": 17, "verbose": False}
    whole = kp.export_litert(
        model, folder / "whole.tflite", verify=False, **options
    )

    def convert(_, mode, path, samples, in_order, meanwhile):
        """Rounds what was converted once."""
        meanwhile()
        write(rounded(read(whole.path.read_bytes()), mode, samples), path)

    options["samples"] = batches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litert, "convert", convert)
        return {None: whole} | {
            mode: kp.export_litert(
                model, folder / f"{mode}.tflite", quantization=mode, **options
            )
            for mode in MODES
        }


# The encoding's tables and the graph, which stay as they are, are a third.
SIZES = {
    "float16": 0.66,
    "int8": 0.53,
    "int8-weights": 0.53,
    "int8-static": 0.53,
    "int4": 0.47,
}


@pytest.mark.parametrize("mode", MODES)
def test_encoding_stays_exact(files, mode, encoding_bound, near):
    path = files[mode].path
    most = SIZES[mode] * files[None].path.stat().st_size
    assert path.stat().st_size <= most
    assert f", {mode}, " in str(kp.inspect_export(path))
    run = loaded_file(path)
    for length in (1, 64, 65, 700):
        expected = reference.positional_encoding(length, DIM)
        actual = run({"ids": np.ones((1, length), "int32")})["encoding"][0]
        near(actual, expected, encoding_bound(np.arange(length), expected))


def test_encoding_stays_exact_where_it_is_folded(
    model, tmp_path, encoding_bound, near
):
    ids = np.ones((1, 70), "int32")
    path = kp.export_litert(
        model,
        tmp_path / "m.tflite",
        signatures={"of_70": (model, {"ids": (1, 70)})},
        quantization="int8",
        verify=False,
        verbose=False,
    ).path
    expected = reference.positional_encoding(70, DIM)
    actual = run_file(path, {"ids": ids}, "of_70")["encoding"][0]
    near(actual, expected, encoding_bound(np.arange(70), expected))


@pytest.mark.parametrize("mode", MODES)
def test_report_says_what_is_lost(files, model, mode):
    report = files[mode].report
    run = loaded_file(files[mode].path)
    answers = [
        (run(batch)["scores"], model(batch["ids"])["scores"].numpy())
        for batch in batches()
    ]
    same = np.concatenate(
        [np.argmax(a, -1) == np.argmax(b, -1) for a, b in answers]
    )
    scores = report.quality["serving_default/scores"]
    assert scores.rows == len(same)
    # It is not measured if the model gives one class.
    if scores.agreement is not None:
        assert scores.agreement == np.mean(same)
    wanted, got = (
        np.concatenate(each).astype("float64")
        for each in ([b for _, b in answers], [a for a, _ in answers])
    )
    signal = max(
        np.sum((wanted - wanted.mean(axis=0)) ** 2), 0.09 * np.sum(wanted**2)
    )
    noise = np.sum((wanted - got) ** 2)
    assert scores.sqnr == pytest.approx(10 * np.log10(signal / noise), abs=0.1)
    encoding = report.quality["serving_default/encoding"]
    assert (encoding.agreement, round(encoding.cosine, 6)) == (None, 1.0)
    assert report.quantization == mode
    lines = str(report).splitlines()
    begin = f"serving_default/scores, {mode}, on the samples: SQNR "
    assert any(line.startswith(begin) for line in lines)
    assert report.to_dict()["quality"]["serving_default/scores"]["rows"] == 5


def constants(path):
    """The constants of a file with their scales, by the types of these."""
    model = unpack(path.read_bytes())
    names = {
        number: name
        for name, number in vars(litert_schema().TensorType).items()
        if isinstance(number, int)
    }
    found = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if model.buffers[tensor.buffer].data is not None:
                found.setdefault(names[tensor.type], []).append(
                    (tensor, model.buffers[tensor.buffer].data)
                )
    return found


@pytest.mark.parametrize("mode", ["int8", "int8-weights"])
def test_integers_are_the_nearest_of_each_row(files, model, mode):
    """Of the table too: one scale for all of it would lose twice as much."""
    found = {
        tuple(tensor.shape): (data.view("int8"), tensor.quantization.scale)
        for tensor, data in constants(files[mode].path)["INT8"]
    }
    weights = [
        (variable.path, variable.numpy())
        for variable in model.weights
        if len(variable.shape) == 2 and variable.numpy().size >= 1024
    ]
    assert len(weights) == 5
    for name, weight in weights:
        rows = weight if name.endswith("embeddings") else weight.T
        integers, scale = found[rows.shape]
        right = np.max(np.abs(rows.astype("float64")), axis=1) / 127
        np.testing.assert_allclose(scale, right, rtol=1e-6)
        nearest = np.reshape(integers, rows.shape) * right[:, None]
        distance = np.abs(nearest - rows) / right[:, None]
        assert np.max(distance) <= 0.5001


def test_kernel_that_is_a_table_is_stored_once(tmp_path):
    """Also by two signatures: it is the largest part of language models."""
    keras.utils.set_random_seed(0)
    model = kp.TransformerDecoderModel(
        700, d_model=64, num_layers=1, num_heads=2, intermediate_dim=64
    )
    path = tmp_path / "m.tflite"
    kp.export_litert(
        model,
        path,
        signatures={"any": model, "four": (model, {"ids": (1, 4)})},
        verify=False,
        verbose=False,
    )
    whole = path.read_bytes()
    for mode, bits in (("int8", 8), ("int8-weights", 8), ("int4", 4)):
        write(rounded(read(whole), mode), path)
        found = {
            tensor.buffer: len(data)
            for tensor, data in constants(path)[f"INT{bits}"]
            if 700 in tensor.shape
        }
        assert [*found.values()] == [700 * 64 * bits // 8]
        assert kp.inspect_export(path).quantization == mode


def test_recipe_of_the_callers(model, tmp_path):
    """A list, or its JSON file; and a kernel without whole blocks."""
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps([rounding(4, "BLOCKWISE_32")]))
    path = tmp_path / "a.tflite"
    options = {"samples": batches(), "max_length": 17, "verbose": False}
    report = kp.export_litert(
        model, path, quantization=recipe, **options
    ).report
    assert report.passed
    assert report.quantization == "int4"
    (note,) = report.notes
    assert note.startswith("int4 leaves in float32: embedding")
    given = json.loads(recipe.read_text())
    assert resolve_quantization(given) == resolve_quantization(recipe)
    report = kp.verify_export(path, model, **options)
    assert report.passed, report  # and its graph is not another
    found = constants(path)
    assert len(found["INT4"]) == 5  # its other layers
    assert (VOCABULARY, DIM) in {
        tuple(tensor.shape) for tensor, _ in found["FLOAT32"]
    }


def test_tables_of_wide_ids_are_quantized(tmp_path):
    """As those of Keras's TextVectorization, which gives int64."""
    ids = keras.Input((4,), dtype="int64", name="ids")
    x = layers.Flatten()(layers.Embedding(500, 16)(ids))
    path = tmp_path / "m.tflite"
    kp.export_litert(
        keras.Model(ids, layers.Dense(2)(x)),
        path,
        quantization="int8",
        samples=np.random.default_rng(0).integers(0, 500, (64, 4)),
        verbose=False,
    )
    assert path.stat().st_size < 3 * 500 * 16


def test_static_ranges_are_those_of_the_samples(tmp_path):
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(32, 3, activation="relu")(image)
    x = layers.DepthwiseConv2D(3)(x)
    model = keras.Model(image, layers.Dense(64)(layers.Flatten()(x)))
    samples = np.random.default_rng(0).normal(size=(64, 8, 8, 3))
    options = {"quantization": "int8-static", "verbose": False}
    path = tmp_path / "m.tflite"
    report = kp.export_litert(model, path, samples=samples, **options).report
    assert report.quantization == "int8-static"
    assert path.stat().st_size < 1.5 * model.count_params()
    narrow = kp.export_litert(
        model, tmp_path / "n.tflite", samples=samples / 100, **options
    )
    assert not kp.verify_export(
        narrow.path, model, samples=samples, verbose=False
    )


def rounding(bits, granularity="CHANNELWISE"):
    """A part of a recipe of ai-edge-quantizer, in the form of its JSON."""
    weights = {
        "num_bits": bits,
        "symmetric": True,
        "granularity": granularity,
        "dtype": "INT",
    }
    return {
        "regex": ".*",
        "operation": "FULLY_CONNECTED",
        "algorithm_key": "min_max_uniform_quantize",
        "op_config": {
            "weight_tensor_config": weights,
            "compute_precision": "INTEGER",
            "explicit_dequantize": False,
        },
    }


def test_nothing_to_quantize_is_told(tmp_path):
    """int8 leaves small weights in float32: here all of them."""
    model = keras.Sequential([keras.Input((4,), name="x"), layers.Dense(3)])
    path = tmp_path / "m.tflite"
    report = kp.export_litert(
        model, path, quantization="int8", verbose=False
    ).report
    (note,) = report.notes
    assert note.startswith("int8 quantized nothing: no weight of at least 1,")
    report = kp.export_litert(
        model, path, quantization="float16", verbose=False
    ).report
    assert report.notes == []


def saturated(weight):
    """Texts of one word, judged with certainty by the word alone."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(64, 32, mask_zero=True),
            kp.Pooling1D("mean"),
            layers.Dense(2, activation="softmax", name="scores"),
        ]
    )
    (table, _, _) = model.get_weights()
    table[:] = np.random.default_rng(0).normal(size=table.shape)
    table[1:33, 0], table[33:, 0] = 4, -4
    kernel = np.zeros((32, 2))
    kernel[0] = weight, -weight
    model.set_weights([table, kernel, np.zeros(2)])
    return model


WORDS = {"samples": np.arange(1, 64).reshape(-1, 1), "max_length": 4}


def test_samples_are_what_a_file_is_held_to(tmp_path):
    """And not what rounding does to inputs that nobody will give."""
    model, path = saturated(2.0), tmp_path / "right.tflite"
    right = kp.export_litert(
        model, path, quantization="int8", verbose=False, **WORDS
    )
    wrong = kp.export_litert(
        saturated(1e-3),
        tmp_path / "wrong.tflite",
        quantization="int8",
        verify=False,
        verbose=False,
    ).path
    assert right.report.passed
    report = kp.verify_export(wrong, model, **WORDS)
    assert not report.passed
    assert report.largest_difference == pytest.approx(0.5, abs=0.01)
    (found,) = right.report.quality.values()
    assert (found.rows, found.agreement) == (63, 1.0)
    # Scores of the other class.
    other = kp.verify_export(right.path, saturated(-2.0), **WORDS)
    (found,) = other.quality.values()
    assert found.agreement == 0
    with pytest.raises(
        kp.ExportVerificationError, match=r"agreement 0 .+`limits`"
    ):
        other.require_success()
    limits = dict.fromkeys(other.limits, -np.inf)
    assert dataclasses.replace(
        other, limits=limits, different_weights=[]
    ).passed


def test_models_that_keras_quantized_are_refused(tmp_path):
    x = keras.Input((32,), name="x")
    dense = layers.Dense(4)
    model = keras.Model(x, dense(x))
    dense.quantize("int8")
    with pytest.raises(
        kp.ExportError, match=r"^Layer 'dense.*' is quantized to int8, which"
    ):
        kp.export_litert(model, tmp_path / "m.tflite", verbose=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layer", [kp.Int8Quantization, kp.BinaryQuantization])
def test_vectors_that_the_model_rounds(layer, tmp_path):
    keras.utils.set_random_seed(4)
    first, second = layers.Dense(64, activation="gelu"), layers.Dense(32)
    model = keras.Sequential([keras.Input((40,)), first, second, layer()])
    path = tmp_path / "rounded.tflite"
    options = {
        "samples": np.random.default_rng(2).normal(size=(32, 40)),
        "verbose": False,
    }
    artifact = kp.export_litert(model, path, quantization="int8", **options)
    (found,) = artifact.report.quality.values()
    numbers = [found.agreement, found.cosine]
    assert 0.8 < min(x for x in numbers if x is not None) < 1
    # The vectors are others'.
    kernel, bias = second.get_weights()
    second.set_weights([kernel[:, ::-1], bias])
    assert kp.verify_export(path, model, **options).too_lossy
