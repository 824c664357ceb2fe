"""Artifacts appear whole or not at all."""

import errno
import os
import posix

import pytest
from filelock import FileLock

from keras_posenc.export.errors import ExportError
from keras_posenc.publish import (
    as_path,
    publish,
    publish_file,
    staging_in,
    working_folder,
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


def test_what_killed_exports_left_is_removed(tmp_path):
    """Nothing else is, such as what one that still works holds a lock of."""
    left, held = (f".{each * 32}" for each in "ab")
    others = {f"{held}.partial", ".partial", "a.partial", f"{left}.zip"}
    for name in (*others, f"{left}.partial", f"{left}.lock"):
        (tmp_path / name).touch()
    with FileLock(tmp_path / f"{held}.lock"), staging_in(tmp_path):
        pass
    found = {path.name for path in tmp_path.iterdir()}
    assert found - {f"{held}.lock"} == others


def test_a_private_folder_is_gone_afterwards():
    with working_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ValueError("no"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (FULL, ExportError),
    ],
)
def test_any_failure_passes_and_leaves_what_others_made(
    tmp_path, contents, error, raised
):
    folder = tmp_path / "a" / "b"

    def fail(own=None):
        with staging_in(folder) as staged, writing_to(folder):
            stage(staged)
            if own:
                (tmp_path / "a" / own).write_text("kept")
            raise error

    for own, left in ((None, []), ("theirs", ["a", "a/theirs"])):
        with pytest.raises(raised) as caught:
            fail(own)
        assert contents(tmp_path) == left
    if error is FULL:
        assert str(caught.value).endswith("b': No space left on device")


def test_a_link_to_a_folder_that_is_not_there_yet(tmp_path, contents):
    (tmp_path / "link").symlink_to(tmp_path / "later")
    with staging_in(tmp_path / "link") as staged:
        staged.write_text("whole")
        publish_file(staged, tmp_path / "link" / "model")
    assert contents(tmp_path / "later") == ["model"]


# ---- Folders that cannot be written to


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("file", "it is not a folder"),
        ("file/below", "Not a directory"),
        ("/proc/keras_posenc", "No such file or directory"),
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


# ---- Files


def test_published_file_replaces_an_earlier_one(tmp_path, contents):
    path = tmp_path / "model.tflite"
    path.write_text("earlier")
    with staging_in(tmp_path) as staged:
        staged.write_text("later")
        assert publish_file(staged, path) == path
    assert path.read_text() == "later"
    assert contents(tmp_path) == ["model.tflite"]


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
