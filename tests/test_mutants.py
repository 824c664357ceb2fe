"""The faults of `make mutants` are of the package as it is."""

import subprocess
import sys
from pathlib import Path


def test_every_mutant_and_its_tests_are_there():
    script = Path(__file__).with_name("mutants.py")
    process = subprocess.run(
        [sys.executable, script, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
