"""Files are compared by what they compute, down to each number."""

import contextlib
import copy
import dataclasses
import re
import struct

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from keras_posenc_worker import compare_files
from keras_posenc_worker.fingerprint import fingerprint
from keras_posenc_worker.formats import litert_schema, pack, unpack
from keras_posenc_worker.litert_graph import read_litert
from keras_posenc_worker.onnx_graph import read_onnx

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

    def run(reference, artifact, mode=None, weights=weights):
        is_onnx = str(reference).endswith(".onnx")
        options = {"kind": "onnx"}
        if not is_onnx:
            options = {
                "kind": "litert",
                "names": ["serving_default"],
                "are_all": True,
                "is_static": mode == "int8-static",
            }
        found = compare_files.main(
            str(reference), str(artifact), str(weights), options
        )
        return {key: value for key, value in found.items() if value}

    return run


@pytest.fixture
def edited(tmp_path):
    def edit(path, *changes):
        file = unpack(path.read_bytes())
        for change in changes:
            change(file)
        target = tmp_path / "edited.tflite"
        target.write_bytes(pack(file))
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
    another_beta: {"constants": "beta of SOFTMAX 2 is 1.00000"},
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


def test_attributes_of_tensorflows_operators(tmp_path, compare, edited):
    """The bytes in which they are hold names as well."""

    def rename(file):
        for operator in file.subgraphs[0].operators:
            if operator.customOptions is not None:
                before = bytes(operator.customOptions)
                after = before.replace(b"/Cumulative", b"/other_name")
                assert after != before
                operator.customOptions = np.frombuffer(after, "uint8")

    def write(exclusive):
        x = keras.Input((3,), name="x")
        y = layers.Lambda(
            lambda x: tf.math.cumulative_logsumexp(x, 1, exclusive),
            name="sum",
        )(x)
        return kp.export_litert(
            keras.Model(x, y),
            tmp_path / f"{exclusive}.tflite",
            allow_flex=True,
            verify=False,
            verbose=False,
        ).path

    one, other = map(write, (False, True))
    assert compare(one, edited(one, rename)) == {}
    found = compare(one, other)
    assert found.keys() == {"constants"}
    (words,) = found["constants"]
    assert words.startswith("customOptions of FlexCumulativeLogsumexp is ")
    assert "'exclusive': 'b: true'" in words


def test_tables_and_blanks_of_tensorflows_operators(tmp_path, compare):
    """A table's name is a counter of the process; a pattern's blanks count."""

    def write(name, pattern):
        x = keras.Input((1,), dtype="int64", name="x")
        ids = layers.IntegerLookup(vocabulary=[7, 9])(x)

        def digits(ids):
            texts = tf.strings.as_string(ids)
            texts = tf.strings.regex_replace(texts, pattern, "1")
            return tf.strings.to_number(texts)

        y = layers.Lambda(digits, output_shape=(1,), name="y")(ids)
        return kp.export_litert(
            keras.Model(x, y),
            tmp_path / f"{name}.tflite",
            allow_flex=True,
            verify=False,
            verbose=False,
        ).path

    one, same, other = write("a", "a b"), write("b", "a b"), write("c", "a  b")
    assert one.read_bytes() != same.read_bytes()
    assert compare(one, same) == {}
    assert compare(one, other).keys() == {"constants"}


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
    # Others are in test_verification.py and test_quantization.py, too.
    [*(pytest.param(m, marks=pytest.mark.slow) for m in MODES[:3]), MODES[3]],
)
def test_verify_converts_anew(model, files, mode):
    """Then nothing differs, in any mode's file."""
    # Other ones than those that it was calibrated to.
    samples = calibration()[:2] if mode == "int8-static" else None
    report = kp.verify(model, files[mode], max_length=4, samples=samples)
    assert report.passed
    assert report.different_values == []
    assert [each[: len(RANGES)] for each in report.not_compared] == (
        [RANGES] if mode == "int8-static" else []
    )


def noted(name):
    def change(file):
        schema = litert_schema()
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
        (another_first_graph, "owner of the first graph of file: no signature"),
        (another_name_of_the_input, "names of the tensors of the inputs"),
    ],
)
def test_what_a_runtime_goes_by_beside_the_graph(
    files, compare, edited, change, words
):
    path = files[None]
    found = compare(path, edited(path, change))
    assert words in found["graph"] if words else found == {}


