"""The short form of `make fuzz`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow
FUZZ = Path(__file__).with_name("fuzz.py")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it forks and limits")
def test_mutants(tmp_path):
    process = subprocess.run(
        [sys.executable, FUZZ, "--count", "60", "--keep", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout + process.stderr[-2000:]
    counts = json.loads(process.stdout)
    assert sum(sum(found.values()) for found in counts.values()) == 60
    for found in counts.values():
        assert found["clear error"] >= 5
        assert not found.keys() & {
            "hang",
            "other error",
            "wrong answers passed",
        }
