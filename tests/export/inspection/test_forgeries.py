"""SavedModels whose graphs save, restore or read other files than theirs."""

import shutil

import pytest

import keras_posenc as kp
from keras_posenc_worker.read_saved_model import read_saved_model

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")

from tests.export.edits import graph_of  # noqa: E402


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A SavedModel with weights, and a table that comes from its asset."""
    keras = pytest.importorskip("keras")
    base = tmp_path_factory.mktemp("vocabulary")
    (base / "words.txt").write_text("one\ntwo\n")
    words = keras.Input((None,), dtype="string", name="words")
    lookup = keras.layers.StringLookup(vocabulary=str(base / "words.txt"))
    vectors = keras.layers.Embedding(4, 4)(lookup(words))
    model = keras.Model(words, keras.layers.Dense(2)(vectors))
    return kp.export_saved_model(
        model, base / "model", verify=False, verbose=False
    ).path


def only(nodes, **fields):
    """The node with these fields."""
    (node,) = (
        node
        for node in nodes
        if all(getattr(node, name) == value for name, value in fields.items())
    )
    return node


def called(graph, name):
    """A node of the graph, and the function that it calls."""
    node = only(graph.graph_def.node, name=name.partition(":")[0])
    (function,) = (
        each
        for each in graph.graph_def.library.function
        if each.signature.name == node.attr["f"].func.name
    )
    return node, function


def saves(graph):
    return called(graph, graph.saver_def.save_tensor_name)


def restores(graph):
    return called(graph, graph.saver_def.restore_op_name)


def add_path(nodes):
    """Adds the name of a file that is none of the model's."""
    node, value = nodes.add(name="path", op="Const"), tf.make_tensor_proto("/x")
    node.attr["value"].tensor.CopyFrom(value)
    node.attr["dtype"].type = value.dtype
    return node


# ---- What saves and restores


def saved_by_python(graph):
    wrapper = next(
        node.bare_concrete_function
        for node in graph.object_graph_def.nodes
        if node.WhichOneof("kind") == "bare_concrete_function"
    )
    wrapper.concrete_function_name = saves(graph)[1].signature.name


def saved_by_a_client(graph):
    signature = graph.signature_def["serving_default"]
    signature.inputs["path"].name = graph.saver_def.filename_tensor_name
    signature.outputs["saved"].name = f"{saves(graph)[0].name}:0"


def saved_by_the_initializer(graph):
    (info,) = graph.signature_def["__saved_model_init_op"].outputs.values()
    init = only(graph.graph_def.node, name=info.name)
    init.input.append(f"^{saves(graph)[0].name}")


def saved_by_main(graph):
    names = graph.collection_def["saved_model_main_op"].node_list.value
    names[:] = [saves(graph)[0].name]


def saved_by_a_collection(graph):
    name = saves(graph)[0].name.encode()
    graph.collection_def["variables"].bytes_list.value.append(name)


def saved_as_it_is_restored(graph):
    name = graph.saver_def.save_tensor_name.partition(":")[0]
    graph.saver_def.restore_op_name = name


def saved_as_a_tensor_that_is_restored(graph):
    graph.saver_def.restore_op_name = graph.saver_def.save_tensor_name


def saved_before_it_is_restored(graph):
    restores(graph)[0].input.append(f"^{saves(graph)[0].name}")


def saved_by_an_optimizer(graph):
    saves(graph)[1].attr["api_implements"].s = b"anything"


def saved_by_an_attribute_of_an_attribute(graph):
    called_by_an_attribute(graph, saves(graph)[1].signature.name)


def called_by_an_attribute(graph, name):
    node = graph.graph_def.node.add(name="a", op="PartitionedCall")
    node.attr["f"].func.name = "caller"
    node.attr["f"].func.attr["g"].func.name = name
    function = graph.graph_def.library.function.add()
    function.signature.name = "caller"
    call = function.node_def.add(name="call", op="PartitionedCall")
    call.attr["f"].placeholder = "g"


def restored_from_another_path(graph):
    restores(graph)[0].input[0] = add_path(graph.graph_def.node).name


def restored_from_another_output(graph):
    node, _ = restores(graph)
    node.input[0] = f"{node.input[0].partition(':')[0]}:1"


def restored_from_a_node(graph):
    path = graph.saver_def.filename_tensor_name.partition(":")[0]
    only(graph.graph_def.node, name=path).op = "Const"


