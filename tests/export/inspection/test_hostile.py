"""Artifacts from anywhere: a clear error, soon, in little memory."""

import os
import re
import shutil

import pytest

import keras_posenc as kp
from keras_posenc.export import pipeline
from keras_posenc.export.worker_client import Limits
from keras_posenc_worker.formats import litert_schema, pack, unpack

pytestmark = pytest.mark.tensorflow
resource = pytest.importorskip("resource")  # what limits a process
tf = pytest.importorskip("tensorflow")

from tests.export.edits import graph_of  # noqa: E402

# ---- Folders and files


def fifo(folder):
    (folder / "saved_model.pb").unlink()
    os.mkfifo(folder / "saved_model.pb")


def fifo_among_the_assets(folder):
    os.mkfifo(folder / "assets" / "vocabulary.txt")


def link_out(folder):
    (folder / "assets" / "vocabulary.txt").symlink_to("/etc/passwd")


def link_to_a_device(folder):
    (folder / "assets" / "vocabulary.txt").symlink_to("/dev/zero")


def loop_of_folders(folder):
    (folder / "assets" / "again").symlink_to(folder)


def empty(folder):
    (folder / "saved_model.pb").write_bytes(b"")


def huge_and_sparse(folder):
    os.truncate(folder / "saved_model.pb", 2**40)


def millions_of_messages(folder):
    # Two bytes each, and hundreds once parsed: 20 GB.
    (folder / "saved_model.pb").write_bytes(b"\x12\x00" * 50_000_000)


def another_beside(folder):
    (folder / "saved_model.cpb").write_bytes(b"")


def lite_beside(folder):
    (folder / "model.tflite").write_bytes(b"")


def too_many_files(folder):
    for index in range(10_001):
        os.mknod(folder / "assets" / str(index))


def asset_outside(folder, filename="../../../../etc/passwd"):
    with graph_of(folder) as graph:
        asset = graph.asset_file_def.add(filename=filename)
        asset.tensor_info.name = "asset:0"


def asset_of_the_root(folder):
    asset_outside(folder, "/etc/passwd")


def strange_dtype(folder):
    with graph_of(folder) as graph:
        infos = graph.signature_def["serving_default"].inputs
        infos["ids"].dtype = 999


FOLDERS = {
    fifo: "has no saved_model.pb",
    fifo_among_the_assets: r"vocabulary\.txt' is a device",
    link_out: r"vocabulary\.txt' is a link",
    link_to_a_device: r"vocabulary\.txt' is a link",
    loop_of_folders: "again' is a link",
    empty: "is no readable SavedModel: ",
    huge_and_sparse: "that reads it needed more than 704 MiB of memory",
    millions_of_messages: "is no readable SavedModel: ",
    another_beside: r"it has a saved_model\.cpb, which",
    lite_beside: r"it has a model\.tflite, which",
    too_many_files: "more than 10000 files",
    asset_outside: r"'\.\./\.\./\.\./\.\./etc/passwd' is not in the folder of",
    asset_of_the_root: "'/etc/passwd' is not in the folder of assets",
    strange_dtype: "is no readable SavedModel: ",
}


@pytest.fixture
def folder(saved_model, tmp_path):
    """A version of one's own to spoil."""
    shutil.copytree(saved_model.path, tmp_path / "1")
    (tmp_path / "1" / "assets").mkdir(exist_ok=True)
    return tmp_path / "1"


@pytest.mark.parametrize("spoil", FOLDERS, ids=lambda spoil: spoil.__name__)
def test_folder(folder, spoil):
    spoil(folder)
    with pytest.raises(ValueError, match=FOLDERS[spoil]) as caught:
        kp.inspect_export(folder)
    assert str(folder) in str(caught.value)


def test_folder_is_left_alone_by_verify_too(folder, model):
    link_out(folder)
    with pytest.raises(kp.ExportVerificationError, match="is a link"):
        kp.verify_export(folder, model)


def test_version_that_is_a_link_itself(folder, tmp_path):
    # As volumes of Kubernetes are: whoever named it knows where it is.
    (tmp_path / "current").symlink_to(folder)
    assert kp.inspect_export(tmp_path / "current").signatures


@pytest.mark.parametrize("content", ["fifo", "sparse", "vectors"])
def test_litert_file(litert, tmp_path, content):
    path = tmp_path / "model.tflite"
    if content == "fifo":
        os.mkfifo(path)
    elif content == "sparse":
        path.write_bytes(b"\x1c\0\0\0TFL3")
        os.truncate(path, 2**40)
    else:  # a vector of as many subgraphs as there can be
        path.write_bytes(b"\x1c\0\0\0TFL3" + b"\xff\xff\xff\x7f" * 4096)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        kp.inspect_export(path)


