"""Exported files only compute: their operators, and where those may be."""

import re
import shutil

import pytest

import keras_posenc as kp
from keras_posenc.export.operators import ALLOWED, BY_PLACE
from keras_posenc_worker.read_saved_model import read_saved_model

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")

from tensorflow.python.framework import op_def_registry  # noqa: E402

from tests.export.files import graph_of  # noqa: E402

# What an operator does with the world is told by the names of what it is given.
_TOLD = re.compile(
    r"file_?names?|files?|file_?pattern|path|dir(ectory)?|.*_dir|.*_path|prefix"
    r"|address|host.*|server.*|.*_server|url|.*_urls?|port|command|protocol"
    r"|memory_region_name|descriptor_source|token|.*_vocab_file|vocab_file"
    r"|ckpt_path|.*checkpoint.*|tensor_names|sleep.*|delay|seconds|timeout.*"
    r"|.*_timeout|queue.*|barrier.*|mutex.*|lock|writer|reader_handle|iterator"
    r"|.*dataset.*|group_key|send_device|recv_device|debug_urls|log_dir"
)


def told_of_the_world(name):
    definition = op_def_registry.get(name)
    if definition is None:
        return False
    names = {each.name for each in (*definition.attr, *definition.input_arg)}
    return any(map(_TOLD.fullmatch, names - {"container", "shared_name"}))


def test_what_reaches_out_is_refused():
    assert told_of_the_world("ReadFile")
    assert not [*filter(told_of_the_world, ALLOWED)]
    # What an audit ran, and found to write, wait or call.
    names = {
        *("DumpTensor", "CalibrationStatisticsSaver", "RpcClient", "RpcCall"),
        *("FixedUnigramCandidateSampler", "Skipgram", "SleepOp", "PyFunc"),
        *("ResourceAccumulatorTakeGradient", "WriteFile", "DecodeProtoV2"),
        *("EncodeProto", "XlaCallModule", "LMDBReader", "FIFOQueueV2"),
        *("BarrierTakeMany", "CollectiveReduceV2", "_Recv", "_HostRecv"),
        *("SymbolicGradient", "GetSessionTensor", "Abort", "EagerPyFunc"),
        *("Batch", "UnbatchGrad", "TPUExecute", "RecordInput", "Stage"),
        *("IteratorGetNext", "OrderedMapPeek", "ImmutableConst", "Timestamp"),
        *("InitializeTableFromTextFileV2", "DebugIdentityV2", "QueueSizeV2"),
    }
    assert all(map(op_def_registry.get, names))  # as they are spelled
    assert not names & (ALLOWED | BY_PLACE)


# ---- An operator in an artifact, wherever it is


@pytest.fixture
def folder(saved_model, tmp_path):
    return shutil.copytree(saved_model.path, tmp_path / "1")


def test_operator_in_a_function_that_nobody_calls(folder, model):
    with graph_of(folder) as graph:
        function = graph.graph_def.library.function.add()
        function.signature.name = "nobody_calls_it"
        function.node_def.add(name="dump", op="DumpTensor")
    assert kp.inspect_export(folder).unsafe_operators == ["DumpTensor"]
    with pytest.raises(
        kp.ExportVerificationError,
        match=r"has the operators DumpTensor\. .*allow_operators="
        r"\['DumpTensor'\]`",
    ):
        kp.verify_export(folder, model)


def test_operator_that_is_allowed_by_name(folder, model):
    with graph_of(folder) as graph:
        graph.graph_def.node.add(name="time", op="Timestamp")
    signatures = {"serving_default": model, "short": (model, {"ids": (1, 4)})}
    report = kp.verify_export(
        folder,
        model,
        signatures=signatures,
        max_length=2,
        allow_operators=["Timestamp"],
    )
    assert report.passed
    assert "no record of an export or a verification fits" in str(report)


def test_function_that_is_not_there(folder):
    with graph_of(folder) as graph:
        node = graph.graph_def.node.add(name="call", op="PartitionedCall")
        node.attr["f"].func.name = "ReadFile"
    assert kp.inspect_export(folder).unsafe_operators == ["ReadFile"]


# ---- What saves, restores and prints


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
    name = saves(graph)[1].signature.name
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


FORGERIES = [
    forge
    for name, forge in globals().items()
    if name.startswith(("saved_by", "saved_as", "saved_before", "restored_"))
]


def test_forged_graphs(saved_model, tmp_path):
    assert read_saved_model(saved_model.path)["unsafe"] == []
    assert len(FORGERIES) == 14
    for forge in FORGERIES:
        folder = shutil.copytree(saved_model.path, tmp_path / forge.__name__)
        with graph_of(folder) as graph:
            forge(graph)
        found = {*read_saved_model(folder)["unsafe"]}
        assert found, forge
        assert found <= {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}, forge


def test_a_second_graph(folder):
    file = folder / "saved_model.pb"
    file.write_bytes(2 * file.read_bytes())  # repeated fields add up
    with pytest.raises(ValueError, match="must hold one graph"):
        read_saved_model(folder)
