"""Models as ONNX files."""

import itertools
import os

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from tf2onnx.graph import GraphUtil
from tf2onnx.optimizer.back_to_back_optimizer import BackToBackOptimizer

import keras_posenc as kp
from keras_posenc.export.formats.onnx import _going_once
from tests.export.files import run_file

pytestmark = pytest.mark.tensorflow


def looped(x):
    def body(count, y):
        y = ops.gelu(ops.einsum("ab,ac->ab", y, y), approximate=False)
        return count + 1, y

    return ops.while_loop(lambda count, y: count < 2, body, (0, x))[1]


def test_numbers_that_a_layer_holds(tmp_path):
    """No weights, they were inputs of the file; Erfc is TensorFlow's gelu."""
    x = keras.Input((3,), name="x")
    adapted = layers.Normalization()
    adapted.adapt(np.random.default_rng(0).normal(3.0, 2.0, (50, 3)))
    each = layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 6.0])
    all_alike = layers.Normalization(axis=None, mean=1.0, variance=2.0)
    y = ops.gelu(each(x), approximate=False)
    outputs = {
        "a": layers.Dense(4, activation=keras.activations.gelu)(adapted(x)),
        "b": all_alike(y),
        "c": ops.where(x > 0, 1.0 / x, 0.0),
        "weight0": layers.Lambda(looped)(x),
    }
    path = tmp_path / "m.onnx"
    model = keras.Model(x, outputs)
    kp.export_onnx(model, path, verify=False, verbose=False)
    report = kp.verify_export(path, model)
    assert report.passed
    assert report.unverified == []
    # What is not selected does not matter, an infinity neither.
    given = {"x": np.array([[0, -1, 2]], "float32")}
    assert run_file(path, given)["c"].tolist() == [[0.0, 0.0, 0.5]]
    graph = GraphUtil.create_graph_from_onnx_model(onnx.load(path))
    own = used_nodes(graph)
    with _going_once():
        assert used_nodes(graph) == own
    path = path.rename(tmp_path / os.fsdecode(b"\xff.onnx"))
    ((_, sides),) = kp.inspect_export(path).signatures.items()
    assert list(sides["inputs"]) == ["x"]


def used_nodes(graph):
    """What each way to ask tf2onnx's graph finds."""
    checkers = None, lambda node: node.type != "Mul"
    return [
        {
            *graph.extract_sub_graph_nodes(
                graph.outputs, input_checker=check, remove_unused_inputs=given
            )
        }
        for check, given in itertools.product(checkers, (False, True))
    ]


def test_an_optimizer_that_fails_is_left_out(tmp_path, monkeypatch, capsys):
    def lose_nodes_and_fail(_, graph):
        graph.reset_nodes([])
        raise RuntimeError

    monkeypatch.setattr(BackToBackOptimizer, "_optimize", lose_nodes_and_fail)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    for folder in (tmp_path, tmp_path / "other"):  # that a worker may be in
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        assert kp.export_onnx(model, "m.onnx").report.passed
        assert capsys.readouterr().err.splitlines() == [
            "Computing reference outputs ...",
            "Converting to ONNX ...",
            "Verifying it in a fresh process ...",
        ]


NOW = 1_700_000_000_000


def test_numbers_that_tf2onnx_gets_wrong(tmp_path):
    """It rounds quotients towards 0, and compares and sorts in float32.

    Of a large float it leaves the number itself as the rest, and counts ids
    below 0 from the end.
    """
    inputs = {
        "x": keras.Input((None,), dtype="int32", name="x"),
        "real": keras.Input((None,), name="real"),
        "vectors": keras.Input((None, 4), name="vectors"),
        "times": keras.Input((None,), dtype="int64", name="times"),
        "ids": keras.Input((None,), dtype="int32", name="ids"),
        "small": keras.Input((None,), dtype="uint8", name="small"),
        "one": keras.Input((1,), dtype="int32", name="one"),
    }
    x, real, vectors, times, ids, small, one = inputs.values()
    model = keras.Model(
        inputs,
        {
            "rest": ops.mod(x, 7),
            "quotient": ops.floor_divide(x, 7),
            "negative_rest": ops.mod(x, -7),
            "negative_quotient": ops.floor_divide(x, -7),
            "encoding": kp.PositionalEncoding()(vectors, positions=113 * x),
            "three": ops.mod(real, 3.0),
            "minus_three": ops.mod(real, -3.0),
            "part": ops.mod(real, 0.7),
            "later": times > NOW + 3,
            "earlier": times < NOW + 3,
            "not_earlier": small >= 250,
            "sorted": ops.sort(times, axis=-1),
            "order": ops.argsort(ids, axis=-1),
            "largest": ops.top_k(ids, 2)[0],
            "where": ops.top_k(times, 2)[1],
            "known": ops.less(ids, 16_777_217),
            "one_hot": layers.CategoryEncoding(5, output_mode="one_hot")(one),
            "sum": ops.sum(ops.concatenate([one, one], axis=1), axis=1),
            "long_sum": ops.sum(NOW * times, axis=1),
        },
    )
    whole = np.arange(-40, 40, dtype="int32").reshape(4, 20)
    edges = [1e9, -1e9, 16_777_217, 7, -7, -6, 6, 0, 2.1, -3.5]
    given = {
        "x": whole,
        "real": np.tile(np.float32(edges), (4, 2)),
        "vectors": np.zeros((4, 20, 4), "float32"),
        "times": NOW + (7 * whole.astype("int64")) % 20,
        "ids": 16_777_216 + (7 * whole) % 20,
        "small": (250 + whole % 3).astype("uint8"),
        "one": np.int32([[-1], [-6], [2**31 - 1], [-(2**31)]]),
    }
    path = tmp_path / "m.onnx"
    # Encoded ids are samples that have a class; positions are above 0.
    samples = {**given, "x": abs(whole), "one": np.int32([[3], [4], [0], [1]])}
    report = kp.export_onnx(model, path, samples=samples, verbose=False).report
    assert report.passed
    found = run_file(path, given)
    for name, want in model.predict(given, verbose=0).items():
        most = 2 * 5.8e-7 if name == "encoding" else 0
        np.testing.assert_allclose(found[name], want, rtol=0, atol=most)


