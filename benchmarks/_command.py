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
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N")
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help=f"what to run, of: {names}; keeps nothing",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where a whole run is kept",
    )
    options = parser.parse_args()
    if options.only and options.only not in names:
        parser.error(f"--only must be found in one of: {names}")
    if options.only:
        options.to = None
    options.only = options.only or ""
    return options


def machine(torch: str | None) -> dict[str, Any]:
    """What the processor can do in this very run, and who takes part."""
    import tensorflow as tf

    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
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
    if torch:
        code = "import torch; print(torch.__version__)"
        facts["torch"] = subprocess.check_output(
            [torch, "-c", code], text=True
        ).strip()
    return facts


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
