"""Artifacts appear whole or not at all."""

import errno
import threading
from pathlib import Path

import pytest

from keras_posenc.artifacts import staging
from keras_posenc.artifacts.errors import ExportError
from keras_posenc.artifacts.staging import (
    check_free,
    next_version,
    publish_file,
    publish_version,
    staging_beside,
    versions,
    writing_to,
)


def make_version(base, name="1", text="published"):
    folder = base / str(name)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text(text)
    return folder


def stage(path, text="staged"):
    path.mkdir()
    (path / "saved_model.pb").write_text(text)


# ---- Beside the folder


def test_staged_path_is_hidden_in_the_folder_and_no_version(tmp_path):
    with staging_beside(tmp_path) as staged:
        assert not staged.exists()
        assert staged.parent == tmp_path  # so that renaming is one step
        assert staged.name.startswith(".")
        stage(staged)
        assert versions(tmp_path) == []


def test_two_exporters_stage_apart(tmp_path):
    with staging_beside(tmp_path) as one, staging_beside(tmp_path) as other:
        assert one != other


@pytest.mark.parametrize("as_file", [True, False])
def test_what_was_not_renamed_is_removed(tmp_path, contents, as_file):
    (tmp_path / "earlier").write_text("kept")
    with staging_beside(tmp_path) as staged:
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
        with staging_beside(tmp_path / "a" / "b") as staged:
            stage(staged)
            raise error

    with pytest.raises(type(error)):
        fail()
    assert contents(tmp_path) == []


def test_folders_made_for_a_success_stay(tmp_path, contents):
    with staging_beside(tmp_path / "a" / "b") as staged:
        staged.write_text("whole")
        publish_file(staged, staged.parent / "model")
    assert contents(tmp_path) == ["a", "a/b", "a/b/model"]


def test_folders_that_others_use_stay(tmp_path, contents):
    def fail():
        with staging_beside(tmp_path / "a" / "b") as staged:
            (staged.parent.parent / "theirs").write_text("kept")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert contents(tmp_path) == ["a", "a/theirs"]


def test_empty_folders_from_before_stay(tmp_path, contents):
    (tmp_path / "a").mkdir()

    def fail():
        with staging_beside(tmp_path / "a"):
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
        staging_beside(folder) as staged,
    ):
        pytest.fail(f"staged at {staged}")
    assert str(caught.value) == f"Cannot write to '{folder}': {reason}"
    assert contents(tmp_path) == ["file"]


def test_full_disk(tmp_path, contents):
    def fail():
        folder = tmp_path / "new"
        with staging_beside(folder) as staged, writing_to(folder):
            staged.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ExportError, match="new': No space left on device"):
        fail()
    assert contents(tmp_path) == []


def test_folder_is_not_blamed_for_what_is_not_its_fault(tmp_path, contents):
    def fail():
        with staging_beside(tmp_path / "new") as staged:
            staged.write_text("half")
            raise OSError(errno.ENOENT, "No vocabulary")

    with pytest.raises(FileNotFoundError, match="No vocabulary"):
        fail()
    assert contents(tmp_path) == []


# ---- Versions


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), 1),
        (("1",), 2),
        (("1", "5"), 6),
        (("9", "10"), 11),
        (("007",), 8),  # servers read 7
        (("2", "9" * 30), 3),  # servers cannot read it
        (("models.config", ".0b5f.partial", "v7", "1.5", "-3", "²"), 1),
    ],
)
def test_next_version_is_one_above_the_highest(tmp_path, names, expected):
    for name in names:
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == expected


def test_next_version_where_there_is_no_folder_yet(tmp_path):
    assert next_version(tmp_path / "new") == 1


def test_file_named_like_a_version_takes_its_number(tmp_path):
    (tmp_path / "3").write_text("not ours")
    assert next_version(tmp_path) == 4
    with pytest.raises(FileExistsError, match="Version 3 exists"):
        check_free(tmp_path, 3)


def test_number_may_be_taken_by_another_spelling(tmp_path):
    (tmp_path / "007").mkdir()
    with pytest.raises(FileExistsError, match="Version 7 exists"):
        check_free(tmp_path, 7)


def test_published_version_is_what_was_staged(tmp_path, contents):
    with staging_beside(tmp_path) as staged:
        stage(staged)
        assert publish_version(staged, tmp_path, None) == tmp_path / "1"
    assert contents(tmp_path) == ["1", "1/saved_model.pb"]


