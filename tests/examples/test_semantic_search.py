"""The example of a search: a small encoder, few texts, the whole way."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.examples import encoder_folder

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
pytest.importorskip("kserve")
pytest.importorskip("mediapipe")

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    encoder_folder.write(folder / "encoder")
    return folder


def run(folder, *arguments):
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    finished = subprocess.run(
        [
            *(sys.executable, ROOT / "examples" / "semantic_search.py"),
            *("--model", "encoder", "--texts", str(COUNT), *arguments),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "COLUMNS": "160",  # no cell of a table is cut
        },
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_finds_and_delivers(folder):
    report = run(folder, "--query", "read a file", "--out", "out")
    scores = [float(x) for x in re.findall(r"│ (-?\d\.\d{3}) +│", report)]
    assert len(scores) == 10
    assert scores == sorted(scores, reverse=True)
    for name in ("MediaPipe", "KServe"):
        found = re.search(f"{name}: the same 10, .* by (.*)", report)
        assert float(found[1]) <= 1e-5
    with np.load(folder / "index.npz") as kept:
        vectors = kept["vectors"]
        # A text that is in the index is the best answer to itself.
        first = str(kept["passages"][7])
    page = folder / "out" / "page"
    on_page = np.fromfile(page / "index.bin", "<f4").reshape(COUNT, -1)
    np.testing.assert_array_equal(on_page, vectors)
    for name in ("search.html", "embedder.tflite", "index.json"):
        assert (page / name).is_file(), name

    written = (folder / "index.npz").stat().st_mtime_ns
    report = run(folder, "--query", first)
    assert re.findall(r"│ (-?\d\.\d{3}) +│", report)[0] == "1.000"
    assert (folder / "index.npz").stat().st_mtime_ns == written


def test_vectors_are_kept_for_one_model_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    names = runpy.run_path(ROOT / "examples" / "semantic_search.py")
    read_or_make = names["read_or_make"]
    made = []

    def embed(model, texts):
        made.append(model)
        return np.eye(len(texts), dtype="float32")

    monkeypatch.setitem(read_or_make.__globals__, "embed", embed)
    texts = names["docstrings"]()[:3]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
    models = [
        kp.PretrainedModel(
            [
                keras.Input((), dtype="string", name="text"),
                kp.WordpieceTokenizer(
                    vocabulary, max_length=length, name="tokenizer"
                ),
            ],
            origin={"sha256": {"model.safetensors": "1f"}},
            name="search",
        )
        for length in (8, 8, 9)
    ]
    for model in models:
        read_or_make(tmp_path / "index", model, texts)
    assert made == [models[0], models[2]]
