"""The way back to an older version of a model."""

import errno
import os
import shutil
import subprocess

import pytest

from keras_posenc.export import rollback as module
from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.rollback import rollback_export as rollback
from keras_posenc.export.versions import versions


def make_version(base, name="1", text="published"):
    folder = base / str(name)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text(text)
    return folder


def test_rollback_publishes_a_copy_under_the_next_number(tmp_path, contents):
    old = make_version(tmp_path, 3, "old")
    (old / "variables").mkdir()
    (old / "variables" / "variables.index").write_text("weights")
    make_version(tmp_path, 7, "new")
    artifact = rollback(str(tmp_path), 3, verify=False)
    assert artifact.path == tmp_path / "8"
    assert artifact.report is None
    assert (tmp_path / "8" / "saved_model.pb").read_text() == "old"
    assert (tmp_path / "7" / "saved_model.pb").read_text() == "new"
    assert contents(tmp_path / "8") == contents(old)
    assert versions(tmp_path) == [3, 7, 8]
    assert len(list(tmp_path.iterdir())) == 3  # nothing left of the staging


@pytest.mark.parametrize(
    ("base", "version", "message"),
    [
        (
            "",
            2,
            r"`version` must be one that '.*' has \(1, 3\)\. Received: ver",
        ),
        ("", 3, "Version 3 is the newest in '.*': there is nothing to go back"),
        ("", 0, r"`version` must be an integer from 1 to 2\*\*63 - 1\. Receiv"),
        ("", True, r"`version` must be an integer from 1 to 2\*\*63 - 1\. Rec"),
        ("none", 1, r"has \(it has none\)"),
        ("no", 1, "no', which is no folder"),
        ("1", 1, r"is one of them: give '.*'"),
        (None, 1, "`base_path` must be a path"),
    ],
)
def test_what_cannot_be_gone_back_to(tmp_path, base, version, message):
    for name in (1, 3):
        make_version(tmp_path, name)
    (tmp_path / "none").mkdir()
    path = 7 if base is None else tmp_path / base
    with pytest.raises(ValueError, match=message):
        rollback(path, version)
    assert versions(tmp_path) == [1, 3]


def test_rollback_to_folders_without_end(tmp_path):
    for name in (1, 2):
        make_version(tmp_path, name)
    folder = os.open(tmp_path / "1", os.O_RDONLY)
    for _ in range(1100):  # deeper than Python recurses
        os.mkdir("more", dir_fd=folder)
        inner = os.open("more", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(ValueError, match="is no readable SavedModel"):
        rollback(tmp_path, 1, verify=False)
    assert versions(tmp_path) == [1, 2]
    # pytest itself does not get that deep.
    subprocess.run(["rm", "-r", tmp_path / "1"], check=True)


def test_rollback_to_links(tmp_path):
    for name in (1, 2):
        make_version(tmp_path, name)
    (tmp_path / "1" / "assets").symlink_to("/etc")
    with pytest.raises(
        ValueError, match=r"files and folders only, and .* link"
    ):
        rollback(tmp_path, 1, verify=False)


def test_rollback_with_the_disk_full_changes_nothing(
    tmp_path, contents, monkeypatch
):
    for name in (1, 2):
        make_version(tmp_path, name)
    before = contents(tmp_path)

    def fail(source, target, ignore):
        target.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.shutil, "copytree", fail)
    with pytest.raises(ExportError, match="No space left on device"):
        rollback(tmp_path, 1, verify=False)
    assert contents(tmp_path) == before


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip(file):
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("saved_model.pb", cut),
        ("variables/variables.data-00000-of-00001", flip),
        ("assets.extra/tf_serving_warmup_requests", flip),
    ],
)
def test_version_that_does_not_load_does_not_come_back(
    served, tmp_path, name, spoil
):
    shutil.copytree(served.path, tmp_path / "1")
    spoil(tmp_path / "1" / name)
    make_version(tmp_path, 2)
    message = r"Version 1 cannot be published again: .*'.*/1' .*\(--no-verify\)"
    with pytest.raises(ExportVerificationError, match=message):
        rollback(tmp_path, 1)
    assert versions(tmp_path) == [1, 2]


@pytest.mark.tensorflow
def test_version_that_loads_comes_back(served, tmp_path, contents):
    shutil.copytree(served.path, tmp_path / "1")
    make_version(tmp_path, 2)
    assert rollback(tmp_path, 1).path == tmp_path / "3"
    assert contents(tmp_path / "3") == contents(served.path)


def test_version_that_is_exchanged_after_it_was_loaded(tmp_path, monkeypatch):
    old = make_version(tmp_path, 1, "old")
    make_version(tmp_path, 2)

    def load(*arguments):
        (tmp_path / "another").write_text("another one")
        (tmp_path / "another").replace(old / "saved_model.pb")

    monkeypatch.setattr(module, "_check_loads", load)
    with pytest.raises(ExportVerificationError, match="was changed while it"):
        rollback(tmp_path, 1)
    assert versions(tmp_path) == [1, 2]
