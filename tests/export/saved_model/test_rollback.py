"""The way back to an older version of a model."""

import errno
import os
import re
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


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_card_that_somebody_edited_and_locked_goes_back(tmp_path, end):
    for name in (1, 2):
        make_version(tmp_path, name)
    card = tmp_path / "1" / "MODEL_CARD.md"
    text = end.join([b"# model", b"", "Grüße".encode("latin-1"), b""])
    card.write_bytes(text)
    card.chmod(0o444)
    copy = rollback(tmp_path, 1, verify=False).path / "MODEL_CARD.md"
    origin = b"\n**A copy of version 1.**\n"
    assert copy.read_bytes() == text.replace(
        b"model" + end, b"model" + end + origin
    )
    assert card.read_bytes() == text


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, r"`version` must be one that '.*' has \(1, 3\). Received: version"),
        (3, "Version 3 is the newest in '.*': there is nothing to go back"),
        (0, r"`version` must be an integer from 1 to 2\*\*63 - 1. Received"),
        (True, r"`version` must be an integer from 1 to 2\*\*63 - 1. Received"),
    ],
)
def test_version_that_cannot_be_gone_back_to(tmp_path, version, message):
    for name in (1, 3):
        make_version(tmp_path, name)
    with pytest.raises(ValueError, match=message):
        rollback(tmp_path, version)
    assert versions(tmp_path) == [1, 3]


def test_rollback_where_there_is_nothing(tmp_path, contents):
    with pytest.raises(ValueError, match="has \\(it has none\\)"):
        rollback(tmp_path, 1)
    with pytest.raises(ValueError, match="no', which is no folder"):
        rollback(tmp_path / "no", 1)
    with pytest.raises(ValueError, match="`base_path` must be a path"):
        rollback(7, 1)
    assert contents(tmp_path) == []


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


def test_rollback_within_a_version(tmp_path):
    folder = make_version(tmp_path, 1)
    message = f"'{folder}' is one of them: give '{tmp_path}'"
    with pytest.raises(ValueError, match=re.escape(message)):
        rollback(folder, 1)


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
