"""Each number of a LiteRT file is held to what its model becomes."""

import copy
import dataclasses
import re

import flatbuffers
import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc_worker.comparing import litert_comparison

pytestmark = pytest.mark.tensorflow

MODES = [None, "float16", "int8", "int8-static"]
VOCABULARY, DIM = 1000, 32
RANGES = "the ranges that it was calibrated to"


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(VOCABULARY, DIM),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(1, num_heads=2, intermediate_dim=64),
            layers.Conv1D(DIM, 3, padding="same"),
            layers.BatchNormalization(),  # becomes a part of what is before
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, activation="softmax", name="scores"),
        ]
    )
    rng = np.random.default_rng(0)
    for weight in model.weights:  # no zeros and ones, which a converter drops
        if "float" in weight.dtype:
            weight.assign_add(rng.uniform(0.01, 0.1, weight.shape))
    return model


def calibration():
    return np.random.default_rng(0).integers(0, VOCABULARY, (4, 9), "int32")


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    """A file of each mode that nobody has verified."""
    folder = tmp_path_factory.mktemp("files")
    return {
        mode: kp.export_litert(
            model,
            folder / f"{mode}.tflite",
            quantization=mode,
            representative=calibration() if mode == "int8-static" else None,
            verify=False,
            verbose=False,
        ).path
        for mode in MODES
    }


