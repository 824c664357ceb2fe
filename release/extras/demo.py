"""The example to start with runs."""

import os
import subprocess
import sys
from pathlib import Path

example = Path(os.environ["CHECKOUT"], "examples", "dates.py")
subprocess.run(
    [sys.executable, example, "--quick", "--out", "dates"], check=True
)
