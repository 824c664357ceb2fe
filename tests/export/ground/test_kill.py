"""The kill test's short form; `make kill-test` runs the long one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform == "win32", reason="has no fork and no SIGKILL"
)
def test_exporters_killed_at_random_instants():
    script = Path(__file__).with_name("kill_test.py")
    process = subprocess.run(
        [sys.executable, script, "--kills", "6"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-2000:]
    found = re.search(
        r"6 exporters killed.* (\d+) versions published, (\d+) seen and "
        r"loaded, 0 wrong; \d+ versions left, and 0 other things",
        process.stdout,
    )
    published, seen = map(int, found.groups())
    assert published >= 6
    assert seen >= published / 2
