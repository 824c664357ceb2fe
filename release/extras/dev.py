"""What a change is checked by, and a release is built with."""

import os
import subprocess
import sys

checkout = os.environ["CHECKOUT"]
for arguments in (
    ["ruff", "check", checkout],
    ["mypy", "--version"],
    ["build", "--version"],
    ["twine", "--version"],
    ["check_wheel_contents", "--version"],
):
    subprocess.run([sys.executable, "-m", *arguments], check=True)