def test_what_litert_runs_or_never_reads(files, compare, edited):
    """An operator that no output needs runs; buffer 0 is of no constant."""
    path = files[None]

    def without_need(file):
        graph = file.subgraphs[0]
        other = copy.copy(graph.operators[0])
        tensor = copy.copy(graph.tensors[other.outputs[0]])
        graph.tensors.append(tensor)
        other.outputs = [len(graph.tensors) - 1]
        graph.operators.insert(1, other)

    def in_buffer_0(file):
        for graph in file.subgraphs:
            for tensor in graph.tensors:
                data = file.buffers[tensor.buffer].data
                if data is not None and len(data):
                    file.buffers[0].data = data
                    tensor.buffer = 0
                    return

    words = compare(path, edited(path, without_need))["graph"]
    assert words.startswith("number of operators of")
    assert compare(path, edited(path, in_buffer_0))["graph"] is not None


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
    report = kp.verify(model, path, max_length=2, allow_different_graph=True)
    assert report.passed
    assert "outputs and weights only" in str(report).splitlines()[0]
    # As without that argument.
    report = dataclasses.replace(report, allow_different_graph=False)
    assert not report.passed
    assert "different graph: another graph" in str(report)
    assert "--allow-different-graph" in str(report)


@pytest.mark.parametrize(
    "mode", [None, pytest.param("int8", marks=pytest.mark.slow)]
)
def test_verify_finds_what_no_answer_tells(model, files, edited, mode):
    report = kp.verify(
        model, edited(files[mode], low_bits, another_row), max_length=4
    )
    assert dataclasses.replace(
        report, different_values=[]
    ).passed  # as it would be
    (words,) = report.different_values
    assert "query_key_value/kernel" in words
    assert "embeddings" in words
    with pytest.raises(kp.ExportVerificationError, match="embeddings"):
        report.require_success()


# ---- ONNX

GRAPH = """
    <float[2] w = {1.0, 2.0}, float c = {0.5}>
    {
        a = Mul(x, w)
        s = Sub(a, c)
        y = If(b) <
            then_branch = g () => (float[2] t) {t = Sub(s, w)},
            else_branch = h () => (float[2] e) {e = Softmax <axis: int = 0>(s)}
        >
    }
"""


@pytest.fixture
def onnx():
    return pytest.importorskip("onnx")


@pytest.fixture
def compare_graphs(onnx, compare, tmp_path):
    """What of one graph is not the other, both as text."""
    weights = tmp_path / "w.npz"
    np.savez(weights, **{"weights/w": np.array([1, 2], "float32")})

    def run(text, reference=GRAPH, version=18, change=lambda model: None):
        paths = tmp_path / "one.onnx", tmp_path / "other.onnx"
        models = [
            onnx.parser.parse_model(
                f'<ir_version: 9, opset_import: ["": {opset}]>'
                f"g (float[2] x, bool b) => (float[2] y) {graph}"
            )
            for graph, opset in ((reference, 18), (text, version))
        ]
        change(models[1])
        for model, path in zip(models, paths, strict=True):
            onnx.save(model, path)
        return compare(*paths, weights=weights)

    return run


def test_names_and_order_do_not_matter(compare_graphs):
    found = compare_graphs(
        """
        <float k = {0.5}, float[2] weight = {1.0, 2.0}, float[2] more = {3, 4}>
        {
            unused = Identity(more)
            i = Identity(x)
            p = Mul(i, weight)
            q = Sub(p, k)
            y = If(b) <
                then_branch = f () => (float[2] r) {r = Sub(q, weight)},
                else_branch = f () => (float[2] v) {
                    j = Identity(q) v = Softmax <axis: int = 0>(j)}
            >
        }
        """
    )
    assert found == {}


def test_operator_that_no_output_needs(compare_graphs):
    """ONNX Runtime runs it all the same: it may fail, or never end."""
    text = GRAPH.replace("a = Mul(x, w)", "unused = Neg(x) a = Mul(x, w)")
    words = compare_graphs(text)["graph"]
    assert words.startswith("number of operators of graph")


