"""Installs the wheel as a user does, and runs what it then can.

    python release/check_installs.py dist            # all of it
    python release/check_installs.py dist core onnx  # without extras; one extra

Each extra, alone, in an empty environment, from the package index: what
`extras/NAME.py` does must succeed there. The checkout is out of its sight, but
for the recipes and examples that it runs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.stem for path in (HERE / "extras").glob("*.py"))


def try_alone(wheel, name):
    """Makes an environment of the wheel and one extra, and runs the extra's."""
    extra = "" if name == "core" else f"[{name}]"
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place, "venv"), with_pip=True)
        python = Path(place, "venv", "bin", "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "install", "-q", "--no-compile", f"{wheel}{extra}"],
            check=True,
        )
        subprocess.run([*pip, "check"], check=True)
        size = sum(
            os.lstat(Path(folder, file)).st_size
            for folder, _, files in os.walk(Path(place, "venv"))
            for file in files
        )
        print(f"{size / 1e6:.0f} MB installed", flush=True)
        work = Path(place, "work")
        work.mkdir()
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        subprocess.run(
            [python, "-P", HERE / "extras" / f"{name}.py"],
            check=True,
            cwd=work,
            env={**clean, "CHECKOUT": str(HERE.parent)},
        )


def main():
    """Tries what is named, or all, and says what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="where the wheel is")
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    options = parser.parse_args()
    (wheel,) = options.dist.resolve().glob("*.whl")
    failed = []
    for name in options.names:
        print(f"---- {name}", flush=True)
        began = time.monotonic()
        try:
            try_alone(wheel, name)
        except subprocess.CalledProcessError as error:
            print(error)
            failed.append(name)
        print(f"---- {name}: {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
