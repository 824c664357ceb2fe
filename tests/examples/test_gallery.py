"""The page of pictures: every scheme is on it, and nothing beside it."""

import re

import pytest

from keras_posenc import analysis
from tests.examples import scripts

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_page_shows_every_scheme(tmp_path):
    given = ("--length", 8, "--dim", 4)
    report = scripts.run("gallery", *given, folder=tmp_path)
    assert report.startswith("Wrote gallery.html")
    page = (tmp_path / "gallery.html").read_text(encoding="utf-8")
    assert re.findall("<section><h2>([^:]+):", page) == list(analysis.SCHEMES)
    pictures = re.findall(r"<img src='([^']{30})", page)
    assert len(pictures) >= 4 + 2 * len(analysis.SCHEMES)
    assert set(pictures) == {"data:image/png;base64,iVBORw0K"}
    assert "http" not in page


@pytest.mark.slow
def test_heat_map(tmp_path):
    report = scripts.run("heat_map", folder=tmp_path)
    assert report == "Wrote encoding.png\n"
    content = (tmp_path / "encoding.png").read_bytes()
    assert content.startswith(b"\x89PNG")