def test_types_that_onnx_runtime_folds_by(onnx, compare_graphs):
    """It takes them for true, and folds `Shape` by them."""

    def note(model):
        name = model.graph.node[0].output[0]
        kind = onnx.TensorProto.FLOAT
        model.graph.value_info.append(
            onnx.helper.make_tensor_value_info(name, kind, [1])
        )

    words = compare_graphs(GRAPH, change=note)["graph"]
    assert words.startswith("type noted of output 0")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("{1.0, 2.0}", "{1.0, 2.0000002}", {"weights": ["w"]}),
        (
            "{0.5}",
            "{0.75}",
            {"constants": ["input 1 of Sub is 0.75, not 0.5"]},
        ),
        (
            "float c = {0.5}",
            "float[2] c = {0.5, 0.5}",
            {
                "constants": [
                    "input 1 of Sub is float32 of shape (2,), not float32 of "
                    "shape ()"
                ]
            },
        ),
        ("{0.5}", "{0.50000006}", {"unsure": ...}),
        (
            "axis: int = 0",
            "axis: int = -1",
            {"constants": ["axis of Softmax is -1, not 0"]},
        ),
        ("Mul(x, w)", "Add(x, w)", {"graph": ...}),
        ("Sub(a, c)", "Sub(c, a)", {"graph": ...}),
        ("Sub(s, w)", "Sub(w, s)", {"graph": ...}),
        # The axes may lie otherwise in another graph.
        ("Mul(x, w)", "Neg(x)", {"graph": ...}),
        ("Mul(x, w)", "Mul(x, v)", {"weights": ["w"]}),
    ],
)
def test_what_differs_in_onnx(compare_graphs, old, new, found):
    text = GRAPH.replace(old, new)
    assert text != GRAPH
    got = compare_graphs(
        text.replace("<float[2] w", "<float[2] v = {5, 6}, float[2] w")
    )
    assert got.keys() == found.keys()
    for key, value in found.items():
        assert value in (..., got[key])


def test_what_an_onnx_graph_is_read_by(onnx, compare_graphs):
    def of_writer(model):
        model.producer_name = "me"

    found = compare_graphs(GRAPH, version=17, change=of_writer)
    assert found == {
        "graph": "versions of operators of file: [('', 17)], not [('', 18)]",
        "writer": "me",
    }

    def redefine(model):
        model.functions.append(
            onnx.parser.parse_function(
                '<domain: "", opset_import: ["": 18]>'
                "Mul (x, y) => (z) {z = Add(x, y)}"
            )
        )

    def version_twice(model):
        model.opset_import.add(domain="ai.onnx", version=18)

    # An initializer with an input's name is its default.
    def default(model):
        model.graph.initializer.append(
            onnx.helper.make_tensor("x", 1, [2], [0.0, 0.0])
        )

    for change, words in (
        (redefine, "own functions of file: ['Mul'], not []"),
        (version_twice, "[('', 18), ('', 18)], not [('', 18)]"),
        (default, "list of parts of input: ['default'], not []"),
    ):
        assert words in compare_graphs(GRAPH, change=change)["graph"]


def test_tensor_that_is_there_twice(onnx, compare_graphs):
    def twice(model):
        model.graph.initializer.insert(
            0, onnx.helper.make_tensor("c", 1, [], [7.0])
        )

    with pytest.raises(ValueError, match="a tensor is in the file twice"):
        compare_graphs(GRAPH, change=twice)


def test_numbers_that_onnx_draws_once(compare_graphs):
    draws = (
        "<float[2] w = {{1.0, 2.0}}> {{a = RandomNormalLike(w) "
        "s = RandomNormalLike(w) y = Sub({}, s)}}"
    )
    one, two = draws.format("s"), draws.format("a")
    assert compare_graphs(two, two) == {}
    assert compare_graphs(one, two)["graph"] == (
        "input 1 of Sub: RandomNormalLike, not RandomNormalLike 2"
    )


# ---- Every field of a file


def scaled():
    found = litert_schema().QuantizationParametersT()
    found.scale = np.ones(1, "float32")
    return found


# For fields that the file does without.
ADDED = {
    "customCode": lambda: b"x",
    "customOptions": lambda: np.ones(1, "uint8"),
    "intermediates": lambda: np.zeros(1, "int32"),
    "mutatingVariableInputs": lambda: np.ones(1, "bool"),
    "quantization": scaled,
    "sparsity": lambda: litert_schema().SparsityParametersT(),
    "variantTensors": lambda: [litert_schema().VariantSubTypeT()],
}


