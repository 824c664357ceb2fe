"""The versions of a model, each a folder with an integer for its name."""

import itertools
import os
import threading
from pathlib import Path

import pytest

from keras_posenc.export.versions import (
    check_base,
    check_free,
    next_version,
    publish_version,
    versions,
)
from keras_posenc.publish import staging_in


def make_version(base, name="1", text="published"):
    folder = base / str(name)
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text(text)
    return folder


def stage(path, text="staged"):
    path.mkdir()
    (path / "saved_model.pb").write_text(text)


# ---- The folder


@pytest.mark.skipif(os.name == "nt", reason="backslashes part names there")
@pytest.mark.parametrize("name", ["[a-z]/models", "back\\slash"])
def test_folder_that_tensorflow_takes_for_a_pattern(
    tmp_path, name, monkeypatch
):
    with pytest.raises(ValueError, match="brackets and backslashes in the"):
        check_base(tmp_path / name)
    (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(ValueError, match=r"Rename the folder: '.*'"):
        check_base(Path("."))


@pytest.mark.parametrize("name", ["v[1", "a*b?", "[/]"])
def test_folder_that_tensorflow_finds(tmp_path, name):
    check_base(tmp_path / name)
    assert next_version(tmp_path / name) == 1
    check_free(tmp_path / name, 1)


@pytest.mark.parametrize("name", ["1", "1/assets", "of_keras"])
def test_folder_within_a_version(tmp_path, name):
    make_version(tmp_path, name.partition("/")[0])
    given = "another folder" if name == "of_keras" else f"'{tmp_path}'"
    with pytest.raises(ValueError, match=f"SavedModel itself: give {given}"):
        check_base(tmp_path / name)


# ---- The next number


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), 1),
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


def test_the_highest_version_is_the_last(tmp_path):
    highest = 2**63 - 1
    (tmp_path / str(highest - 1)).mkdir()
    assert next_version(tmp_path) == highest
    (tmp_path / str(highest)).mkdir()
    (tmp_path / str(highest + 1)).mkdir()  # no server takes it for a version
    with pytest.raises(ValueError, match="the highest version there can be"):
        next_version(tmp_path)


def test_file_named_like_a_version_takes_its_number(tmp_path):
    (tmp_path / "3").write_text("not ours")
    assert next_version(tmp_path) == 4
    with pytest.raises(FileExistsError, match="Version 3 exists"):
        check_free(tmp_path, 3)


def test_existing_version_is_never_touched(tmp_path, contents):
    folder = make_version(tmp_path, 2)

    def publish():
        with staging_in(tmp_path) as staged:
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


def test_many_exporters_at_once_get_versions_of_their_own(tmp_path, contents):
    exporters, rounds = 8, 10
    barrier = threading.Barrier(exporters)
    published, errors = [], []

    def export(name):
        for index in range(rounds):
            barrier.wait()
            try:
                with staging_in(tmp_path) as staged:
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


# ---- How many are kept


@pytest.mark.parametrize(
    ("names", "version", "keep", "left"),
    [
        ((), None, 1, [1]),
        ((1, 2, 3), None, 3, [2, 3, 4]),
        ((1, 2, 3), None, 2, [3, 4]),
        ((1, 2, 3), None, 1, [3, 4]),  # 3 answers until 4 is loaded
        ((9, 10), None, 2, [10, 11]),
        ((1, 5, 9), 7, 2, [7, 9]),  # 9 goes on answering
        ((1, 5, 9), 3, 1, [3, 9]),  # never the new one
        ((1, 5, 9), None, None, [1, 5, 9, 10]),
    ],
)
def test_versions_that_are_kept(tmp_path, contents, names, version, keep, left):
    for name in names:
        make_version(tmp_path, name)
    with staging_in(tmp_path) as staged:
        stage(staged)
        publish_version(staged, tmp_path, version, keep)
    assert versions(tmp_path) == left
    assert len(contents(tmp_path)) == 2 * len(left)  # and nothing beside


def test_removed_version_goes_in_one_step_and_after_the_new_is_there(
    tmp_path, monkeypatch
):
    """No server may ever see a part of a version, or less than it had."""
    for name in (1, 2):
        make_version(tmp_path, name)
    seen = []

    def look():
        for path in tmp_path.iterdir():
            if path.name.isdigit():
                assert (path / "saved_model.pb").exists()
        seen.append(versions(tmp_path))

    def watched(function):
        def call(*arguments, **options):
            look()
            result = function(*arguments, **options)
            look()
            return result

        return call

    for name in ("rename", "replace", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    with staging_in(tmp_path) as staged:
        stage(staged)
        publish_version(staged, tmp_path, None, keep=1)
    monkeypatch.undo()
    steps = [step for step, _ in itertools.groupby(seen)]
    assert steps == [[1, 2], [1, 2, 3], [2, 3]]
