"""A SavedModel is one model to servers, to Python, and as its own model.

One export, and edits of it by protobuf: each must be refused.
"""

import copy
import inspect
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

from keras import layers  # noqa: E402
from keras_posenc.export.graphs.contents import compare_contents, contents_of  # noqa: E402
from keras_posenc_worker.saved_model_contents import (  # noqa: E402
    UNNAMED,
    Disagreement,
    check_loading,
)
from tensorflow.core.protobuf import config_pb2  # noqa: E402
from tensorflow.python.saved_model.nested_structure_coder import (  # noqa: E402
    encode_structure,
)

from keras_posenc.export.graphs.shared_layers import trace_all  # noqa: E402
from keras_posenc.export.signatures.resolve import (  # noqa: E402
    resolve_signatures,
)
from keras_posenc_worker import read_saved_model, session  # noqa: E402
from tests.export.edits import graph_of, message_of  # noqa: E402

DEFAULT, OTHER = "serving_default", "other"
INPUTS = {
    "first": np.array([[1, 2]], "int32"),
    "second": np.array([[3, 4]], "int32"),
    "words": np.array([[b"one", b"two"]], object),
}


@pytest.fixture(scope="module")
def signatures():
    """Two models of the same inputs and outputs, and of the same weights."""
    keras.utils.set_random_seed(0)
    first, second = (
        keras.Input((None,), dtype="int32", name=name)
        for name in ("first", "second")
    )
    words = keras.Input((None,), dtype="string", name="words")
    lookup = layers.StringLookup(vocabulary=["one", "two", "three"])
    left = layers.Embedding(50, 4, name="left")(first)
    right = layers.Embedding(50, 4, name="right")(second)
    known = layers.Embedding(4, 4, name="known")(lookup(words))
    normed = layers.LayerNormalization(epsilon=1e-3)(left + known)
    inputs = [first, second, words]
    return {
        DEFAULT: keras.Model(inputs, {"one": normed, "two": right}),
        OTHER: keras.Model(inputs, {"one": right, "two": normed}),
    }


@pytest.fixture(scope="module")
def export(signatures, tmp_path_factory):
    return kp.export_saved_model(
        signatures[DEFAULT],
        tmp_path_factory.mktemp("readers") / "model",
        signatures=signatures,
        max_length=2,
        verbose=False,
    ).path


@pytest.fixture(scope="module")
def wanted(signatures):
    resolved = resolve_signatures(signatures[DEFAULT], signatures)
    return contents_of(resolved, trace_all(resolved))


@pytest.fixture
def folder(export, tmp_path):
    return Path(shutil.copytree(export, tmp_path / "1"))


def judge(folder, signatures, wanted):
    """What the worker and `verify` do, without their processes."""
    assert read_saved_model.read_saved_model(folder)["unsafe"] == []
    loaded = session.load(str(folder))
    for name, model in signatures.items():
        expected = model({k: tf.constant(v) for k, v in INPUTS.items()})
        outputs = loaded.runners[name](INPUTS)
        for key, value in expected.items():
            np.testing.assert_allclose(outputs[key], value, atol=1e-5)
    different_values, different_graph, not_compared = compare_contents(
        wanted, loaded.contents
    )
    assert not_compared == []
    assert not different_values + different_graph, (
        different_values + different_graph
    )


def test_planning_runs_nothing(tmp_path):
    counter = tf.Module()
    counter.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([], "int32", name="step")])
    def step(step):
        return {"count": counter.count.assign_add(step)}

    tf.saved_model.save(counter, str(tmp_path), signatures=step)
    loaded = session.load(str(tmp_path), will_run=True)
    for count in (1, 2):
        outputs = loaded.runners[DEFAULT]({"step": np.int32(1)})
        assert outputs["count"] == count


# ---- Edits of the graph


def node_of(graph, signature=DEFAULT):
    name = graph.signature_def[signature].outputs["one"].name
    return named(graph, name.partition(":")[0])


def named(graph, name):
    return next(node for node in graph.graph_def.node if node.name == name)


def swap(one, other, field):
    mine, others = getattr(one, field), getattr(other, field)
    setattr(one, field, others)
    setattr(other, field, mine)


