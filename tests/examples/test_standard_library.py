"""Docstrings are read, and nothing is run for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples/standard_library.py"
# Modules that do something when they are imported, or take long.
SOURCE = """
import json, runpy, sys
names = runpy.run_path(sys.argv[1])
found = names["docstrings"]()
loaded = {"antigravity", "idlelib", "this", "tkinter"} & {*sys.modules}
print(json.dumps({"found": found, "loaded": sorted(loaded)}))
"""


@pytest.fixture(scope="module")
def read():
    run = subprocess.run(
        [sys.executable, "-c", SOURCE, SCRIPT],
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=120,
    )
    return json.loads(run.stdout)


def test_nothing_is_imported(read):
    assert read["loaded"] == []


def test_each_text_comes_once_and_there_are_enough(read):
    texts = [text for _, _, text in read["found"]]
    assert len(texts) == len({*texts}) >= 5000


def test_names_lead_to_their_texts(read):
    found = {name: (module, text) for name, module, text in read["found"]}
    module, text = found["json.decoder.JSONDecoder.decode"]
    assert module == "json.decoder"
    assert text.startswith("Return the Python representation of ``s``")
    assert found["json"][1].startswith("JSON (JavaScript Object Notation)")
    assert found["builtins.sorted"][1].startswith("Return a new list")
    assert not [name for name in found if "site-packages" in name]