@pytest.fixture(scope="module")
def weights(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "weights.npz"
    np.savez(
        path, **{f"weights/{each.path}": each.numpy() for each in model.weights}
    )
    return path


@pytest.fixture
def compare(weights):
    """What of one file is not another, where anything is."""

    def run(reference, artifact, mode=None):
        found = litert_comparison.main(
            str(reference),
            str(artifact),
            ["serving_default"],
            str(weights),
            mode == "int8-static",
        )
        return {key: value for key, value in found.items() if value}

    return run


@pytest.fixture
def edited(tmp_path):
    def edit(path, *changes):
        from ai_edge_litert import schema_py_generated as schema

        file = schema.ModelT.InitFromObj(
            schema.Model.GetRootAs(path.read_bytes(), 0)
        )
        for change in changes:
            change(file)
        builder = flatbuffers.Builder(1024)
        builder.Finish(file.Pack(builder), b"TFL3")
        target = tmp_path / "edited.tflite"
        target.write_bytes(bytes(builder.Output()))
        return target

    return edit


def constant(file, *shape):
    """The first constant of a shape, its tensor and its buffer."""
    for tensor in file.subgraphs[0].tensors:
        buffer = file.buffers[tensor.buffer]
        if buffer.data is not None and [*tensor.shape] == [*shape]:
            return tensor, buffer
    raise AssertionError(shape)


def change_bytes(buffer, change):
    data = np.array(buffer.data, "uint8")
    change(data)
    buffer.data = data


def low_bits(file):
    """8 of a float, of float16 too, or of 8 integers one each."""
    tensor, buffer = constant(file, 3 * DIM, DIM)

    def change(data):
        if tensor.type == 9:
            data[:8] ^= 1
        else:
            data[0] ^= 0xFF

    change_bytes(buffer, change)


def another_row(file):
    """Of an embedding, of an id that nobody asks."""
    _, buffer = constant(file, VOCABULARY, DIM)

    def change(data):
        rows = data.reshape(VOCABULARY, -1)
        rows[-2] = rows[-3]

    change_bytes(buffer, change)


def transposed(file):
    _, buffer = constant(file, DIM, DIM)

    def change(data):
        square = data.reshape(DIM, DIM, -1)
        square[:] = square.swapaxes(0, 1).copy()

    change_bytes(buffer, change)


def in_all_epsilons(file):
    for tensor in file.subgraphs[0].tensors:
        buffer = file.buffers[tensor.buffer]
        if (
            tensor.type == 0
            and buffer.data is not None
            and not len(tensor.shape)
        ):
            value = np.array(buffer.data, "uint8").view("float32")
            if 0 < value < 1e-2:
                buffer.data = (10 * value).view("uint8")
                return
    raise AssertionError


def in_a_table(file):
    """One bit of an encoding's table."""
    tables = [
        file.buffers[tensor.buffer]
        for tensor in file.subgraphs[0].tensors
        if tensor.type == 2 and len(tensor.shape) == 2
    ]
    (buffer,) = {
        id(each): each for each in tables if each.data is not None
    }.values()
    change_bytes(buffer, lambda data: data.__setitem__(-4, data[-4] ^ 1))


def another_scale(file):
    tensor, _ = constant(file, 3 * DIM, DIM)
    scale = np.array(tensor.quantization.scale)
    scale[5] *= np.float32(1.00001)
    tensor.quantization.scale = scale


def another_beta(file):
    for operator in file.subgraphs[0].operators:
        if hasattr(operator.builtinOptions, "beta"):
            operator.builtinOptions.beta = 1.000001


WRONG = {
    low_bits: {"weights": "query_key_value/kernel"},
    another_row: {"weights": "embeddings"},
    transposed: {"weights": "kernel"},
    in_all_epsilons: {"constants": "e-0"},
    in_a_table: {"constants": "other numbers: 1 of "},
    another_scale: {"weights": "query_key_value/kernel"},
    another_beta: {"constants": "beta of SOFTMAX is 1.00000"},
}


@pytest.mark.parametrize("mode", MODES)
def test_what_differs(files, compare, edited, mode):
    path = files[mode]
    assert compare(path, edited(path), mode) == {}
    for change, wanted in WRONG.items():
        if change is another_scale and "int8" not in str(mode):
            continue
        found = compare(path, edited(path, change), mode)
        assert found.keys() >= wanted.keys(), change
        assert "graph" not in found, change
        for key, words in wanted.items():
            assert words in found[key][0], change


def folded(model, units):
    """Moves a number that the converter computed of several weights."""
    known = {each.numpy().tobytes() for each in model.weights}

    def change(file):
        for tensor in file.subgraphs[0].tensors:
            buffer = file.buffers[tensor.buffer]
            if buffer.data is None or [*tensor.shape] != [DIM]:
                continue
            values = np.array(buffer.data, "uint8").view("float32")
            is_known = values.tobytes() in known
            if tensor.type == 0 and values.all() and not is_known:
                values[0] += units * np.spacing(values[0])
                buffer.data = values.view("uint8")
                return
        raise AssertionError

    return change


def test_what_another_processor_folds_is_named(files, compare, edited, model):
    path = files[None]
    found = compare(path, edited(path, folded(model, 1)))
    (words,) = found["unsure"]
    assert re.match(
        r"the last bits: input . of \S+ has other numbers: 1 of 32 differ, the "
        r"first, at \[0\], is (\S+), not (?!\1)",
        words,
    )
    assert found.keys() == {"unsure"}
    found = compare(path, edited(path, folded(model, 256)))
    assert found.keys() == {"constants"}


def other_operators(file):
    """The same numbers by another graph: a + b as b + a."""
    kinds = [code.builtinCode for code in file.operatorCodes]
    tensors = file.subgraphs[0].tensors
    for operator in file.subgraphs[0].operators:
        if kinds[operator.opcodeIndex] == 0 and all(
            file.buffers[tensors[index].buffer].data is None
            and len(tensors[index].shape) == 3
            for index in operator.inputs
        ):
            operator.inputs = operator.inputs[::-1]
            return
    raise AssertionError


def beside_the_right_one(file):
    """Another embedding, and the model's where no output comes from."""
    graph = file.subgraphs[0]
    tensor, buffer = constant(file, VOCABULARY, DIM)
    unused, kept = copy.copy(tensor), copy.copy(buffer)
    file.buffers.append(kept)
    unused.buffer = len(file.buffers) - 1
    graph.tensors.append(unused)
    another_row(file)


@pytest.mark.parametrize("mode", MODES)
def test_of_another_graph_the_weights_are_found(files, compare, edited, mode):
    path = files[mode]
    found = compare(path, edited(path, other_operators), mode)
    assert found.pop("graph")
    kept = ("embeddings", "query_key_value/kernel")
    assert not any(each.endswith(kept) for each in found.pop("folded"))
    assert found == {}
    for change in (low_bits, another_row, beside_the_right_one):
        found = compare(path, edited(path, other_operators, change), mode)
        assert len(found["weights"]) == 1


def test_scales_of_what_was_measured(files, compare, edited):
    """A bias of int32 has the step of sums, and no other."""

    def zero_bias(file):
        graph = file.subgraphs[0]
        for tensor in graph.tensors:
            buffer = file.buffers[tensor.buffer]
            if (
                tensor.type == 2
                and tensor.quantization is not None
                and tensor.quantization.scale is not None
                and buffer.data is not None
            ):
                tensor.quantization.scale = 1e6 * np.array(
                    tensor.quantization.scale
                )
                buffer.data = np.zeros_like(buffer.data)
                return
        pytest.fail("no bias of integers")

    path = files["int8-static"]
    found = compare(path, edited(path, zero_bias), "int8-static")
    assert any("scale of the bias" in each for each in found["constants"])


@pytest.mark.parametrize(
    "mode",
    # The one of floats is in test_verification.py, too.
    [*(pytest.param(m, marks=pytest.mark.slow) for m in MODES[:2]), *MODES[2:]],
)
def test_verify_converts_anew(model, files, mode):
    """Then nothing differs, in any mode's file."""
    samples = calibration() if mode == "int8-static" else None
    report = kp.verify(model, files[mode], max_length=4, samples=samples)
    assert report.passed
    assert report.altered == []
    assert [each[: len(RANGES)] for each in report.folded] == (
        [RANGES] if mode == "int8-static" else []
    )


def noted(name):
    def change(file):
        from ai_edge_litert import schema_py_generated as schema

        buffer, entry = schema.BufferT(), schema.MetadataT()
        buffer.data = list(b"fp16accfp16")
        file.buffers.append(buffer)
        entry.name, entry.buffer = name, len(file.buffers) - 1
        file.metadata.append(entry)

    return change


def another_first_graph(file):
    """It is what an app runs that names no signature."""
    file.subgraphs.append(file.subgraphs[0])
    file.subgraphs[0] = copy.copy(file.subgraphs[0])
    file.signatureDefs[0].subgraphIndex = 1


def another_name_of_the_input(file):
    graph = file.subgraphs[0]
    graph.tensors[graph.inputs[0]].name = b"serving_default_other:0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (noted(b"reduced_precision_support"), "metadata"),
        (noted(b"model_control_dependencies"), "metadata"),
        (noted(b"TFLITE_METADATA"), None),
        (another_first_graph, "the first graph belongs to no signature"),
        (another_name_of_the_input, "the name of the tensor of ids"),
    ],
)
def test_what_a_runtime_goes_by_beside_the_graph(
    files, compare, edited, change, words
):
    path = files[None]
    found = compare(path, edited(path, change))
    assert words in found["graph"] if words else found == {}


