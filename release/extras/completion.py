"""A shell learns the command."""

import subprocess
import sys
from pathlib import Path

command = Path(sys.executable).with_name("keras-posenc")
for shell in ("bash", "zsh"):
    script = subprocess.check_output([command, "completion", shell], text=True)
    assert "saved-model" in script
