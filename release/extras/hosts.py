"""A model is trained by JAX, ended, taken up again and saved."""

import os
import subprocess
import sys
from pathlib import Path

example = Path(os.environ["CHECKOUT"], "examples", "train_hosts.py")
command = [sys.executable, example, "--folder", "run", "--rows", "512"]
for epochs in ("1", "2"):
    subprocess.run([*command, "--epochs", epochs], check=True)
assert Path("run", "model.keras").stat().st_size > 0