def test_reading_has_its_own_memory_and_a_limit_of_work(folder):
    """A gigabyte and ten seconds are promised; the caller spends neither."""

    def spent():
        return (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            sum(os.times()[:4]),
        )

    millions_of_messages(folder)
    memory, work = spent()
    with pytest.raises(ValueError, match="is no readable SavedModel: "):
        kp.inspect_export(folder)
    memory_after, work_after = spent()
    assert memory_after - memory < 10 * 1024  # KiB
    assert work_after - work < Limits().seconds + 1


# ---- Graphs that do more than compute


def saved_model_of(tmp_path, call):
    class Module(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec((None, None), "int32", name="ids")]
        )
        def __call__(self, ids):
            with tf.control_dependencies([call()]):
                return {"scores": tf.zeros((tf.shape(ids)[0], 3))}

    module = Module()
    tf.saved_model.save(module, tmp_path / "1", signatures=module.__call__)
    return tmp_path / "1"


# Given the file that is not to appear, and one that nobody writes to.
UNSAFE = {
    "WriteFile": lambda out, _: tf.io.write_file(str(out), "written"),
    "ReadFile": lambda _, pipe: tf.io.read_file(str(pipe)),
    "PrintV2": lambda out, _: tf.print("x", output_stream=f"file://{out}"),
    "PyFunc": lambda out, _: tf.numpy_function(
        lambda: out.write_text("run"), [], []
    ),
    "SaveV2": lambda out, _: tf.raw_ops.SaveV2(
        prefix=str(out),
        tensor_names=["x"],
        shape_and_slices=[""],
        tensors=[1.0],
    ),
    "QueueDequeueV2": lambda *_: tf.raw_ops.QueueDequeueV2(
        handle=tf.raw_ops.FIFOQueueV2(component_types=["float32"]),
        component_types=["float32"],
    )[0],
    "ImmutableConst": lambda *_: tf.raw_ops.ImmutableConst(
        dtype=tf.uint8, shape=[8], memory_region_name="/etc/passwd"
    ),
    "DecodeProtoV2": lambda _, pipe: (
        tf.io.decode_proto(
            [b""], "x.Y", ["z"], [tf.int32], descriptor_source=str(pipe)
        ).sizes
    ),
    "DebugNanCount": lambda out, _: tf.raw_ops.DebugNanCount(
        input=1.0, debug_urls=[f"file://{out}"]
    ),
    "Abort": lambda *_: tf.raw_ops.Abort(),
    "InitializeTableFromTextFileV2": lambda _, pipe: (
        tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=tf.raw_ops.HashTableV2(
                key_dtype=tf.string, value_dtype=tf.int64
            ),
            filename=str(pipe),
            key_index=-2,
            value_index=-1,
        )
    ),
    "TextLineDataset": lambda _, pipe: tf.data.TextLineDataset(
        str(pipe)
    ).reduce(0, lambda count, _: count + 1),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("operator", UNSAFE)
def test_graph_that_does_more_than_compute_is_not_run(
    model, tmp_path, operator
):
    out, pipe = tmp_path / "out", tmp_path / "pipe"
    os.mkfifo(pipe)
    path = saved_model_of(tmp_path, lambda: UNSAFE[operator](out, pipe))
    found = kp.inspect_export(path)
    assert operator in found.unsafe_operators
    assert f"UNSAFE, signatures: {', '.join(found.signatures)}" in str(found)
    assert operator in str(found).splitlines()[1]
    with pytest.raises(
        kp.ExportVerificationError, match=f"has the operators .*{operator}"
    ):
        kp.verify_export(path, model)
    assert not out.exists()


def test_models_have_nothing_unsafe(saved_model, litert):
    assert kp.inspect_export(litert.path).unsafe_operators == []
    found = kp.inspect_export(saved_model.path)
    assert found.unsafe_operators == []
    # Though TensorFlow itself saves and restores by such operators.
    assert {"SaveV2", "RestoreV2"} <= found.operators.keys()


@pytest.fixture(scope="module")
def printing(tmp_path_factory):
    """A LiteRT file with an operator of TensorFlow's that writes to a file."""

    def call(x):
        with tf.control_dependencies(
            [tf.print("x", output_stream="file:///dev/null")]
        ):
            return tf.identity(x)

    function = tf.function(
        call, input_signature=[tf.TensorSpec((None, 3), "float32", name="x")]
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], function
    )
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS,
        tf.lite.OpsSet.SELECT_TF_OPS,
    ]
    path = tmp_path_factory.mktemp("printing") / "model.tflite"
    path.write_bytes(converter.convert())
    return path


def test_litert_file_that_writes_to_a_file(printing):
    assert kp.inspect_export(printing).unsafe_operators == ["FlexPrintV2"]