def swap_items(items, one, other):
    items[one], items[other] = items[other], items[one]


def function_of(graph, operator):
    """The function of the library that has an operator."""
    return next(
        function
        for function in graph.graph_def.library.function
        if any(node.op == operator for node in function.node_def)
    )


def add_constant(graph, value, name="forged"):
    tensor = tf.make_tensor_proto(value)
    node = graph.graph_def.node.add(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(tensor)
    node.attr["dtype"].type = tensor.dtype
    return node


def add_assignment(graph):
    """A node that sets the weights `left` to zeros."""
    add_constant(graph, np.zeros((50, 4), "float32"))
    handle = next(
        node.name
        for node in graph.graph_def.node
        if node.op == "VarHandleOp" and "left" in node.name
    )
    node = graph.graph_def.node.add(name="assign", op="AssignVariableOp")
    node.input.extend([handle, "forged"])
    node.attr["dtype"].type = 1


def outputs_swapped(graph):
    outputs = graph.signature_def[DEFAULT].outputs
    swap(outputs["one"], outputs["two"], "name")


def results_swapped(graph):
    called = node_of(graph).attr["f"].func
    function = next(
        f
        for f in graph.graph_def.library.function
        if f.signature.name == called.name
    )
    forged = graph.graph_def.library.function.add()
    forged.CopyFrom(function)
    forged.signature.name = called.name = "forged"
    swap_items(forged.ret, *(arg.name for arg in forged.signature.output_arg))


def restored_swapped(graph):
    function = function_of(graph, "RestoreV2")
    assigned = [n for n in function.node_def if n.op == "AssignVariableOp"]
    of = {name: node for node in assigned for name in node.input}
    left, right = (
        next(node for name, node in of.items() if word in name)
        for word in ("left", "right")
    )
    swap_items_of(left, right)


def swap_items_of(left, right):
    left.input[1], right.input[1] = right.input[1], left.input[1]


def inputs_swapped(graph):
    inputs = graph.signature_def[DEFAULT].inputs
    swap(inputs["first"], inputs["second"], "name")


def arguments_swapped(graph):
    swap_items(node_of(graph).input, 0, 1)


def captured(graph, word):
    node = node_of(graph)
    return next(i for i, name in enumerate(node.input) if word in name)


def weights_swapped_for_servers(graph):
    node = node_of(graph)
    swap_items(node.input, captured(graph, "left"), captured(graph, "right"))


def weights_swapped_for_python(graph):
    node, objects = node_of(graph), graph.object_graph_def
    bound = objects.concrete_functions[node.attr["f"].func.name].bound_inputs
    count = len(node.input) - len(bound)
    swap_items(
        bound,
        captured(graph, "left") - count,
        captured(graph, "right") - count,
    )


def weights_swapped_for_all(graph):
    weights_swapped_for_servers(graph)
    weights_swapped_for_python(graph)


def initialized_otherwise(graph):
    add_assignment(graph)
    init = graph.signature_def["__saved_model_init_op"].outputs
    (info,) = init.values()
    named(graph, info.name).input.append("^assign")


def assigned_as_it_is_initialized(graph):
    """The value that it has, here: elsewhere it may be another one."""
    nodes = graph.graph_def.node
    handle = next(node for node in nodes if node.op == "VarHandleOp")
    read = nodes.add(name="read_again", op="ReadVariableOp")
    assign = nodes.add(name="assign_again", op="AssignVariableOp")
    for node in (read, assign):
        node.input.append(handle.name)
        node.attr["dtype"].CopyFrom(handle.attr["dtype"])
    assign.input.append(read.name)
    (info,) = graph.signature_def["__saved_model_init_op"].outputs.values()
    named(graph, info.name).input.append("^assign_again")


def restored_by_two_handles(graph):
    nodes = graph.graph_def.node
    handle = next(node for node in nodes if node.op == "VarHandleOp")
    other = nodes.add()
    other.CopyFrom(handle)
    other.name = "same_variable"
    shared = handle.attr["shared_name"].s or handle.name.encode()
    other.attr["shared_name"].s = shared


def another_initializer(graph):
    graph.graph_def.node.add(name="other_init", op="NoOp")
    graph.signature_def["__saved_model_init_op"].outputs[
        "__saved_model_init_op"
    ].name = "other_init"


def assigned_by_each_request(graph):
    add_assignment(graph)
    node_of(graph).input.append("^assign")


def assigned_before_an_input(graph):
    add_assignment(graph)
    named(graph, node_of(graph).input[0]).input.append("^assign")


def words_of(graph):
    return next(
        node
        for node in graph.graph_def.node
        if node.op == "Const"
        and [*node.attr["value"].tensor.string_val]
        == [b"one", b"two", b"three"]
    )


def other_words(graph):
    swap_items(words_of(graph).attr["value"].tensor.string_val, 1, 2)


def other_words_for_servers(graph):
    words = words_of(graph)
    forged = graph.graph_def.node.add()
    forged.CopyFrom(words)
    forged.name = "forged"
    swap_items(forged.attr["value"].tensor.string_val, 1, 2)
    for node in graph.graph_def.node:
        for index, name in enumerate(node.input):
            if name == words.name and node.op.endswith("PartitionedCall"):
                node.input[index] = "forged"


def one_variable_twice(graph):
    left, right = (
        next(
            node
            for node in graph.graph_def.node
            if node.op == "VarHandleOp" and word in node.name
        )
        for word in ("left", "right")
    )
    left.attr["shared_name"].CopyFrom(right.attr["shared_name"])


def node_twice(graph):
    graph.graph_def.node.add().CopyFrom(node_of(graph))


def other_tags(graph):
    graph.meta_info_def.tags.append("gpu")


def other_shape(graph):
    info = graph.signature_def[DEFAULT].inputs["first"]
    info.tensor_shape.dim[0].size = 8


def other_shape_of_an_output(graph):
    info = graph.signature_def[DEFAULT].outputs["one"]
    info.tensor_shape.dim[0].size = 8


def other_dtype(graph):
    graph.signature_def[DEFAULT].inputs["first"].dtype = 9


def default_input(graph):
    graph.signature_def[DEFAULT].defaults["first"].CopyFrom(
        tf.make_tensor_proto([[7]], tf.int32)
    )


def other_method(graph):
    graph.signature_def[DEFAULT].method_name = "tensorflow/serving/classify"


def signatures_swapped(graph):
    one = copy.deepcopy(graph.signature_def[DEFAULT])
    graph.signature_def[DEFAULT].CopyFrom(graph.signature_def[OTHER])
    graph.signature_def[OTHER].CopyFrom(one)


def signature_for_servers_alone(graph):
    graph.signature_def["more"].CopyFrom(graph.signature_def[DEFAULT])


def signature_for_python_alone(graph):
    del graph.signature_def[OTHER]


def other_epsilon(graph):
    tensor, *_ = (  # of one norm of several
        node.attr["value"].tensor
        for function in graph.graph_def.library.function
        for node in function.node_def
        if node.op == "Const"
        and np.isclose(node.attr["value"].tensor.float_val or [0], 1e-3).all()
    )
    tensor.float_val[0] = 1e-2


def another_placeholder(graph):
    """A default takes the place of what a client sends."""
    node = named(graph, node_of(graph).input[0])
    add_constant(graph, np.array([[7]], "int32"))
    node.op = "PlaceholderWithDefault"
    node.input.append("forged")


def gather_of(graph, word):
    """The function that a layer of two signatures is, and its lookup."""
    functions = graph.graph_def.library.function
    name = next(
        node.attr["f"].func.name
        for function in functions
        for node in function.node_def
        if node.op.endswith("PartitionedCall") and f"/{word}" in node.name
    )
    (body,) = (each for each in functions if each.signature.name == name)
    return body, next(
        node
        for node in body.node_def
        if node.op in ("GatherV2", "ResourceGather")
    )


def other_ids_now_and_then(graph):
    """No constant is added: what decides are the ids themselves."""
    function, gather = gather_of(graph, "left")
    ids = gather.input[1]
    node = function.node_def.add(name="forged", op="Abs", input=[ids])
    node.attr["T"].type = 3
    gather.input[1] = "forged:y:0"


def body_of(graph):
    (name,) = {
        node.attr["f"].func.name
        for function in graph.graph_def.library.function
        if function.signature.name == node_of(graph).attr["f"].func.name
        for node in function.node_def
        if node.op.endswith("PartitionedCall")
    }
    return next(
        function
        for function in graph.graph_def.library.function
        if function.signature.name == name
    )


def assigned_beside_the_outputs(graph):
    """A request would change the outputs of the next one."""
    body, _ = gather_of(graph, "left")
    handle = next(
        node.input[0] for node in body.node_def if node.op == "ReadVariableOp"
    )
    read = body.node_def.add(name="forged", op="ReadVariableOp", input=[handle])
    assign = body.node_def.add(
        name="assign", op="AssignVariableOp", input=[handle, "forged:value:0"]
    )
    for node in (read, assign):
        node.attr["dtype"].type = 1
    body.control_ret["assign"] = "assign"
    body.signature.control_output.append("assign")


def replaced_by_the_optimizer(graph):
    """What is called has a twin, which a server's optimizer may prefer."""
    body = body_of(graph)
    body.attr["api_implements"].s = b"forged"
    twin = graph.graph_def.library.function.add()
    twin.CopyFrom(body)
    twin.signature.name = "twin"
    twin.attr["api_preferred_device"].s = b"TPU"


def run_by_another_optimizer(graph):
    config = config_pb2.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.auto_mixed_precision_onednn_bfloat16 = 1
    node = node_of(graph)
    node.attr["config_proto"].s = config.SerializeToString()


def run_elsewhere(graph):
    node_of(graph).device = "/device:GPU:1"  # where there is one


def drawn_as_it_is_loaded(graph):
    """Now and then, as often as its author likes, it is another model."""
    add_constant(graph, np.array([1], "int32"))
    draw = graph.graph_def.node.add(
        name="draw", op="RandomUniform", input=["forged"]
    )
    draw.attr["dtype"].type, draw.attr["T"].type = 1, 3
    init = graph.signature_def["__saved_model_init_op"].outputs
    (info,) = init.values()
    named(graph, info.name).input.append("^draw")


def python_signature(graph):
    """The object by which Python calls the default signature."""
    objects = graph.object_graph_def.nodes
    node = objects[0]
    for name in ("signatures", DEFAULT):
        (index,) = (c.node_id for c in node.children if c.local_name == name)
        node = objects[index]
    return node.bare_concrete_function


def arguments_swapped_for_python(graph):
    """TensorFlow binds inputs by this, where a file has it."""
    spec = python_signature(graph).function_spec
    arguments = inspect.FullArgSpec(
        ["second", "first", "words"], None, None, None, [], None, {}
    )
    spec.fullargspec.CopyFrom(encode_structure(arguments))
    spec.input_signature.CopyFrom(encode_structure(None))


def keywords_swapped_for_python(graph):
    swap_items(python_signature(graph).argument_keywords, 0, 1)


def names_swapped_for_python(graph):
    called = python_signature(graph).concrete_function_name
    function = graph.object_graph_def.concrete_functions[called]
    _, inputs = function.canonicalized_input_signature.tuple_value.values
    one, two = (
        inputs.dict_value.fields[name].tensor_spec_value
        for name in ("first", "second")
    )
    swap(one, two, "name")


def filler_of_python(graph):
    """A copy of the function by which Python fills the table."""
    objects = graph.object_graph_def
    node = next(
        objects.nodes[child.node_id]
        for each in objects.nodes
        if each.WhichOneof("kind") == "resource"
        for child in each.children
        if child.local_name == "_initialize"
    )
    (name,) = node.function.concrete_functions
    forged = graph.graph_def.library.function.add()
    forged.CopyFrom(
        next(
            each
            for each in graph.graph_def.library.function
            if each.signature.name == name
        )
    )
    forged.signature.name = node.function.concrete_functions[0] = "forged"
    objects.concrete_functions["forged"].CopyFrom(
        objects.concrete_functions[name]
    )
    return forged


def other_words_for_python(graph):
    function = filler_of_python(graph)
    fill = next(node for node in function.node_def if "Import" in node.op)
    reverse = function.node_def.add(name="reverse", op="ReverseV2")
    reverse.input.extend([fill.input[1], "axis:output:0"])
    reverse.attr["T"].type, reverse.attr["Tidx"].type = 7, 3
    add_axis(function)
    fill.input[1] = "reverse:output:0"


def drawn_as_python_loads_it(graph):
    function = filler_of_python(graph)
    draw = function.node_def.add(name="draw", op="RandomUniform")
    draw.input.append("axis:output:0")
    draw.attr["dtype"].type, draw.attr["T"].type = 1, 3
    add_axis(function)
    next(n for n in function.node_def if "Import" in n.op).input.append("^draw")


def add_axis(function):
    node = function.node_def.add(name="axis", op="Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([0], tf.int32))
    node.attr["dtype"].type = 3


@pytest.mark.parametrize(
    "edit",
    [
        arguments_swapped_for_python,
        keywords_swapped_for_python,
        names_swapped_for_python,
        other_words_for_python,
        drawn_as_python_loads_it,
        drawn_as_it_is_loaded,
        run_by_another_optimizer,
        run_elsewhere,
        other_ids_now_and_then,
        assigned_beside_the_outputs,
        replaced_by_the_optimizer,
        outputs_swapped,
        results_swapped,
        restored_swapped,
        inputs_swapped,
        arguments_swapped,
        weights_swapped_for_servers,
        weights_swapped_for_python,
        weights_swapped_for_all,
        initialized_otherwise,
        assigned_as_it_is_initialized,
        restored_by_two_handles,
        another_initializer,
        assigned_by_each_request,
        assigned_before_an_input,
        other_words,
        other_words_for_servers,
        one_variable_twice,
        node_twice,
        other_tags,
        other_shape,
        other_shape_of_an_output,
        other_dtype,
        default_input,
        other_method,
        signatures_swapped,
        signature_for_servers_alone,
        signature_for_python_alone,
        other_epsilon,
        another_placeholder,
    ],
    ids=lambda edit: edit.__name__,
)
def test_edit_of_the_graph_is_refused(folder, signatures, wanted, edit):
    before = (folder / "saved_model.pb").read_bytes()
    with graph_of(folder) as graph:
        edit(graph)
    assert (folder / "saved_model.pb").read_bytes() != before
    with pytest.raises((Disagreement, AssertionError, ValueError)):
        judge(folder, signatures, wanted)


def test_tables_of_every_class_are_compared(tmp_path):
    """Some have no method that exports them."""

    @keras.saving.register_keras_serializable("test_readers")
    class Lookup(keras.layers.Layer):
        def __init__(self, last, **options):
            super().__init__(**options)
            pairs = tf.lookup.KeyValueTensorInitializer(
                tf.constant([1, 2, 3], "int64"),
                tf.constant([0, 1, last], "int64"),
            )
            self.table = tf.lookup.StaticVocabularyTable(pairs, 1)

        def call(self, ids):
            return tf.cast(self.table.lookup(tf.cast(ids, "int64")), "float32")

    def contents(last):
        ids = keras.Input((2,), dtype="int32", name="ids")
        model = keras.Model(ids, Lookup(last, name="lookup")(ids))
        resolved = resolve_signatures(model, None)
        return contents_of(resolved, trace_all(resolved))

    one, same, other = map(contents, (2, 2, 3))
    assert compare_contents(one, same) == ([], [], [])
    (words,), _, _ = compare_contents(one, other)
    assert "different values in a lookup table" in words


def test_constants_without_a_name_are_counted():
    def signature(value):
        names = ["a/kernel", UNNAMED, "a/bias", UNNAMED, "b", "c", UNNAMED]
        weights = [(name, f"{value}{i}") for i, name in enumerate(names)]
        return {"weights": weights, "graph": {}, "constants": [], "options": []}

    (words,), _, _ = compare_contents(
        {DEFAULT: signature("x")}, {DEFAULT: signature("y")}
    )
    assert words == (
        "serving_default: different values in a/kernel, a/bias, b, 1 more and "
        "3 constants without a name"
    )


class Words(tf.lookup.TextFileInitializer):
    """The words of a file, or other words by what `chosen` says of its path."""

    def __init__(self, path, chosen=None):
        super().__init__(
            str(path),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.chosen = chosen

    def initialize(self, table):
        if self.chosen is None:
            return super().initialize(table)
        return tf.raw_ops.LookupTableImportV2(
            table_handle=table.resource_handle,
            keys=tf.constant(["one", "two"]),
            values=tf.cast(self.chosen(self._filename), tf.int64),
        )


def table_of(path, chosen, folder):
    path.write_text("one\ntwo\n")
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(Words(path, chosen), -1)

    @tf.function(input_signature=[tf.TensorSpec([None], "string", name="x")])
    def call(x):
        return {"ids": module.table.lookup(x)}

    tf.saved_model.save(module, str(folder), signatures=call)
    return message_of(folder).meta_graphs[0]


@pytest.mark.parametrize("loader", ["servers", "Python"])
def test_words_do_not_depend_on_the_folder(tmp_path, loader):
    def by_folder(path):
        is_other = tf.strings.regex_full_match(path, ".*/elsewhere/.*")
        return tf.where(is_other, [1, 0], [0, 1])

    def by_content(path):
        size = tf.strings.length(tf.io.read_file(path))
        return tf.stack([size, size + 1])

    def only_for(meta):
        if loader == "servers":
            meta.object_graph_def.Clear()
        else:
            del meta.signature_def["__saved_model_init_op"]
            meta.collection_def.clear()
        return meta

    def table(name, chosen):
        found = table_of(tmp_path / "words.txt", chosen, tmp_path / name)
        return only_for(found)

    def by_variable(path):
        kept = {"dtype": tf.string, "shape": [], "shared_name": "kept"}
        handle = tf.raw_ops.VarHandleOp(**kept)
        assigned = tf.raw_ops.AssignVariableOp(resource=handle, value=path)
        with tf.control_dependencies([assigned]):
            other = tf.raw_ops.VarHandleOp(**kept)
            path = tf.raw_ops.ReadVariableOp(resource=other, dtype=tf.string)
        return by_folder(path)

    for chosen in (by_folder, by_variable):
        with pytest.raises(
            Disagreement, match=r"StaticRegexFullMatch computes with the path"
        ):
            check_loading(table(chosen.__name__, chosen))
    for chosen in (None, by_content, lambda path: tf.range(2)):
        check_loading(table(f"{chosen}", chosen))


def test_what_was_not_edited_passes(folder, signatures, wanted):
    judge(folder, signatures, wanted)
    assert session.load(str(folder)).python_functions == []


def test_second_graph_is_refused(folder, signatures, wanted):
    file = folder / "saved_model.pb"
    file.write_bytes(2 * file.read_bytes())  # repeated fields add up
    with pytest.raises(ValueError, match="must hold one graph"):
        judge(folder, signatures, wanted)


def test_what_tensorflow_1_wrote_is_refused(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as opened:
        x = tf.compat.v1.placeholder("float32", (None, 2))
        tf.compat.v1.saved_model.simple_save(
            opened, str(tmp_path / "1"), {"x": x}, {"y": 2 * x}
        )
    with pytest.raises(Disagreement, match="serving_default, and Python none"):
        session.load(str(tmp_path / "1"))


def test_function_of_python_alone_is_listed(folder):
    with graph_of(folder) as graph:
        objects = graph.object_graph_def.nodes
        wrapper = next(
            index
            for index, node in enumerate(objects)
            if node.WhichOneof("kind") == "bare_concrete_function"
        )
        more = objects[0].children.add(local_name="more")
        more.node_id = len(objects)
        objects.add().CopyFrom(objects[wrapper])
    assert session.load(str(folder)).python_functions == ["more"]


def test_function_below_serve_is_listed(folder):
    with graph_of(folder) as graph:
        objects = graph.object_graph_def.nodes
        (serve,) = (
            objects[child.node_id]
            for child in objects[0].children
            if child.local_name == "serve"
        )
        serve.children.add(local_name="more", node_id=len(objects))
        objects.add().bare_concrete_function.CopyFrom(python_signature(graph))
    assert session.load(str(folder)).python_functions == ["serve.more"]


# ---- Edits of the weights


def change_weight(folder, name, change):
    """Writes the checkpoint anew, with one of its tensors changed."""
    prefix = str(folder / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    tensors = {
        key: reader.get_tensor(key)
        for key in reader.get_variable_to_shape_map()
    }
    for key, value in tensors.items():
        if getattr(value, "shape", ()) == (50, 4) and name in named_by(
            folder, key
        ):
            change(value)
    shutil.rmtree(folder / "variables")
    (folder / "variables").mkdir()
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def named_by(folder, key):
    """The name of the variable that a key of the checkpoint is of."""
    (graph,) = message_of(folder).meta_graphs
    objects = graph.object_graph_def.nodes
    node = objects[0]
    for name in key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE").split("/"):
        (child,) = (c for c in node.children if c.local_name == name)
        node = objects[child.node_id]
    return node.variable.name


def low_bits(value):
    value.view("uint32")[3, 1] ^= 0xFF  # of an id among INPUTS


def row_that_no_case_reaches(value):
    value[40] += 1


@pytest.mark.parametrize(
    "change", [low_bits, row_that_no_case_reaches], ids=lambda c: c.__name__
)
def test_changed_weight_is_named(folder, signatures, wanted, change):
    change_weight(folder, "right", change)
    with pytest.raises(AssertionError, match="different values in right/emb"):
        judge(folder, signatures, wanted)


# ---- The whole way


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            results_swapped,
            "signature 'serving_default': output one, output two",
        ),
        (restored_swapped, "with different values"),
    ],
    ids=lambda edit: getattr(edit, "__name__", None),
)
def test_verify_refuses(folder, signatures, edit, message):
    with graph_of(folder) as graph:
        edit(graph)
    with pytest.raises(
        kp.ExportVerificationError,
        match=f"differs between servers and Python: .*{message}",
    ):
        kp.verify(
            signatures[DEFAULT], folder, signatures=signatures, max_length=1
        )


def test_verify_names_changed_weights_and_constants(folder, signatures):
    change_weight(folder, "right", row_that_no_case_reaches)
    with graph_of(folder) as graph:
        other_epsilon(graph)
    report = kp.verify(
        signatures[DEFAULT],
        folder,
        signatures=signatures,
        max_length=1,
        tolerance=100,
    )
    assert not report.passed
    assert report.largest_difference < 100
    assert "different values in right/embeddings" in str(report)
    constant = "constants that are not the model's: float32 [] 0.0099"
    assert constant in str(report)
    with pytest.raises(
        kp.ExportVerificationError, match="values in the file differ"
    ):
        report.require_success()


def test_a_version_that_it_says_excuses_nothing(folder, signatures):
    def verify(**options):
        return kp.verify(
            signatures[DEFAULT],
            folder,
            signatures=signatures,
            max_length=1,
            **options,
        )

    with graph_of(folder) as graph:
        graph.meta_info_def.tensorflow_version = "2.99.0"
    assert ": verified: " in str(verify())  # it is the same graph
    with graph_of(folder) as graph:
        other_ids_now_and_then(graph)
    report = verify()
    assert not report.passed
    _, line = (
        report.different_graph
    )  # of both signatures, which share the layer
    assert re.search("computes (one|two) differently", line)
    assert "TensorFlow 2.99.0 as its writer, and this is" in line
    with pytest.raises(kp.ExportVerificationError, match="export it again"):
        report.require_success()
    report = verify(allow_different_graph=True)
    assert report.passed
    first, *others = str(report).splitlines()
    assert "verified by outputs and weights only, not the graph" in first
    assert any(line in other for other in others)


def test_rollback_refuses(export, folder):
    with graph_of(folder) as graph:
        restored_swapped(graph)
    shutil.copytree(export, folder.parent / "2")
    with pytest.raises(
        kp.ExportVerificationError, match="with different values"
    ):
        kp.rollback(folder.parent, 1, verbose=False)
    assert not (folder.parent / "3").exists()
