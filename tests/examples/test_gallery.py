"""The page of pictures: every scheme is on it, and nothing beside it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.tensorflow


def run(script, *arguments, folder):
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    return subprocess.run(
        [sys.executable, ROOT / "examples" / script, *map(str, arguments)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        },
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )


@pytest.mark.slow
def test_page_shows_every_scheme(tmp_path):
    from keras_posenc import analysis

    process = run("gallery.py", "--length", 8, "--dim", 4, folder=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("Wrote gallery.html")
    page = (tmp_path / "gallery.html").read_text(encoding="utf-8")
    assert re.findall("<section><h2>([^:]+):", page) == list(analysis.SCHEMES)
    pictures = re.findall(r"<img src='([^']{30})", page)
    assert len(pictures) >= 4 + 2 * len(analysis.SCHEMES)
    assert set(pictures) == {"data:image/png;base64,iVBORw0K"}
    assert "http" not in page


@pytest.mark.slow
def test_heat_map(tmp_path):
    process = run("heat_map.py", folder=tmp_path)
    assert process.stdout == "Wrote encoding.png\n", process.stderr
    content = (tmp_path / "encoding.png").read_bytes()
    assert content.startswith(b"\x89PNG")
