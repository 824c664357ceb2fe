"""The command line of the benchmarks on the CPU, and what they ran on."""

import argparse
import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _contest import take_turns


def parse(
    description: str, parts: Iterable[str], rounds: int
) -> argparse.Namespace:
    """What is asked for; `to` is None where nothing is to be kept."""
    names = ", ".join(parts)
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--torch",
        metavar="PYTHON",
        help="a Python that has PyTorch, which is left out without",
    )
    parser.add_argument(
        "--rounds",
        type=above_0,
        default=rounds,
        metavar="N",
        help="turns of each contestant that count (%(default)s)",
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help=f"run what has this in its name, of: {names}; keep nothing",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where a whole run is kept: beside this program by default",
    )
    options = parser.parse_args()
    if options.torch and not _has_torch(options.torch):
        parser.error(
            f"--torch must be a Python that has PyTorch: {options.torch}"
        )
    if options.only and options.only not in names:
        parser.error(f"--only must be found in one of: {names}")
    if options.only:
        options.to = None
    options.only = options.only or ""
    return options


def above_0(text: str) -> int:
    """An argument's type."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _has_torch(python: str) -> bool:
    code = "from importlib.util import find_spec as f; exit(not f('torch'))"
    try:
        return subprocess.run([python, "-c", code], check=False).returncode == 0
    except OSError:
        return False


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """What the processor can do in this very run, and who takes part."""
    import tensorflow as tf

    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "rounds": options.rounds,
    }
    for dtype in ("float32", "bfloat16"):
        a, b = (
            tf.cast(tf.random.stateless_normal(shape, (0, 0)), dtype)
            for shape in ((1024, 2048), (2048, 2048))
        )
        times = take_turns({"": functools.partial(tf.matmul, a, b)}, 15)
        rate = 2 * 1024 * 2048 * 2048 / times[""] / 1e6
        facts[f"{dtype} products, GF/s"] = round(rate)
    for package in ("tensorflow", "keras", "keras-hub", "onnxruntime"):
        facts[package] = importlib.metadata.version(package)
    if options.torch:
        code = "import torch; print(torch.__version__)"
        facts["torch"] = subprocess.check_output(
            [options.torch, "-c", code], text=True
        ).strip()
    return facts


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