def litert_file():
    """A loop, a variable and a state, integers with scales, and metadata."""
    schema = litert_schema()
    kinds = schema.BuiltinOperator
    model = schema.ModelT()
    model.version, model.description = 3, b"by hand"
    model.buffers = [schema.BufferT()]
    model.operatorCodes, model.subgraphs = [], []

    def buffer(data):
        model.buffers.append(schema.BufferT())
        model.buffers[-1].data = np.frombuffer(data, "uint8")
        return len(model.buffers) - 1

    def graph(inputs, outputs, tensors, operators):
        """Tensors by name: type, shape, values and scales."""
        found = schema.SubGraphT()
        names = [*tensors]
        found.tensors, found.operators = [], []
        for name, (kind, shape, values, scale) in tensors.items():
            tensor = schema.TensorT()
            tensor.name, tensor.type = name.encode(), kind
            tensor.shape = np.array(shape, "int32")
            if name == "x":
                tensor.shapeSignature = -tensor.shape
            tensor.isVariable = name == "state"
            if values is not None:
                tensor.buffer = buffer(values.tobytes())
            if scale:
                tensor.quantization = schema.QuantizationParametersT()
                tensor.quantization.scale = np.array(scale, "float32")
                tensor.quantization.zeroPoint = np.zeros(len(scale), "int64")
            found.tensors.append(tensor)
        for kind, options, read, written in operators:
            operator = schema.OperatorT()
            codes = [each.builtinCode for each in model.operatorCodes]
            if kind not in codes:
                codes.append(kind)
                model.operatorCodes.append(schema.OperatorCodeT())
                model.operatorCodes[-1].builtinCode = kind
                model.operatorCodes[-1].deprecatedBuiltinCode = min(kind, 127)
            operator.opcodeIndex = codes.index(kind)
            operator.inputs, operator.outputs = (
                np.array([names.index(x) if x else -1 for x in side], "int32")
                for side in (read, written)
            )
            operator.builtinOptions = options
            if options is not None:
                name = type(options).__name__[:-1]
                operator.builtinOptionsType = getattr(
                    schema.BuiltinOptions, name
                )
            found.operators.append(operator)
        found.inputs, found.outputs = (
            np.array([names.index(each) for each in side], "int32")
            for side in (inputs, outputs)
        )
        model.subgraphs.append(found)

    def options(name, **fields):
        found = getattr(schema, f"{name}OptionsT")()
        for key, value in fields.items():
            assert hasattr(found, key)
            setattr(found, key, value)
        return found

    real = (0, [4], None, None)
    rng = np.random.default_rng(0)
    svdf = kinds.SVDF, options("SVDF", rank=1)
    graph(
        ["x", "z"],
        ["y", "g"],
        {
            **dict.fromkeys(["x", "z", "r", "a", "f", "s", "t"], real),
            **dict.fromkeys(["g", "unread", "y"], real),
            "v": (13, [], None, None),
            "state": real,
            "w": (9, [4, 4], rng.integers(-99, 99, (4, 4), "int8"), 4 * [0.5]),
            "feature": (0, [4, 4], rng.normal(size=(4, 4)).astype("f"), None),
            "time": (0, [4, 1], rng.normal(size=(4, 1)).astype("f"), None),
        },
        [
            (
                kinds.VAR_HANDLE,
                options("VarHandle", sharedName=b"v"),
                [],
                ["v"],
            ),
            (kinds.READ_VARIABLE, options("ReadVariable"), ["v"], ["r"]),
            (
                kinds.ASSIGN_VARIABLE,
                options("AssignVariable"),
                ["v", "x"],
                [],
            ),
            (kinds.ADD, options("Add"), ["x", "r"], ["a"]),
            (
                kinds.FULLY_CONNECTED,
                options("FullyConnected"),
                ["a", "w", ""],
                ["f"],
            ),
            (*svdf, ["f", "feature", "time", "", "state"], ["s"]),
            (*svdf, ["r", "feature", "time", "", "state"], ["t"]),
            (
                kinds.WHILE,
                options("While", condSubgraphIndex=1, bodySubgraphIndex=2),
                ["s", "t"],
                ["g", "unread"],
            ),
            (kinds.SOFTMAX, options("Softmax", beta=0.5), ["g"], ["y"]),
        ],
    )
    graph(
        ["p", "q"],
        ["b"],
        {
            "p": real,
            "q": real,
            "one": (0, [4], np.ones(4, "float32"), None),
            "less": (6, [4], None, None),
            "axis": (2, [2], np.array([0, 1], "int32"), None),
            "b": (6, [], None, None),
        },
        [
            (kinds.LESS, options("Less"), ["p", "one"], ["less"]),
            (
                kinds.REDUCE_ALL,
                options("Reducer"),
                ["less", "axis"],
                ["b"],
            ),
        ],
    )
    graph(
        ["p", "q"],
        ["d", "q"],
        {
            "p": real,
            "q": real,
            "half": (0, [1], np.full(1, 0.5, "float32"), None),
            "d": real,
        },
        [(kinds.MUL, options("Mul"), ["p", "half"], ["d"])],
    )
    signature, metadata = schema.SignatureDefT(), schema.MetadataT()
    signature.signatureKey = b"serving_default"
    first = model.subgraphs[0]
    for side, indices in (("inputs", first.inputs), ("outputs", first.outputs)):
        maps = []
        for index in indices:
            maps.append(schema.TensorMapT())
            maps[-1].name = first.tensors[index].name
            maps[-1].tensorIndex = index
        setattr(signature, side, maps)
    model.signatureDefs = [signature]
    metadata.name, metadata.buffer = b"reduced_precision", buffer(b"fp16")
    model.metadata = [metadata]
    return model


