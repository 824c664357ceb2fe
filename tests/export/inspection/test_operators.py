"""The operators that an artifact may have do nothing but compute."""

import re
import shutil

import pytest

import keras_posenc as kp
from keras_posenc.export.operators import ALLOWED, BY_PLACE
from keras_posenc_worker.nodes import names_a_file

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")

from tensorflow.python.framework import (  # noqa: E402
    kernels,
    op_def_registry,
)

from tests.export.edits import graph_of  # noqa: E402

# What an operator does with the world is told by the names of what it is given.
_TOLD = re.compile(
    r"file_?names?|files?|file_?pattern|path|dir(ectory)?|.*_dir|.*_path|prefix"
    r"|address|host.*|server.*|.*_server|url|.*_urls?|port|command|protocol"
    r"|memory_region_name|descriptor_source|token|.*_vocab_file|vocab_file"
    r"|ckpt_path|.*checkpoint.*|tensor_names|sleep.*|delay|seconds|timeout.*"
    r"|.*_timeout|queue.*|barrier.*|mutex.*|lock|writer|reader_handle|iterator"
    r"|.*dataset.*|group_key|send_device|recv_device|debug_urls|log_dir"
)
_NAMED = re.compile(
    r"\w*(Py_?Func|Dataset|Iterator|Reader|Summary|Queue|Barrier|Mutex|Rpc"
    r"|Collective|Nccl|TPU|Tpu|Sleep|Stage|Unstage|Send|Recv|Feed|Debug"
    r"|Checkpoint|FileSystem|Session|Timestamp|Remote|Custom|Callback|Python"
    r"|Accumulator|Heartbeat|CallModule|Dump|Saver|File|Save|Restore)\w*"
    r"|Abort|RecordInput|Skipgram|FixedUnigramCandidateSampler|ImmutableConst"
    r"|DecodeProtoV2|EncodeProto|GenerateVocabRemapping|LoadAndRemapMatrix"
    r"|SymbolicGradient|(Ordered)?Map(Peek|Clear|Size|Incomplete)\w*|Batch"
    r"|Unbatch\w*|BatchFunction"
)
_HARMLESS = {"ShardedFilename"}  # it makes a name, and opens nothing


def registered():
    """The operators of this TensorFlow that a processor runs."""
    found = {
        kernel.op
        for kernel in kernels.get_all_registered_kernels().kernel
        if kernel.device_type in ("CPU", "DEFAULT")
    }
    return found | {name for name in dir(tf.raw_ops) if name[0].isupper()}


def told_of_the_world(name):
    definition = op_def_registry.get(name)
    if definition is None:
        return False
    names = [
        each.name
        for each in (*definition.attr, *definition.input_arg)
        if each.name not in ("container", "shared_name")
    ]
    return any(_TOLD.fullmatch(each) for each in names)


def test_what_reaches_out_is_refused():
    names = registered()
    assert len(names) > 1400
    reaching = {
        name
        for name in names
        if _NAMED.fullmatch(name) or told_of_the_world(name)
    }
    assert len(reaching) > 300
    assert sorted((reaching & ALLOWED) - _HARMLESS) == []


@pytest.mark.parametrize(
    "name",
    [
        *("DumpTensor", "CalibrationStatisticsSaver", "RpcClient", "RpcServer"),
        *("RpcServerStart", "RpcCall", "FixedUnigramCandidateSampler"),
        *("Skipgram", "SleepOp", "SleepIdentityOp", "PyFunc", "EagerPyFunc"),
        *("ResourceAccumulatorTakeGradient", "WriteFile", "DecodeProtoV2"),
        *("EncodeProto", "TPUPartitionedCall", "XlaCallModule", "LMDBReader"),
        *("FIFOQueueV2", "BarrierTakeMany", "CollectiveReduceV2", "_Recv"),
        *("SymbolicGradient", "_HostRecv", "GetSessionTensor", "Abort"),
    ],
)
def test_what_the_audit_ran_is_refused(name):
    assert name in registered() or name.startswith("TPU")
    assert name not in ALLOWED | BY_PLACE


def test_internal_operators_are_refused():
    # Those of a name that begins so are made by TensorFlow as it optimizes.
    assert not [name for name in ALLOWED if name.startswith("_")]


def test_every_allowed_operator_is_one():
    unknown = ALLOWED | BY_PLACE
    unknown -= registered()
    # TF-Text's, which are not loaded here.
    assert len(unknown) < 40
    assert {"FastBertNormalize", "WordpieceTokenizeWithOffsets"} <= unknown | (
        registered()
    )


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
        r"\['DumpTensor'\]` \(--allow-op DumpTensor\)",
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
        allow_operators=["Timestamp", "Abort"],
    )
    assert report.passed
    note, _ = report.notes  # and that no record fits the edited file
    assert note.startswith(
        "allowed operators that the file does not have: Abort. "
    )
    assert note in str(report)


@pytest.mark.parametrize(
    ("name", "near"), [("TimeStamp", "Timestamp"), ("MatMull", "MatMul")]
)
def test_operator_that_is_misspelt(folder, model, name, near):
    with graph_of(folder) as graph:
        graph.graph_def.node.add(name="time", op="Timestamp")
    message = f"Received: '{name}', which .* Did you mean '{near}'"
    with pytest.raises(ValueError, match=message):
        kp.verify_export(folder, model, allow_operators=[name])
    # Before the work.
    for export, path in (
        (kp.export_saved_model, "no/such"),
        (kp.export_litert, "no/such.tflite"),
    ):
        with pytest.raises(ValueError, match=message):
            export(model, path, allow_operators=[name])


