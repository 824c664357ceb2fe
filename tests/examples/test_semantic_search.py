"""The example of a search: a small encoder, few texts, the whole way."""

import re

import numpy as np
import pytest

from tests.examples import encoder_folder, scripts

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
pytest.importorskip("mediapipe")

COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    encoder_folder.write(folder / "encoder")
    return folder


def run(folder, *arguments):
    given = ("--model", "encoder", "--texts", COUNT, *arguments)
    return scripts.run("semantic_search", *given, folder=folder)


def test_finds_and_delivers(folder):
    report = run(folder, "--query", "read a file", "--out", "out")
    scores = [float(x) for x in re.findall(r"│ (-?\d\.\d{3}) +│", report)]
    assert len(scores) == 10
    assert scores == sorted(scores, reverse=True)
    found = re.search("MediaPipe: the same 10, .* by (.*)", report)
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