def followed(value, place):
    """What is at a place of an unpacked file."""
    for step in place:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value


def other_scalar(value):
    if isinstance(value, float):
        return float(np.nextafter(np.float32(value), np.float32(9)))
    if isinstance(value, (bool, np.bool_)):
        return not value
    return value + {bytes: b"x", str: "x"}.get(type(value), 1)


def litert_edits(value, place=()):
    """The places of all fields, and what can be done to them."""
    if isinstance(value, list):
        yield (*place, "shorter"), lambda x: x[:-1]
        if len(value) > 1:
            yield (*place, "reversed"), lambda x: x[::-1]
        for index, each in enumerate(value):
            yield from litert_edits(each, (*place, index))
    elif isinstance(value, np.ndarray) and value.size:
        yield (*place, "shorter"), lambda x: x[:-1]
        if (value != value[::-1]).any():
            yield (*place, "reversed"), lambda x: x[::-1]
        for index in {0, value.size - 1}:
            changed = value.copy()
            changed[index] = (
                value[index] ^ 1
                if place[-1] == "data"
                else other_scalar(value[index].item())
            )
            yield (*place, f"{index}"), lambda x, changed=changed: changed
    elif hasattr(value, "__dict__"):
        for name, each in vars(value).items():
            yield from litert_edits(each, (*place, name))
    elif isinstance(value, (int, float, bytes)):
        yield (*place, "changed"), other_scalar
    elif value is None and place[-1] in ADDED:
        yield (*place, "added"), lambda x: ADDED[place[-1]]()


def litert_variants(content):
    """Files in which one field is another, and which field."""
    file = unpack(content)
    for place, edit in [*litert_edits(file)]:
        *outer, name, _ = place
        holder = followed(file, outer)
        value = getattr(holder, name)
        setattr(holder, name, edit(value))
        with contextlib.suppress(TypeError, ValueError, struct.error):
            yield place, pack(file)  # if a file can hold it
        setattr(holder, name, value)


def onnx_edits(message, place=()):
    """The places of all fields, and what can be done to them."""
    found = dict(message.ListFields())
    for field in message.DESCRIPTOR.fields:
        value, here = getattr(message, field.name), (*place, field.name)
        is_one = not hasattr(value, "extend")
        if field.message_type is not None:
            for index, each in enumerate([value] if is_one else value):
                if field in found:
                    yield from onnx_edits(
                        each, here if is_one else (*here, index)
                    )
        elif is_one:
            yield (
                (*here, "changed" if field in found else "added"),
                other_scalar,
            )
        elif field in found:
            yield (*here, "0"), lambda x: [other_scalar(x[0]), *x[1:]]
        if not is_one and field in found:
            yield (*here, "shorter"), lambda x: x[:-1]
            if len(value) > 1 and value[0] != value[-1]:
                yield (*here, "reversed"), lambda x: x[::-1]


def onnx_variants(content):
    """Files in which one field is another, and which field."""
    import onnx

    original = onnx.ModelProto.FromString(content)
    for place, edit in onnx_edits(original):
        file = onnx.ModelProto.FromString(content)
        *outer, name, _ = place
        holder = followed(file, outer)
        with contextlib.suppress(TypeError, ValueError):  # no file holds it
            if hasattr(getattr(holder, name), "extend"):
                values = edit([*getattr(followed(original, outer), name)])
                holder.ClearField(name)
                getattr(holder, name).extend(values)
            else:
                setattr(holder, name, edit(getattr(holder, name)))
            yield place, file.SerializeToString()


