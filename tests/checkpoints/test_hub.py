"""Models by their names, with a stand-in of the library of the hub."""

import builtins
import fnmatch
import shutil

import pytest

import keras_posenc as kp
from tests.checkpoints.folders import at

NAME, COMMIT, OTHER = "someone/llama", "a" * 40, "b" * 40


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """The files that are fetched of one model, in two revisions."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    files = [*at("llama").iterdir()]
    found = []

    def snapshot_download(name, revision, allow_patterns, ignore_patterns):
        if name != NAME:
            raise OSError("404: no such model\nand more")
        commit = OTHER if revision else COMMIT
        folder = tmp_path / "models--someone--llama" / "snapshots" / commit
        folder.mkdir(parents=True, exist_ok=True)
        for file in (*files, at("llama") / "pytorch_model.bin"):
            if any(fnmatch.fnmatch(file.name, x) for x in allow_patterns):
                found.append(shutil.copy(file, folder))
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    return found


def load(name, **options):
    return kp.load_hugging_face(name, from_ids=True, verbose=False, **options)


def test_a_name_is_fetched_and_nothing_pickled(fetched):
    model = load(NAME)
    assert model.name == "llama"
    assert model.origin["revision"] == COMMIT
    assert fetched
    assert load(NAME, revision="v1").origin["revision"] == OTHER


def test_what_is_not_there(fetched, monkeypatch):
    with pytest.raises(FileNotFoundError, match="'no/body' cannot be fetched"):
        load("no/body")
    with pytest.raises(ValueError, match="`revision` is that of a model on"):
        load(at("llama"), revision="v1")
    real = builtins.__import__

    def without(name, *given):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ImportError, match=r"keras-posenc\[hub\].*hf download no/body --local"
    ):
        load("no/body")