def test_names_of_operators_are_a_list(folder, model):
    with pytest.raises(ValueError, match="`allow_operators` must be a list"):
        kp.verify_export(folder, model, allow_operators="Timestamp")


def test_function_that_is_not_there(folder):
    with graph_of(folder) as graph:
        node = graph.graph_def.node.add(name="call", op="PartitionedCall")
        node.attr["f"].func.name = "ReadFile"
    assert kp.inspect_export(folder).unsafe_operators == ["ReadFile"]


# ---- What saves and restores variables, and no more


def saver(graph):
    """The node that saves, and the function that it calls."""
    name = graph.saver_def.save_tensor_name.partition(":")[0]
    (node,) = (n for n in graph.graph_def.node if n.name == name)
    (function,) = (
        f
        for f in graph.graph_def.library.function
        if f.signature.name == node.attr["f"].func.name
    )
    return node, function


def only(function, operator):
    (node,) = (n for n in function.node_def if n.op == operator)
    return node


def by_the_object_graph(graph):
    """Python's wrapper is pointed at what saves."""
    _, function = saver(graph)
    objects = graph.object_graph_def
    wrapper = next(
        node.bare_concrete_function
        for node in objects.nodes
        if node.WhichOneof("kind") == "bare_concrete_function"
    )
    wrapper.concrete_function_name = function.signature.name


def by_a_client(graph):
    node, _ = saver(graph)
    signature = graph.signature_def["serving_default"]
    signature.inputs["path"].name = graph.saver_def.filename_tensor_name
    signature.outputs["saved"].name = f"{node.name}:0"


def by_the_initializer(graph):
    node, _ = saver(graph)
    (info,) = graph.signature_def["__saved_model_init_op"].outputs.values()
    (init,) = (n for n in graph.graph_def.node if n.name == info.name)
    init.input.append(f"^{node.name}")


def by_another_node(graph):
    node, _ = saver(graph)
    graph.graph_def.node.add().CopyFrom(node)
    graph.graph_def.node[-1].name = "again"


def to_another_path(graph):
    _, function = saver(graph)
    constant = function.node_def.add(name="path", op="Const")
    value = tf.make_tensor_proto("/tmp/anywhere")
    constant.attr["value"].tensor.CopyFrom(value)
    only(function, "SaveV2").input[0] = "path:output:0"


def to_another_ending(graph):
    _, function = saver(graph)
    for node in function.node_def:
        if [*node.attr["value"].tensor.string_val] == [b"_temp/part"]:
            node.attr["value"].tensor.string_val[0] = b"/../../../anywhere"


def merged_elsewhere(graph):
    _, function = saver(graph)
    merge = only(function, "MergeV2Checkpoints")
    merge.input[1] = only(function, "StringJoin").name + ":output:0"


def from_another_path(graph):
    name = graph.saver_def.restore_op_name
    (node,) = (n for n in graph.graph_def.node if n.name == name)
    path = graph.graph_def.node.add(name="path", op="Const")
    value = tf.make_tensor_proto("/tmp/anywhere")
    path.attr["value"].tensor.CopyFrom(value)
    path.attr["dtype"].type = value.dtype
    node.input[0] = "path"


def restored(graph):
    name = graph.saver_def.restore_op_name
    (node,) = (n for n in graph.graph_def.node if n.name == name)
    (function,) = (
        each
        for each in graph.graph_def.library.function
        if each.signature.name == node.attr["f"].func.name
    )
    assigned = [n for n in function.node_def if n.op == "AssignVariableOp"]
    return node, assigned


def restored_by_chance(graph):
    """One variable twice, and nobody knows in which order."""
    _, (one, two, *_) = restored(graph)
    two.input[0] = one.input[0]


def given_one_variable_twice(graph):
    node, _ = restored(graph)
    node.input[2] = node.input[1]


def with_more_than_it_needs(graph):
    _, function = saver(graph)
    function.node_def.add(name="print", op="PrintV2")


def fed_by_the_graph(graph):
    name = graph.saver_def.filename_tensor_name.partition(":")[0]
    (node,) = (n for n in graph.graph_def.node if n.name == name)
    node.op = "Const"


@pytest.mark.parametrize(
    "edit",
    [
        by_the_object_graph,
        by_a_client,
        by_the_initializer,
        by_another_node,
        to_another_path,
        to_another_ending,
        merged_elsewhere,
        from_another_path,
        restored_by_chance,
        given_one_variable_twice,
        with_more_than_it_needs,
        fed_by_the_graph,
    ],
    ids=lambda edit: edit.__name__,
)
def test_saver_that_is_not_exactly_tensorflows(folder, edit):
    from keras_posenc_worker import read

    assert read.read_saved_model(folder)["unsafe"] == []
    with graph_of(folder) as graph:
        edit(graph)
    found = set(read.read_saved_model(folder)["unsafe"])
    assert found
    assert found <= {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}


def test_printing_to_what_a_function_is_called_with():
    """The file is named by the call: `func.attr` of a node far away."""
    node = tf.compat.v1.NodeDef(op="PrintV2")
    assert not names_a_file(node)
    node.attr["output_stream"].placeholder = "stream"
    assert names_a_file(node)