def unnoticed(path, variants, read):
    """The fields of which a change, at least one, is not noticed."""
    original = fingerprint(read(str(path)))
    assert original == fingerprint(read(str(path)))._replace(
        numbers=original.numbers  # arrays
    )
    other = path.with_stem("other")
    silent = set()
    for place, content in variants(path.read_bytes()):
        other.write_bytes(content)
        try:
            found = compare_files.compare(
                original, fingerprint(read(str(other))), {}
            )
        except Exception:  # it cannot be read, and does not pass either
            found = {"graph": "none"}
        words = ".".join(each for each in place if isinstance(each, str))
        if not any(found.values()):
            silent.add(words)
    return silent


def test_every_field_of_a_litert_file(tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(pack(litert_file()))

    def read(path):
        return read_litert(path, ["serving_default"], True, False)

    assert unnoticed(path, litert_variants, read) == {
        # Names and notes; `limits.md` tells of versions.
        "description.changed",
        "operatorCodes.version.changed",
        "subgraphs.debugMetadataIndex.changed",
        "subgraphs.operators.debugMetadataIndex.changed",
        "subgraphs.tensors.name.changed",
        # Where large constants are, of which there is none.
        "buffers.offset.changed",
        "buffers.size.changed",
        "subgraphs.operators.largeCustomOptionsOffset.changed",
        # Signatures go by names.
        "signatureDefs.inputs.reversed",
        "signatureDefs.outputs.reversed",
    }


@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (5, 6)], ids=["variable", "state"]
)
def test_order_of_operators_that_change_what_others_read(tmp_path, one, other):
    """Of those that do not, no order is told."""

    def tokens(*swapped):
        file = litert_file()
        operators = file.subgraphs[0].operators
        for i, j in [swapped] if swapped else []:
            operators[i], operators[j] = operators[j], operators[i]
        path = tmp_path / "m.tflite"
        path.write_bytes(pack(file))
        return fingerprint(
            read_litert(str(path), ["serving_default"], True, False)
        ).tokens

    assert tokens() == tokens(2, 3)
    assert tokens() != tokens(one, other)


SIZE = "type.tensor_type.shape.dim"
FULL = """
g (float[N, 2] x, float[N, 2] z, bool b) => (float[N, 2] y, float[N, 1] t)
<float[2] w = {1.0, 2.0}, float c = {0.5}>
{
    one = Constant <value: tensor = float[2] {1.0, 1.0}> ()
    h = LeakyRelu <alpha: float = 0.1>(x)
    m = Mul(h, w)
    u, v = Split <axis: int = 1, num_outputs: int = 2>(m)
    t = Pad <mode: string = "edge">(u, pads)
    k = Sub(z, c)
    y = If(b) <
        then_branch = f () => (float[N, 2] p) {p = Add(k, v)},
        else_branch = g () => (float[N, 2] q) {
            r = ReduceSum <keepdims: int = 1>(one) q = Add(k, r)
        }
    >
}
"""


def test_every_field_of_an_onnx_file(onnx, tmp_path):
    path = tmp_path / "one.onnx"
    original = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> {FULL}'
    )
    original.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([0, 0, 0, 0]), "pads")
    )
    onnx.save(original, path)

    def read(path):
        onnx.checker.check_model(path)  # as each inspection does
        return read_onnx(path)[0]

    silent = unnoticed(path, onnx_variants, read)
    notes = ("doc_string.added", "denotation.added")
    assert {each for each in silent if not each.endswith(notes)} == {
        # Names and notes, also of the whole file.
        "domain.added",
        "model_version.added",
        "producer_name.added",
        "producer_version.added",
        "graph.name.changed",
        "graph.node.name.added",
        "graph.node.attribute.t.name.changed",
        "graph.node.attribute.g.name.changed",
        "graph.node.attribute.g.node.name.added",
        # What a branch calls a size that nobody knows.
        f"graph.node.attribute.g.output.{SIZE}.dim_param.changed",
        # Both go by names.
        "graph.initializer.reversed",
        "graph.node.attribute.reversed",
    }
