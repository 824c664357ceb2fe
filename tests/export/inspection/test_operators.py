"""The operators that an artifact may have do nothing but compute."""

import re
import shutil

import pytest

import keras_posenc as kp
from keras_posenc.export.operators import ALLOWED, BY_PLACE

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


def test_what_no_name_tells_is_refused():
    """What an audit ran, and found to write, wait or call."""
    names = {
        *("DumpTensor", "CalibrationStatisticsSaver", "RpcClient", "RpcCall"),
        *("FixedUnigramCandidateSampler", "Skipgram", "SleepOp", "PyFunc"),
        *("ResourceAccumulatorTakeGradient", "WriteFile", "DecodeProtoV2"),
        *("EncodeProto", "XlaCallModule", "LMDBReader", "FIFOQueueV2"),
        *("BarrierTakeMany", "CollectiveReduceV2", "_Recv", "_HostRecv"),
        *("SymbolicGradient", "GetSessionTensor", "Abort", "EagerPyFunc"),
    }
    assert names <= registered()
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
        allow_operators=["Timestamp"],
    )
    assert report.passed
    assert "no record of an export or a verification fits" in str(report)


def test_operators_that_are_none(folder, model):
    with pytest.raises(ValueError, match=r"^`allow_operators` must be a list"):
        kp.verify_export(folder, model, allow_operators="Timestamp")


def test_function_that_is_not_there(folder):
    with graph_of(folder) as graph:
        node = graph.graph_def.node.add(name="call", op="PartitionedCall")
        node.attr["f"].func.name = "ReadFile"
    assert kp.inspect_export(folder).unsafe_operators == ["ReadFile"]
