"""Artifacts appear whole or not at all."""

import errno
import os
import posix
import subprocess
import sys

import pytest

from keras_posenc.export.errors import ExportError
from keras_posenc.export.publish import (
    as_path,
    publish,
    publish_file,
    staging_in,
    writing_to,
)


def stage(path, text="staged"):
    path.mkdir()
    (path / "saved_model.pb").write_text(text)


# ---- Paths


def test_path_from_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path("path", "~/m.tflite") == tmp_path / "m.tflite"
    assert as_path("path", tmp_path / "~") == tmp_path / "~"
    with pytest.raises(ValueError, match="`path` must be a path"):
        as_path("path", b"~/m.tflite")


# ---- Beside the folder


def test_staged_path_is_hidden_in_the_folder_and_no_version(tmp_path):
    with staging_in(tmp_path) as staged:
        assert not staged.exists()
        assert staged.parent == tmp_path  # so that renaming is one step
        assert staged.name.startswith(".")
        stage(staged)
        assert not any(path.name.isdigit() for path in tmp_path.iterdir())


def test_two_exporters_stage_apart(tmp_path):
    with staging_in(tmp_path) as one, staging_in(tmp_path) as other:
        assert one != other


@pytest.mark.parametrize("as_file", [True, False])
def test_what_was_not_renamed_is_removed(tmp_path, contents, as_file):
    (tmp_path / "earlier").write_text("kept")
    with staging_in(tmp_path) as staged:
        if as_file:
            staged.write_text("half")
        else:
            stage(staged)
            (staged / "variables").mkdir()
    assert contents(tmp_path) == ["earlier"]


@pytest.mark.parametrize(
    "error", [ValueError("no"), ExportError("no"), KeyboardInterrupt()]
)
def test_any_failure_passes_and_leaves_nothing(tmp_path, contents, error):
    def fail():
        with staging_in(tmp_path / "a" / "b") as staged:
            stage(staged)
            raise error

    with pytest.raises(type(error)):
        fail()
    assert contents(tmp_path) == []


def test_folders_made_for_a_success_stay(tmp_path, contents):
    with staging_in(tmp_path / "a" / "b") as staged:
        staged.write_text("whole")
        publish_file(staged, staged.parent / "model")
    assert contents(tmp_path) == ["a", "a/b", "a/b/model"]


def test_folders_that_others_use_stay(tmp_path, contents):
    def fail():
        with staging_in(tmp_path / "a" / "b") as staged:
            (staged.parent.parent / "theirs").write_text("kept")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert contents(tmp_path) == ["a", "a/theirs"]


def test_empty_folders_from_before_stay(tmp_path, contents):
    (tmp_path / "a").mkdir()

    def fail():
        with staging_in(tmp_path / "a"):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert contents(tmp_path) == ["a"]


# ---- Folders that cannot be written to


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("file", "it is not a folder"),
        ("file/below", "Not a directory"),
        ("file/below/that", "Not a directory"),
        ("/proc/keras_posenc", "No such file or directory"),
        ("/dev/null", "it is not a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_folder_that_cannot_be_made(tmp_path, contents, folder, reason):
    (tmp_path / "file").write_text("kept")
    folder = tmp_path / folder
    with (
        pytest.raises(ExportError) as caught,
        staging_in(folder) as staged,
    ):
        pytest.fail(f"staged at {staged}")
    assert str(caught.value) == f"Cannot write to '{folder}': {reason}"
    assert contents(tmp_path) == ["file"]


@pytest.mark.parametrize("below", ["", "deeper"])
def test_link_that_leads_nowhere(tmp_path, contents, below):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    message = f"link' is a link to '{tmp_path}/nowhere', which does not exist"
    with (
        pytest.raises(ExportError, match=message),
        staging_in(link / below) as staged,
    ):
        pytest.fail(f"staged at {staged}")
    assert contents(tmp_path) == ["link"]


def test_full_disk(tmp_path, contents):
    def fail():
        folder = tmp_path / "new"
        with staging_in(folder) as staged, writing_to(folder):
            staged.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ExportError, match="new': No space left on device"):
        fail()
    assert contents(tmp_path) == []


def test_folder_is_not_blamed_for_what_is_not_its_fault(tmp_path, contents):
    def fail():
        with staging_in(tmp_path / "new") as staged:
            staged.write_text("half")
            raise OSError(errno.ENOENT, "No vocabulary")

    with pytest.raises(FileNotFoundError, match="No vocabulary"):
        fail()
    assert contents(tmp_path) == []


# ---- Files


def test_published_file_replaces_an_earlier_one(tmp_path, contents):
    path = tmp_path / "model.tflite"
    path.write_text("earlier")
    with staging_in(tmp_path) as staged:
        staged.write_text("later")
        assert publish_file(staged, path) == path
    assert path.read_text() == "later"
    assert contents(tmp_path) == ["model.tflite"]


def test_folder_in_place_of_the_file(tmp_path, contents):
    (tmp_path / "model.tflite").mkdir()

    def publish():
        with staging_in(tmp_path) as staged:
            staged.write_text("later")
            publish_file(staged, tmp_path / "model.tflite")

    with pytest.raises(ExportError, match="Is a directory"):
        publish()
    assert contents(tmp_path) == ["model.tflite"]


# ---- What others left


KILLED = """
import os, pathlib, signal, sys
from keras_posenc.export.publish import staging_in

folder = pathlib.Path(sys.argv[1])
with staging_in(folder) as staged:
    staged.mkdir()
    (staged / "half").write_text("half")
    print(staged.name, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()  # until the test is done
"""


def exporter(folder, fate):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, folder, fate],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


@pytest.mark.slow
def test_leftovers_of_the_killed_are_swept_and_no_living_ones(
    tmp_path, contents
):
    dead, left = exporter(tmp_path, "killed")
    living, staged = exporter(tmp_path, "living")
    dead.communicate()
    assert left not in contents(tmp_path)  # the living one swept it
    dead, left = exporter(tmp_path, "killed")
    dead.communicate()
    assert dead.returncode == -9
    lock = staged.replace("partial", "lock")
    assert f"{left}/half" in contents(tmp_path)
    orphans = [f".{'0' * 32}.lock", f".{'1' * 32}.partial"]
    for name in orphans:
        (tmp_path / name).write_text("")
    (tmp_path / ".mine.partial").write_text("kept")
    try:
        with staging_in(tmp_path) as own:
            assert set(contents(tmp_path)) == {
                ".mine.partial",
                own.with_suffix(".lock").name,
                *(lock, staged, f"{staged}/half"),
            }
    finally:
        living.communicate("done")
    assert living.returncode == 0
    assert contents(tmp_path) == [".mine.partial"]


def test_what_is_published_is_on_the_disk_before_it_has_its_name(
    tmp_path, monkeypatch
):
    """After a power failure a name without its content would be a version."""
    steps = []
    sync, replace = posix.fsync, os.replace  # the tests' own does nothing

    def note_sync(descriptor):
        steps.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def note_replace(source, target):
        steps.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    with staging_in(tmp_path) as staged:
        stage(staged)
        (staged / "variables").mkdir()
        (staged / "variables" / "data").write_text("weights")
        publish(staged, tmp_path / "1")
        names = ["", "saved_model.pb", "variables", "variables/data"]
        expected = {os.path.join(staged, name).rstrip("/") for name in names}
    assert set(steps[:-2]) == expected
    assert steps[-2:] == ["renamed", str(tmp_path)]