def test_litert_file_that_calls_an_operator_otherwise(printing, tmp_path):
    """What a runtime runs is in the operator's options."""
    path, content = tmp_path / "model.tflite", printing.read_bytes()
    for forged, found in (
        (content.replace(b"FlexPrintV2", b"FlexReverse"), "FlexPrintV2"),
        (content.replace(b"\x12\x07PrintV2", b"\x12\x07Reverse"), "Flex"),
    ):
        assert forged != content
        path.write_bytes(forged)
        assert kp.inspect_export(path).unsafe_operators == [found]


def test_restoring_that_writes(folder):
    with graph_of(folder) as graph:
        # What a server runs to restore variables now saves something.
        graph.saver_def.restore_op_name = (
            graph.saver_def.save_tensor_name.partition(":")[0]
        )
    assert "SaveV2" in kp.inspect_export(folder).unsafe_operators


# ---- Names that a terminal would obey

# A title, a bell, markup of rich that closes nothing, a line and right to left.
NAME = "\x1b]0;title\x07[/b]\nmodel: verified\u202e"


def test_messages_have_no_colours_and_no_commands():
    error = kp.ExportError("\x1b[1mbold\x1b[0m\na bell: \x07")
    assert str(error) == "bold\na bell: \\x07"


def named_saved_model(make, path):
    found = kp.export_saved_model(
        make.embedder(), path, max_length=2, verbose=False
    ).path
    with graph_of(found) as graph:
        signatures = graph.signature_def
        signatures[NAME].CopyFrom(signatures["serving_default"])
        graph.graph_def.node.add(name="x", op=NAME)
    return found


def named_litert(make, path):
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = make.embedder()
    kp.export_litert(
        model,
        path,
        signatures={"serving_default": model, "b": model},
        verify=False,
        verbose=False,
    )
    content = schema.ModelT.InitFromObj(
        schema.Model.GetRootAs(path.read_bytes(), 0)
    )
    content.signatureDefs[1].signatureKey = NAME
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = 32  # a custom one
    code.customCode = NAME
    content.operatorCodes.append(code)
    builder = flatbuffers.Builder(1)
    builder.Finish(content.Pack(builder), b"TFL3")
    path.write_bytes(builder.Output())
    return path


def named_onnx(make, path):
    onnx = pytest.importorskip("onnx")
    kp.export_onnx(make.embedder(), path, verify=False, verbose=False)
    content = onnx.load(path)
    content.graph.name = NAME
    content.graph.node.add(op_type=NAME, domain="own", output=["unused"])
    content.opset_import.add(domain="own", version=1)
    onnx.save(content, path)
    return path


@pytest.mark.parametrize("spoil", [named_saved_model, named_litert, named_onnx])
def test_names_are_no_commands_to_a_terminal(make, tmp_path, spoil):
    ending = {named_litert: ".tflite", named_onnx: ".onnx"}.get(spoil, "")
    path = spoil(make, tmp_path / f"model{ending}")
    found = kp.inspect_export(path)
    assert NAME in found.signatures
    assert NAME in found.unsafe_operators
    assert str(found).count(r"\x1b]0;title\x07[/b]\nmodel: verified\u202e") == 3
    for text in (str(found), found.details()):
        assert text.replace("\n", "").isprintable()
    messages = []
    for allowed in {(), (NAME,) if NAME in found.operators else ()}:
        try:
            report = kp.verify_export(
                path,
                make.embedder(),
                max_length=2,
                allow_operators=allowed,
                verbose=False,
            )
        except (kp.ExportVerificationError, ValueError) as error:
            messages.append(str(error))
        else:
            messages += [str(report), report.details()]
    for message in messages:
        assert r"\x1b]0;title" in message
        assert message.replace("\n", "").isprintable()


