"""A record says what one verification compared, and is read within bounds."""

import argparse
import os
import shutil
import signal
import zipfile

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.record import digests, record_path
from keras_posenc_worker import cases, codec

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def numbers():
    return keras.Sequential(
        [keras.Input((3,), name="vector"), keras.layers.Dense(2)]
    )


@pytest.fixture(scope="module")
def exported(numbers, tmp_path_factory):
    """A verified LiteRT file of `numbers`, and an unverified SavedModel.

    The latter also has the signature `other`, of another model.
    """
    folder = tmp_path_factory.mktemp("exported")
    kp.export_litert(numbers, folder / "numbers.tflite", verbose=False)
    kp.export_saved_model(
        numbers,
        folder / "numbers",
        signatures=both(numbers),
        verify=False,
        verbose=False,
    )
    return folder


def both(model):
    other = keras.Sequential(
        [keras.Input((3,), name="vector"), model.layers[0]]
    )
    return {"serving_default": model, "other": other}


@pytest.fixture
def soon():
    """An error, and no wait for ever, where a named pipe is opened."""

    def give_up(*_):
        raise AssertionError("it waits for a named pipe, or reads without end")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_record_that_came_with_a_file_adds_nothing(numbers, exported, tmp_path):
    path = tmp_path / "1"
    shutil.copytree(exported / "numbers" / "1", path)
    own = cases.unpack(record_path(exported / "numbers.tflite").read_bytes())
    own |= {"files": digests(path), "signatures": ["other"], "cases": []}
    record_path(path).parent.mkdir(exist_ok=True)
    record_path(path).write_bytes(cases.pack(own))
    given = {"serving_default": numbers}
    report = kp.verify_export(path, numbers, signatures=given, verbose=False)
    assert report.passed
    assert report.unverified == ["other"]
    kp.Scorer(path)
    with pytest.raises(
        kp.ExportVerificationError,
        match=r"'other' of .* was not verified; verified: serving_default",
    ) as error:
        kp.Scorer(path, signature="other")
    assert "Verify all signatures" in str(error.value)
    report = kp.verify_export(
        path, numbers, signatures=both(numbers), verbose=False
    )
    assert report.unverified == []
    kp.Scorer(path, signature="other")


def fifo(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def sparse(path):
    path.write_bytes(b"{")
    os.truncate(path, 2**40)


def nested(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(codec.RECORD, "[" * 200_000)


def of_numbers(path):
    path.write_bytes(cases.pack({"files": {"": 1}, "signatures": {"a": 2}}))


def compressed(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(codec.RECORD, "{}")


def endless_array(path):
    """A header that asks for 8 TB, and no number."""
    array = np.zeros(0)
    content = cases.pack({"a": array}).replace(
        b"(0,)", b"(9" + b"9" * 11 + b",)"
    )
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [fifo, sparse, nested, of_numbers, compressed, endless_array],
    ids=lambda spoil: spoil.__name__,
)
def test_record_that_is_none(numbers, exported, tmp_path, spoil, soon):
    path = tmp_path / "numbers.tflite"
    shutil.copy(exported / "numbers.tflite", path)
    spoil(record_path(path))
    with pytest.raises(
        kp.ExportVerificationError, match=r"the record .* cannot be used: "
    ):
        kp.Scorer(path)


def test_named_pipe_gives_way_to_a_record(numbers, exported, tmp_path, soon):
    path = tmp_path / "numbers.tflite"
    shutil.copy(exported / "numbers.tflite", path)
    fifo(record_path(path))
    assert kp.verify_export(path, numbers, verbose=False).passed
    record = record_path(path).rename(tmp_path / "elsewhere")
    record_path(path).symlink_to(record)  # as volumes of Kubernetes do
    kp.Scorer(path)


def test_folder_holds_the_format_and_nothing_else(exported, tmp_path, soon):
    for place in ("more", "variables/more", "more/more"):
        path = tmp_path / place.replace("/", "-") / "1"
        shutil.copytree(exported / "numbers" / "1", path)
        (path / place).parent.mkdir(exist_ok=True)
        sparse(path / place)
        with pytest.raises(
            ValueError, match=f"'{place}' is no part of"
        ) as told:
            kp.inspect_export(path)
        assert "Move it" in str(told.value)
    path = tmp_path / "own" / "1"
    shutil.copytree(exported / "numbers" / "1", path)
    before = digests(path)
    (path / "assets.extra").mkdir(exist_ok=True)
    sparse(path / "assets.extra" / "of_a_user")  # which no runtime reads
    assert digests(path) == before
    assert kp.inspect_export(path).size_bytes < 2**20


def test_hidden_files_are_left_alone(numbers, exported, tmp_path, soon):
    """At the top of the folder, where systems put them, and nowhere else."""
    path = tmp_path / "1"
    shutil.copytree(exported / "numbers" / "1", path)
    before, size = digests(path), kp.inspect_export(path).size_bytes
    assert kp.verify_export(
        path, numbers, signatures=both(numbers), verbose=False
    )
    sparse(path / ".DS_Store")
    fifo(path / ".pipe")
    device(path / ".link")
    (path / ".git").mkdir()
    sparse(path / ".git" / "config")
    assert digests(path) == before
    found = kp.inspect_export(path).size_bytes
    assert size <= found < size + 10_000  # what the record has
    assert kp.verify_export(
        path, numbers, signatures=both(numbers), verbose=False
    )
    kp.Scorer(path)
    sparse(path / "variables" / ".DS_Store")
    with pytest.raises(ValueError, match=r"'variables/.DS_Store' is no part"):
        kp.inspect_export(path)


def test_options_name_regular_files(tmp_path, soon):
    from keras_posenc_cli.arguments import labels
    from keras_posenc_cli.keras_file import keras_loader
    from keras_posenc_cli.loading import load_samples
    from keras_posenc_cli.process import UsageError

    device(tmp_path / "labels.txt")
    with pytest.raises(argparse.ArgumentTypeError, match="10,000,000 char"):
        labels(str(tmp_path / "labels.txt"))
    for spoil in (fifo, device):
        path = tmp_path / f"{spoil.__name__}.npz"
        spoil(path)
        with pytest.raises(UsageError, match="is a folder, a pipe or a dev"):
            load_samples(path)
        path = tmp_path / f"{spoil.__name__}.keras"
        spoil(path)
        with (
            keras_loader("keras_posenc") as load,
            pytest.raises(ValueError, match="is no regular file"),
        ):
            load(path)
    np.savez(tmp_path / "good.npz", x=np.ones(2))
    assert load_samples(tmp_path / "good.npz")["x"].shape == (2,)
