"""The scripts of `examples/`, as modules and as processes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def load(name):
    """Returns the script as a module, which may import others of its folder."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return module


def run(name, *arguments, folder):
    """What a script prints that ends well, run in `folder`."""
    process = run_any(name, *arguments, folder=folder)
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    return process.stdout


def run_any(name, *arguments, folder):
    """The ended process of a script that may fail."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    return subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "COLUMNS": "160",  # no cell of a table is cut
        },
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
