"""Short forms of long runs: of `make kill-test` and `make fuzz`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="they fork and kill"),
]
TESTS = Path(__file__).parent


def run(script, *options, seconds):
    """What a script prints that finds nothing wrong."""
    process = subprocess.run(
        [sys.executable, TESTS / script, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-2000:]
    return process.stdout


def test_exporters_killed_at_random_instants():
    found = re.search(
        r"6 exporters killed.* (\d+) versions published, (\d+) seen and "
        r"loaded, 0 wrong; \d+ versions left, and 0 other things",
        run("export/ground/kill_test.py", "--kills", "6", seconds=300),
    )
    published, seen = map(int, found.groups())
    assert published >= 6
    assert seen >= published / 2


def test_damaged_files(tmp_path):
    options = ("--count", "80", "--keep", tmp_path)
    counts = json.loads(run("export/inspection/fuzz.py", *options, seconds=600))
    assert sum(sum(found.values()) for found in counts.values()) == 80
    for found in counts.values():
        assert found["clear error"] >= 5
        assert not found.keys() & {"hang", "other error"}