def test_published_version_with_a_number(tmp_path):
    make_version(tmp_path, 9)
    with staging_beside(tmp_path) as staged:
        stage(staged)
        assert publish_version(staged, tmp_path, 4) == tmp_path / "4"
    assert versions(tmp_path) == [4, 9]


def test_existing_version_is_never_touched(tmp_path, contents):
    folder = make_version(tmp_path, 2)

    def publish():
        with staging_beside(tmp_path) as staged:
            stage(staged)
            publish_version(staged, tmp_path, 2)

    with pytest.raises(FileExistsError) as caught:
        publish()
    assert str(caught.value) == (
        f"Version 2 exists in '{tmp_path}', and a published version is never "
        "changed. Leave `version` out for the next free one"
    )
    assert contents(tmp_path) == ["2", "2/saved_model.pb"]
    assert (folder / "saved_model.pb").read_text() == "published"


def test_number_taken_since_it_was_chosen(tmp_path, monkeypatch):
    choose, taken = staging.next_version, []

    def choose_too_late(base):
        number = choose(base)
        if not taken:
            taken.append(make_version(base, number))
        return number

    monkeypatch.setattr(staging, "next_version", choose_too_late)
    stage(tmp_path / "staged")
    path = publish_version(tmp_path / "staged", tmp_path, None)
    assert path == tmp_path / "2"
    assert (path / "saved_model.pb").read_text() == "staged"
    assert (taken[0] / "saved_model.pb").read_text() == "published"


@pytest.fixture
def another_is_faster(monkeypatch):
    """Another exporter takes the first number just before it is renamed to."""
    rename, taken = Path.rename, []

    def rename_too_late(self, target):
        if not taken:
            taken.append(make_version(target.parent, target.name))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_too_late)
    return taken


@pytest.mark.usefixtures("another_is_faster")
def test_number_taken_at_the_last_moment(tmp_path):
    stage(tmp_path / "staged")
    assert publish_version(tmp_path / "staged", tmp_path, None).name == "2"
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "published"
    assert (tmp_path / "2" / "saved_model.pb").read_text() == "staged"


@pytest.mark.usefixtures("another_is_faster")
def test_given_number_taken_at_the_last_moment(tmp_path):
    stage(tmp_path / "staged")
    with pytest.raises(FileExistsError, match="Version 7 exists"):
        publish_version(tmp_path / "staged", tmp_path, 7)
    assert (tmp_path / "7" / "saved_model.pb").read_text() == "published"


def test_disk_that_fails_to_rename_is_no_race(tmp_path, monkeypatch):
    def fail(self, target):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "rename", fail)

    def publish():
        with staging_beside(tmp_path) as staged:
            stage(staged)
            publish_version(staged, tmp_path, None)

    with pytest.raises(ExportError, match="Input/output error"):
        publish()


def test_many_exporters_at_once_get_versions_of_their_own(tmp_path, contents):
    exporters, rounds = 8, 10
    barrier = threading.Barrier(exporters)
    published, errors = [], []

    def export(name):
        for index in range(rounds):
            barrier.wait()
            try:
                with staging_beside(tmp_path) as staged:
                    stage(staged, f"{name}/{index}")
                    path = publish_version(staged, tmp_path, None)
                published.append((path, f"{name}/{index}"))
            except Exception as error:  # a thread's own are not seen
                errors.append(error)

    threads = [
        threading.Thread(target=export, args=(name,))
        for name in range(exporters)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    count = exporters * rounds
    assert versions(tmp_path) == list(range(1, count + 1))
    assert len(contents(tmp_path)) == 2 * count  # nothing half made
    for path, text in published:
        assert (path / "saved_model.pb").read_text() == text


# ---- Files


def test_published_file_replaces_an_earlier_one(tmp_path, contents):
    path = tmp_path / "model.tflite"
    path.write_text("earlier")
    with staging_beside(tmp_path) as staged:
        staged.write_text("later")
        assert publish_file(staged, path) == path
    assert path.read_text() == "later"
    assert contents(tmp_path) == ["model.tflite"]


def test_folder_in_place_of_the_file(tmp_path, contents):
    (tmp_path / "model.tflite").mkdir()

    def publish():
        with staging_beside(tmp_path) as staged:
            staged.write_text("later")
            publish_file(staged, tmp_path / "model.tflite")

    with pytest.raises(ExportError, match="Is a directory"):
        publish()
    assert contents(tmp_path) == ["model.tflite"]
