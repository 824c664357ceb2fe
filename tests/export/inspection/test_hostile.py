"""Artifacts from anywhere: a clear error, soon, in little memory."""

import os
import re
import shutil

import pytest

import keras_posenc as kp
from keras_posenc.export import regular_files
from keras_posenc.export.worker_client import Limits
from keras_posenc_worker.formats import litert_schema, pack, unpack

pytestmark = pytest.mark.tensorflow
resource = pytest.importorskip("resource")  # what limits a process
tf = pytest.importorskip("tensorflow")

from tests.export.files import graph_of  # noqa: E402

# ---- Folders and files


def change_dtype(folder):
    with graph_of(folder) as graph:
        infos = graph.signature_def["serving_default"].inputs
        infos["ids"].dtype = 999


def add_files(folder):
    for index in range(101):
        os.mknod(folder / "assets" / str(index))


FOLDERS = {
    r"vocabulary\.txt' is a device": lambda folder: os.mkfifo(
        folder / "assets" / "vocabulary.txt"
    ),
    r"vocabulary\.txt' is a link": lambda folder: (
        folder / "assets" / "vocabulary.txt"
    ).symlink_to("/dev/zero"),
    "that reads it needed more than 704 MiB of memory": lambda folder: (
        os.truncate(folder / "saved_model.pb", 2**40)
    ),
    "more than 100 files": add_files,
    "is no readable SavedModel: ": change_dtype,
}


@pytest.fixture
def folder(saved_model, tmp_path):
    """A version of one's own to spoil."""
    shutil.copytree(saved_model.path, tmp_path / "1")
    (tmp_path / "1" / "assets").mkdir(exist_ok=True)
    return tmp_path / "1"


@pytest.mark.parametrize("message", FOLDERS)
def test_folder(folder, message, monkeypatch):
    monkeypatch.setattr(regular_files, "_MOST_FILES", 100)
    FOLDERS[message](folder)
    with pytest.raises(ValueError, match=message) as caught:
        kp.inspect_export(folder)
    assert str(folder) in str(caught.value)


def test_version_that_is_a_link_itself(folder, tmp_path):
    # As volumes of Kubernetes are: whoever named it knows where it is.
    (tmp_path / "current").symlink_to(folder)
    assert kp.inspect_export(tmp_path / "current").signatures


def test_litert_file(tmp_path):
    """A sparse one, and a vector of as many subgraphs as there can be."""
    path = tmp_path / "model.tflite"
    for after, size in (b"", 2**40), (b"\xff\xff\xff\x7f" * 4096, 2**14 + 8):
        path.write_bytes(b"\x1c\0\0\0TFL3" + after)
        os.truncate(path, size)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            kp.inspect_export(path)


def test_reading_has_its_own_memory_and_a_limit_of_work(folder, plain_workers):
    """A gigabyte and ten seconds are promised; the caller spends neither."""

    def spent():
        return (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            sum(os.times()[:4]),
        )

    # Two bytes each, and hundreds once parsed: 4 GB.
    (folder / "saved_model.pb").write_bytes(b"\x12\x00" * 10_000_000)
    memory, work = spent()
    with pytest.raises(ValueError, match="is no readable SavedModel: "):
        kp.inspect_export(folder)
    memory_after, work_after = spent()
    assert memory_after - memory < 10 * 1024  # KiB
    assert work_after - work < Limits().seconds + 1


# ---- Graphs that do more than compute


def test_graph_that_does_more_than_compute_is_not_run(model, tmp_path):
    out, path = tmp_path / "out", tmp_path / "1"
    spec = tf.TensorSpec((None, None), "int32", name="ids")

    @tf.function(input_signature=[spec])
    def serve(ids):
        with tf.control_dependencies([tf.io.write_file(str(out), "written")]):
            return {"scores": tf.zeros((tf.shape(ids)[0], 3))}

    tf.saved_model.save(tf.Module(), path, signatures=serve)
    found = kp.inspect_export(path)
    assert found.unsafe_operators == ["WriteFile"]
    assert f"UNSAFE, signatures: {', '.join(found.signatures)}" in str(found)
    assert "WriteFile" in str(found).splitlines()[1]
    with pytest.raises(
        kp.ExportVerificationError, match="has the operators WriteFile"
    ):
        kp.verify_export(path, model)
    assert not out.exists()


def test_litert_file_with_an_operator_of_tensorflow(litert, tmp_path):
    content = unpack(litert.path.read_bytes())
    content.operatorCodes[0].customCode = b"FlexPrintV2"
    (tmp_path / "m.tflite").write_bytes(pack(content))
    found = kp.inspect_export(tmp_path / "m.tflite")
    assert found.unsafe_operators == found.foreign_operators == ["FlexPrintV2"]


# ---- Names that a terminal would obey

# A title, a bell, markup of rich that closes nothing, a line and right to left.
NAME = "\x1b]0;title\x07[/b]\nmodel: verified\u202e"


def test_messages_have_no_colors_and_no_commands():
    error = kp.ExportError("\x1b[1mbold\x1b[0m\na bell: \x07")
    assert str(error) == "bold\na bell: \\x07"


def test_names_are_no_commands_to_a_terminal(folder, model):
    with graph_of(folder) as graph:
        signatures = graph.signature_def
        signatures[NAME].CopyFrom(signatures["serving_default"])
        graph.graph_def.node.add(name="x", op=NAME)
    found = kp.inspect_export(folder)
    assert NAME in found.signatures
    assert NAME in found.unsafe_operators
    shown = r"\x1b]0;title\x07[/b]\nmodel: verified\u202e"
    assert str(found).count(shown) == 3
    for text in (str(found), found.details()):
        assert text.replace("\n", "").isprintable()
    for allowed in ((), (NAME,)):
        with pytest.raises((kp.ExportVerificationError, ValueError)) as caught:
            kp.verify_export(
                folder,
                model,
                max_length=2,
                allow_operators=allowed,
                verbose=False,
            )
        assert shown[:13] in str(caught.value)
        assert str(caught.value).replace("\n", "").isprintable()


def test_model_that_does_more_than_compute_is_not_published(tmp_path):
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
            model, tmp_path / "out", verify=False, verbose=False
        )
    assert not (tmp_path / "out").exists()


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
