"""Two ONNX graphs are compared by what they compute."""

import pytest

from keras_posenc_worker.comparing import onnx_comparison

onnx = pytest.importorskip("onnx")

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
def compare(tmp_path):
    def run(text, version=18, change=None, writer=None):
        paths = []
        for name, graph, opset in (
            ("one", GRAPH, 18),
            ("other", text, version),
        ):
            model = onnx.parser.parse_model(
                f'<ir_version: 9, opset_import: ["": {opset}]>'
                f"g (float[2] x, bool b) => (float[2] y) {graph}"
            )
            if change is not None and name == "other":
                change(model)
            if writer is not None and name == "other":
                model.producer_name = writer
            paths.append(str(tmp_path / name))
            onnx.save(model, paths[-1])
        found = onnx_comparison.main(*paths, ["w"])
        assert found.pop("writer") == (writer or "")
        return found

    return run


def test_names_and_order_do_not_matter(compare):
    assert compare(
        """
        <float k = {0.5}, float[2] weight = {1.0, 2.0}, float[2] more = {3, 4}>
        {
            i = Identity(x)
            p = Mul(i, weight)
            unused = Neg(more)
            q = Sub(p, k)
            y = If(b) <
                then_branch = f () => (float[2] r) {r = Sub(q, weight)},
                else_branch = f () => (float[2] v) {
                    j = Identity(q) v = Softmax <axis: int = 0>(j)}
            >
        }
        """
    ) == {"weights": [], "constants": [], "rounding": [], "graph": None}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("{1.0, 2.0}", "{1.0, 2.0000002}", {"weights": ["w"]}),
        ("{0.5}", "{0.75}", {"constants": ["c is 0.75, not 0.5"]}),
        (
            "float c = {0.5}",
            "float[2] c = {0.5, 0.5}",
            {
                "constants": [
                    "c is float32 of shape (2,), not float32 of shape ()"
                ]
            },
        ),
        ("{0.5}", "{0.50000006}", {"rounding": ...}),
        (
            "axis: int = 0",
            "axis: int = -1",
            {"constants": ["axis of Softmax  is -1, not 0"]},
        ),
        ("Mul(x, w)", "Add(x, w)", {"graph": ...}),
        ("Sub(a, c)", "Sub(c, a)", {"graph": ...}),
        ("Sub(s, w)", "Sub(w, s)", {"graph": ...}),
        # The axes may lie otherwise in another graph.
        ("Mul(x, w)", "Neg(x)", {"graph": ...}),
        ("Mul(x, w)", "Mul(x, v)", {"weights": ["w"]}),
    ],
)
def test_what_differs(compare, old, new, found):
    text = GRAPH.replace(old, new)
    assert text != GRAPH
    got = compare(
        text.replace("<float[2] w", "<float[2] v = {5, 6}, float[2] w")
    )
    got = {key: value for key, value in got.items() if value}
    assert got.keys() == found.keys()
    for key, value in found.items():
        assert value in (..., got[key])


def test_what_the_graph_is_read_by(compare):
    assert "{'': 17}" in compare(GRAPH, version=17, writer="me")["graph"]

    def redefine(model):
        model.functions.append(
            onnx.parser.parse_function(
                '<domain: "", opset_import: ["": 18]>'
                "Mul (x, y) => (z) {z = Add(x, y)}"
            )
        )

    assert "functions" in compare(GRAPH, change=redefine)["graph"]

    def version_twice(model):
        model.opset_import.add(domain="ai.onnx", version=18)

    assert "twice" in compare(GRAPH, change=version_twice)["graph"]

    # An initializer with an input's name is its default.
    def default(model):
        model.graph.initializer.append(
            onnx.helper.make_tensor("x", 1, [2], [0.0, 0.0])
        )

    assert "tensor" in compare(GRAPH, change=default)["graph"]


def test_tensor_that_is_there_twice(compare):
    def twice(model):
        model.graph.initializer.insert(
            0, onnx.helper.make_tensor("c", 1, [], [7.0])
        )

    with pytest.raises(ValueError, match="a tensor is in the file twice"):
        compare(GRAPH, change=twice)


def test_numbers_that_are_drawn_once(compare, monkeypatch):
    draws = (
        "<float[2] w = {{1.0, 2.0}}> {{a = RandomNormalLike(w) "
        "s = RandomNormalLike(w) y = Sub({}, s)}}"
    )
    monkeypatch.setitem(globals(), "GRAPH", draws.format("a"))
    assert compare(draws.format("a"))["graph"] is None
    assert "twice" in compare(draws.format("s"))["graph"]
