"""A model is trained by JAX, ended, taken up again and saved."""

import os
import subprocess
import sys
from pathlib import Path

example = Path(os.environ["CHECKOUT"], "examples", "train_hosts.py")
for epochs in ("1", "2"):
    subprocess.run(
        [sys.executable, example, "--folder", "run", "--epochs", epochs],
        check=True,
    )
assert Path("run", "model.keras").stat().st_size > 0
