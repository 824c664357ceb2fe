"""A picture is drawn."""

import subprocess
import sys
from pathlib import Path

command = Path(sys.executable).with_name("keras-posenc")
subprocess.run([command, "plot", "heatmap", "--out", "time.png"], check=True)
assert Path("time.png").read_bytes().startswith(b"\x89PNG")
