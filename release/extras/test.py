"""Tests of the checkout run, on the installed package."""

import os
import subprocess
import sys
from pathlib import Path

tests = Path(os.environ["CHECKOUT"], "tests")
chosen = ("ops/test_sinusoids.py", "cli/test_help.py", "test_conventions.py")
subprocess.run(
    [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    + [str(tests / name) for name in chosen],
    check=True,
)