def restored_from_another_path_within(graph):
    nodes = restores(graph)[1].node_def
    restore = next(node for node in nodes if node.op == "RestoreV2")
    restore.input[0] = f"{add_path(nodes).name}:output:0"


# ---- What a table is read from


def assigned(graph):
    """The node that gives the path of the asset to its variable."""
    return only(graph.graph_def.node, op="AssignVariableOp")


def assigned_to_its_variable(graph):
    assigned(graph).input[1] = add_path(graph.graph_def.node).name


def assigned_a_second_time(graph):
    add_path(graph.graph_def.node)
    again = graph.graph_def.node.add()
    again.CopyFrom(assigned(graph))
    again.name, again.input[0], again.input[1] = "again", "Variable:0", "path"


def assigned_in_part(graph):
    add_path(graph.graph_def.node)
    graph.graph_def.node.add(
        name="again",
        op="ResourceStridedSliceAssign",
        input=["Variable:0", "path", "path", "path", "path"],
    )


def assigned_by_another_handle(graph):
    handle = only(graph.graph_def.node, op="VarHandleOp", name="Variable")
    graph.graph_def.node.add().CopyFrom(handle)
    graph.graph_def.node[-1].name = "other"


def initializer(graph):
    return next(
        f
        for f in graph.graph_def.library.function
        if any(n.op.startswith("InitializeTable") for n in f.node_def)
    )


def passed_to_its_initializer(graph):
    add_path(graph.graph_def.node)
    for node in graph.graph_def.node:
        if node.attr["f"].func.name == initializer(graph).signature.name:
            node.input[0] = "path"


def passed_before_what_is_awaited(graph):
    """Counted from the end, the asset is what the call waits for."""
    add_path(graph.graph_def.node)
    for node in graph.graph_def.node:
        if node.attr["f"].func.name == initializer(graph).signature.name:
            node.input.append(f"^{node.input[0].partition(':')[0]}")
            node.input[0] = "path"


def passed_by_an_attribute_of_an_attribute(graph):
    called_by_an_attribute(graph, initializer(graph).signature.name)


def passed_by_an_optimizer(graph):
    initializer(graph).attr["api_implements"].s = b"anything"


def bound_in_python(graph):
    add_path(graph.graph_def.node)
    for node in graph.object_graph_def.nodes:
        if node.WhichOneof("kind") == "asset":
            node.constant.operation = "path"


def constant_in_its_place(graph):
    name = graph.asset_file_def[0].tensor_info.name.partition(":")[0]
    asset = only(graph.graph_def.node, name=name)
    asset.CopyFrom(add_path(graph.graph_def.node))
    asset.name = name


def sent_by_a_client(graph):
    info = graph.asset_file_def[0].tensor_info
    inputs = graph.signature_def["serving_default"].inputs
    inputs["path"].name, inputs["path"].dtype = info.name, 7


FORGERIES = [
    forge
    for name, forge in globals().items()
    if name.startswith(("saved_", "restored_", "assigned_", "passed_"))
]
FORGERIES += [bound_in_python, constant_in_its_place, sent_by_a_client]


def test_forged_graphs(exported, tmp_path):
    assert read_saved_model(exported)["unsafe"] == []
    assert len(FORGERIES) == 25
    for forge in FORGERIES:
        folder = shutil.copytree(exported, tmp_path / forge.__name__)
        with graph_of(folder) as graph:
            forge(graph)
        operators = {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}
        if not forge.__name__.startswith(("saved", "restored")):
            operators = {"InitializeTableFromTextFileV2"}
        found = read_saved_model(folder)["unsafe"]
        assert found, forge
        assert {*found} <= operators, forge


def test_prints_to_a_file(exported, tmp_path):
    """... that the node names, or what calls its function."""
    for field, value in ("s", b"file:///x"), ("placeholder", "stream"):
        folder = shutil.copytree(exported, tmp_path / field)
        with graph_of(folder) as graph:
            node = graph.graph_def.node.add(name="print", op="PrintV2")
            setattr(node.attr["output_stream"], field, value)
        assert read_saved_model(folder)["unsafe"] == ["PrintV2"]


def test_a_second_graph(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "1")
    file = folder / "saved_model.pb"
    file.write_bytes(2 * file.read_bytes())  # repeated fields add up
    with pytest.raises(ValueError, match="must hold one graph"):
        read_saved_model(folder)