# ---- Vocabularies from a file that is no asset


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A verified SavedModel whose table comes from its asset."""
    keras = pytest.importorskip("keras")
    base = tmp_path_factory.mktemp("vocabulary")
    (base / "words.txt").write_text("one\ntwo\n")
    words = keras.Input((None,), dtype="string", name="words")
    lookup = keras.layers.StringLookup(vocabulary=str(base / "words.txt"))
    vectors = keras.layers.Embedding(4, 4)(lookup(words))
    model = keras.Model(words, vectors)
    return kp.export_saved_model(model, base / "model", verbose=False).path


def only(nodes, **fields):
    (node,) = (
        node
        for node in nodes
        if all(getattr(node, name) == value for name, value in fields.items())
    )
    return node


def add_path(graph):
    """A constant in the graph: the name of a file that is no asset."""
    value = tf.make_tensor_proto("/etc/passwd")
    node = graph.graph_def.node.add(name="path", op="Const")
    node.attr["value"].tensor.CopyFrom(value)
    node.attr["dtype"].type = value.dtype


def assigned_to_its_variable(graph):
    add_path(graph)
    assign = only(graph.graph_def.node, op="AssignVariableOp")
    assign.input[1] = "path"


def assigned_a_second_time(graph):
    add_path(graph)
    assign = only(graph.graph_def.node, op="AssignVariableOp")
    again = graph.graph_def.node.add()
    again.CopyFrom(assign)
    again.name, again.input[0], again.input[1] = "again", "Variable:0", "path"


def assigned_by_another_handle(graph):
    handle = only(graph.graph_def.node, op="VarHandleOp", name="Variable")
    graph.graph_def.node.add().CopyFrom(handle)
    graph.graph_def.node[-1].name = "other"


def passed_to_its_initializer(graph):
    add_path(graph)
    function = next(
        f.signature.name
        for f in graph.graph_def.library.function
        if any(n.op.startswith("InitializeTable") for n in f.node_def)
    )
    for node in graph.graph_def.node:
        if node.attr["f"].func.name == function:
            node.input[0] = "path"


def bound_in_python(graph):
    objects = graph.object_graph_def
    for node in objects.nodes:
        if node.WhichOneof("kind") == "asset":
            add_path(graph)
            node.constant.operation = "path"


def constant_in_its_place(graph):
    name = graph.asset_file_def[0].tensor_info.name.partition(":")[0]
    add_path(graph)
    asset = only(graph.graph_def.node, name=name)
    asset.CopyFrom(graph.graph_def.node[-1])
    asset.name = name


def sent_by_a_client(graph):
    info = graph.asset_file_def[0].tensor_info
    inputs = graph.signature_def["serving_default"].inputs
    inputs["path"].name, inputs["path"].dtype = info.name, 7


@pytest.mark.parametrize(
    "spoil",
    [
        assigned_to_its_variable,
        assigned_a_second_time,
        assigned_by_another_handle,
        passed_to_its_initializer,
        bound_in_python,
        constant_in_its_place,
        sent_by_a_client,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_vocabulary_that_is_no_asset(vocabulary, model, tmp_path, spoil):
    assert kp.inspect_export(vocabulary).unsafe_operators == []
    shutil.copytree(vocabulary, tmp_path / "1")
    with graph_of(tmp_path / "1") as graph:
        spoil(graph)
    operators = ["InitializeTableFromTextFileV2"]
    assert kp.inspect_export(tmp_path / "1").unsafe_operators == operators
    with pytest.raises(kp.ExportVerificationError, match=operators[0]):
        kp.verify_export(tmp_path / "1", model)


@pytest.mark.parametrize("verify", [True, False])
def test_model_that_does_more_than_compute_is_not_published(
    tmp_path, contents, verify
):
    import keras

    class Diary(keras.layers.Layer):
        def call(self, x):
            with tf.control_dependencies(
                [tf.io.write_file(str(tmp_path / "diary"), "called")]
            ):
                return tf.identity(x)

        def compute_output_shape(self, shape):
            return shape

    model = keras.Sequential([keras.Input((2,), name="x"), Diary()])
    with pytest.raises(kp.ExportVerificationError, match="WriteFile"):
        kp.export_saved_model(
            model, tmp_path / "out", verify=verify, verbose=False
        )
    assert not (tmp_path / "out").exists()


def test_runtime_that_never_ends(model, tmp_path, monkeypatch):
    path = saved_model_of(
        tmp_path,
        lambda: tf.while_loop(
            lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)]
        )[0],
    )
    limits_of = pipeline.limits_of

    def few_seconds(reference, inspection):
        if reference is None:  # to load it
            return limits_of(reference, inspection)
        return Limits(seconds=1)

    monkeypatch.setattr(pipeline, "limits_of", few_seconds)
    with pytest.raises(
        kp.ExportVerificationError,
        match="The runtime used more than 1 s of processor time while it ran "
        f"'{path}'",
    ):
        kp.verify_export(path, model, max_length=1)


def test_crash_of_the_runtime_is_told_of_the_file(model, litert, tmp_path):
    """LiteRT takes -1 for an optional input, also where none is optional."""
    content = unpack(litert.path.read_bytes())
    (add,) = (
        index
        for index, code in enumerate(content.operatorCodes)
        if code.builtinCode == litert_schema().BuiltinOperator.ADD
    )
    for operator in content.subgraphs[0].operators:
        if operator.opcodeIndex == add:
            operator.inputs = [-1] * len(operator.inputs)
    path = tmp_path / "model.tflite"
    path.write_bytes(pack(content))
    with pytest.raises(
        kp.ExportVerificationError,
        match=f"The runtime was killed by SIGSEGV while it ran '{path}'",
    ):
        kp.verify_export(path, model, max_length=2)