def test_numbers_that_are_drawn_once(compare, edited, tmp_path):
    import tensorflow as tf

    class Noise(layers.Layer):
        def call(self, x):
            one, two = (tf.random.uniform([3]) for _ in range(2))
            return x + one - two

    inputs = keras.Input((3,))
    path = kp.export_litert(
        keras.Model(inputs, Noise()(inputs)),
        tmp_path / "noise.tflite",
        verify=False,
        verbose=False,
    ).path

    def change(file):
        one, two = (
            operator
            for operator in file.subgraphs[0].operators
            if file.operatorCodes[operator.opcodeIndex].builtinCode == 148
        )
        for operator in file.subgraphs[0].operators:
            operator.inputs = [
                one.outputs[0] if each == two.outputs[0] else each
                for each in operator.inputs
            ]

    assert compare(path, edited(path)) == {}
    assert compare(path, edited(path, change))["graph"]


def test_verify_refuses_another_graph(model, files, edited):
    path = edited(files[None], other_operators)
    report = kp.verify(model, path, max_length=4)
    assert not report.passed
    assert "not as written here: another graph" in str(report)
    report = kp.verify(model, path, max_length=4, other_writer=True)
    assert report.passed
    assert "answers and weights alone" in str(report).splitlines()[0]


@pytest.mark.parametrize(
    "mode", [None, pytest.param("int8", marks=pytest.mark.slow)]
)
def test_verify_finds_what_no_answer_tells(model, files, edited, mode):
    report = kp.verify(
        model, edited(files[mode], low_bits, another_row), max_length=4
    )
    assert dataclasses.replace(report, altered=[]).passed  # as it would be
    (words,) = report.altered
    assert "query_key_value/kernel" in words
    assert "embeddings" in words
    with pytest.raises(kp.ExportVerificationError, match="embeddings"):
        report.require_success()