def test_every_shape_is_known_where_the_inputs_are(tmp_path, make):
    """As importers want it that plan for one shape."""
    ids = make.ids()
    x = layers.Embedding(50, 16, mask_zero=True)(ids)
    x = kp.TransformerEncoder(
        1, num_heads=2, intermediate_dim=32, activation="gelu"
    )(kp.PositionalEncoding()(x))
    model = keras.Model(ids, layers.MultiHeadAttention(2, 8)(x, x))
    kp.export_onnx(
        model,
        tmp_path / "m.onnx",
        signatures={"short": (model, {"ids": (1, 8)})},
        verify=False,
        verbose=False,
    )
    graph = onnx.shape_inference.infer_shapes(
        onnx.load(tmp_path / "m.onnx"),
        check_type=True,
        strict_mode=True,
        data_prop=True,
    ).graph
    shapes = {
        value.name: value.type.tensor_type.shape.dim
        for value in (*graph.value_info, *graph.output)
    }
    for node in graph.node:
        for name in node.output:
            assert all(size.HasField("dim_value") for size in shapes[name])


def test_what_is_no_onnx_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08nothing of the kind")
    with pytest.raises(ValueError, match="is no readable ONNX file"):
        kp.inspect_export(path)


@pytest.mark.parametrize(
    ("body", "unsafe"),
    [
        ("y = mine.Op(x)", ["Op"]),
        ("y = If(b) <then_branch = g () => (float[n] z) {z = mine.Op(x)}, "
         "else_branch = h () => (float[n] w) {w = Neg(x)}>", ["Op"]),
        ("y = mine.Twice(x)", ["Op"]),
        ("y = ai.onnx.ml.Normalizer(x)", []),
    ],
)  # fmt: skip
def test_operators_of_other_domains(tmp_path, body, unsafe):
    path = tmp_path / "m.onnx"
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18, "mine": 1, "ai.onnx.ml": 3]>'
        f"g (float[n] x, bool b) => (float[n] y) {{{body}}}"
    )
    if "Twice" in body:
        model.functions.append(
            onnx.parser.parse_function(
                '<domain: "mine", opset_import: ["": 18, "mine": 1]>'
                "Twice (x) => (y) {z = Add(x, x) y = mine.Op(z)}"
            )
        )
    onnx.save(model, path)
    found = kp.inspect_export(path)
    assert found.unsafe_operators == found.foreign_operators == unsafe
    assert "Twice" not in found.operators


@pytest.mark.parametrize("where", ["initializer", "attribute", "sparse"])
def test_numbers_in_other_files(tmp_path, where):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]>'
        "g (float[n] x, bool b) => (float[n] y) {"
        "y = If(b) <then_branch = h () => (float[n] z) {"
        "c = Constant<value = float[1] {1.0}>() z = Add(x, c)}, "
        "else_branch = i () => (float[n] w) {w = Neg(x)}>}"
    )
    branch = model.graph.node[0].attribute[0].g
    if where == "initializer":
        tensor = branch.initializer.add()
    elif where == "sparse":
        tensor = model.graph.sparse_initializer.add().values
    else:
        tensor = branch.node[0].attribute[0].t
    tensor.name, tensor.data_type = "far", 1
    tensor.ClearField("float_data")
    tensor.dims[:] = [1]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(4))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="'far' are in another file"):
        kp.inspect_export(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("type", "sizes", "reason"),
    [
        (1, [-200, -200], "Negative dimension"),
        (8, [20_000], "STRING data"),
        (999, [40_000], "no known type: 999"),
    ],
)
def test_a_large_weight_that_is_none(tmp_path, type, sizes, reason):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]>'
        "g (float[n] x) => (float[n] y) {y = Identity(x)}"
    )
    model.graph.initializer.append(
        onnx.TensorProto(name="w", data_type=type, dims=sizes)
    )
    model.graph.initializer[0].raw_data = bytes(160_000)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=rf"no readable ONNX file: .*{reason}"):
        kp.inspect_export(tmp_path / "m.onnx")
