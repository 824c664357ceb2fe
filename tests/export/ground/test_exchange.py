"""What is verified is one artifact from the beginning to the end."""

import os
import shutil

import pytest

import keras_posenc as kp
from keras_posenc.export import pipeline
from keras_posenc.export.versions import check_unchanged, stamp

pytestmark = pytest.mark.tensorflow


def written(path):
    path.write_bytes(path.read_bytes())


def put_back(path):
    """Another file was there meanwhile, of which nothing is left."""
    path.rename(path.with_suffix(".away"))
    path.write_bytes(b"another")
    path.with_suffix(".away").replace(path)


def given_its_times(path):
    state = path.stat()
    written(path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize(
    "change", [written, put_back, given_its_times], ids=lambda c: c.__name__
)
def test_change_is_seen(tmp_path, change):
    path = tmp_path / "1" / "variables" / "data"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one")
    before = stamp(tmp_path / "1")
    check_unchanged(tmp_path / "1", before)
    _wait_for_tick(tmp_path)
    change(path)
    with pytest.raises(kp.ExportVerificationError, match="was changed while"):
        check_unchanged(tmp_path / "1", before)


def _wait_for_tick(folder):
    """Until a change has another time than those before."""
    probe = folder / "probe"
    probe.touch()
    began = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == began:
        probe.touch()


@pytest.mark.parametrize(
    ("kind", "when"), [("litert", "inspect_safe"), ("saved_model", "check")]
)
def test_artifact_that_is_exchanged(
    model, request, tmp_path, monkeypatch, kind, when
):
    original = request.getfixturevalue(kind).path
    copy = tmp_path / original.name
    shutil.copytree(original, copy) if original.is_dir() else shutil.copy(
        original, copy
    )
    file = copy / "saved_model.pb" if copy.is_dir() else copy
    function = getattr(pipeline, when)

    def exchange(*arguments, **options):
        found = function(*arguments, **options)
        shutil.copy(file, tmp_path / "other")
        (tmp_path / "other").replace(file)
        return found

    monkeypatch.setattr(pipeline, when, exchange)
    with pytest.raises(
        kp.ExportVerificationError, match=f"was changed.*{file.name}"
    ):
        kp.verify_export(copy, model, max_length=1)
