"""The command line of the benchmarks on the CPU, and what they ran on."""

import argparse
import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from _contest import take_turns

# Packages that other environments have.
PEERS = {
    "torch": "PyTorch",
    "ctranslate2": "CTranslate2",
    "pyspark": "PySpark",
}


def parse(
    description: str,
    parts: Iterable[str],
    rounds: int,
    peers: Iterable[str] = ("torch",),
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """What is asked for; `to` is None where nothing is to be kept."""
    names = ", ".join(parts)
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for peer in peers:
        parser.add_argument(
            f"--{peer}",
            metavar="PYTHON",
            help=f"a Python that has {PEERS[peer]}, which is left out without",
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
    if add_options is not None:
        add_options(parser)
    options = parser.parse_args()
    for peer in peers:
        python = getattr(options, peer)
        if python and not _has(python, peer):
            parser.error(
                f"--{peer} must be a Python that has {PEERS[peer]}: {python}"
            )
    if options.only and options.only not in names:
        parser.error(f"--only must be found in one of: {names}")
    if options.only and not getattr(options, "keep", False):
        options.to = None
    options.only = options.only or ""
    return options


def above_0(text: str) -> int:
    """An argument's type."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _has(python: str, package: str) -> bool:
    code = f"import importlib.util as u; exit(not u.find_spec({package!r}))"
    try:
        return subprocess.run([python, "-c", code], check=False).returncode == 0
    except OSError:
        return False


def facts(
    options: argparse.Namespace, packages: Iterable[str]
) -> dict[str, Any]:
    """Where it ran, and the versions of packages."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        **{each: importlib.metadata.version(each) for each in packages},
    }


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """What the processor can do in this very run, and who takes part."""
    import tensorflow as tf

    # Off by default on processors without AVX-512.
    onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "not said")
    found = {**facts(options, ()), "oneDNN": onednn}
    for dtype in ("float32", "bfloat16"):
        a, b = (
            tf.cast(tf.random.stateless_normal(shape, (0, 0)), dtype)
            for shape in ((1024, 2048), (2048, 2048))
        )
        times = take_turns({"": functools.partial(tf.matmul, a, b)}, 15)
        rate = 2 * 1024 * 2048 * 2048 / times[""] / 1e6
        found[f"{dtype} products, GF/s"] = round(rate)
    for package in ("tensorflow", "keras", "keras-hub", "onnxruntime"):
        found[package] = importlib.metadata.version(package)
    for package in PEERS:
        if hasattr(options, package):
            found[package] = _version(getattr(options, package), package)
    return found


def _version(python: str | None, package: str) -> str:
    if not python:
        return "not installed"
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
