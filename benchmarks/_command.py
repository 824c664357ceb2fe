"""The command line of the benchmarks on the CPU, and what they keep."""

import argparse
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from _contest import Contest, hold, take_turns
from _report import KEPT

ROOT = Path(__file__).parents[1]
PACKAGES = "tensorflow", "keras", "keras-hub", "onnxruntime"
# Packages that other environments have.
PEERS = {
    "torch": "PyTorch",
    "ctranslate2": "CTranslate2",
    "pyspark": "PySpark",
}

# What is timed, and how: sources, and beginnings of environment variables.
SOURCES = (
    "benchmarks",
    "keras_posenc",
    "keras_posenc_cli",
    "keras_posenc_worker",
)
ENDINGS = ".py", ".toml", ".txt"
VARIABLES = "CUDA_", "KERAS_", "OMP_", "TF_", "XLA_"

Works = Callable[..., Iterable[Contest]]


def parse(
    description: str,
    parts: Iterable[str],
    rounds: int,
    peers: Iterable[str] = ("torch",),
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """The options; `to` is None where the page is not to be written."""
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
        help=f"run, again, what has this in its name, of: {names}; the page "
        "is not written",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where a whole run is kept: beside this program by default",
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="run also what an interrupted run of the same sources finished",
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


def _has(python: str, package: str) -> bool:
    code = f"import importlib.util as u; exit(not u.find_spec({package!r}))"
    try:
        return subprocess.run([python, "-c", code], check=False).returncode == 0
    except OSError:
        return False


class Kept:
    """What a program has finished, so that its next run goes on from there.

    In a file of `build/bench`, for the same sources, packages, machine,
    options and variables, until `report` has the whole.
    """

    def __init__(self, part: str, options: argparse.Namespace) -> None:
        from rich.progress import Progress

        self._path = KEPT / f"{part}.json"
        self._options = options
        self.progress = Progress()
        sources = hashlib.sha256()
        for folder in SOURCES:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in ENDINGS:
                    sources.update(path.read_bytes())
        setting = {
            **{name: str(given) for name, given in vars(options).items()},
            **dict.fromkeys(("fresh", "only", "to")),
            **facts(options, ()),
            "packages": sorted(
                f"{each.name} {each.version}"
                for each in importlib.metadata.distributions()
            ),
            "variables": {
                name: value
                for name, value in sorted(os.environ.items())
                if name.startswith(VARIABLES)
            },
            "sources": sources.hexdigest(),
        }
        self._found: dict[str, Any] = {"setting": setting, "parts": {}}
        if (options.only or not options.fresh) and self._path.exists():
            found = json.loads(self._path.read_text())
            if found["setting"] == setting:
                self._found = found

    def once(self, name: str, measure: Callable[..., Any], *given: Any) -> Any:
        """Returns what `measure` finds, or found in an earlier run."""
        parts = self._found["parts"]
        if name not in parts or self._options.only:
            parts[name] = measure(*given)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_suffix(".part")
            partial.write_text(json.dumps(self._found, indent=1))
            partial.replace(self._path)
        return parts[name]

    def contests(self, works: dict[str, Works], *given: Any) -> list[Any]:
        """Holds the contests of all works that are asked for."""

        def held(work: Works) -> list[Any]:
            return [
                hold(contest, self._options.rounds, self.progress)
                for contest in work(*given)
            ]

        return [
            contest
            for name, work in works.items()
            if self._options.only in name
            for contest in self.once(name, held, work)
        ]


def facts(
    options: argparse.Namespace, packages: Iterable[str]
) -> dict[str, Any]:
    """Where it ran, and the versions of packages and peers."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        **{each: importlib.metadata.version(each) for each in packages},
        **{
            each: _version(getattr(options, each), each)
            for each in PEERS
            if hasattr(options, each)
        },
    }


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """What the processor can do in this very run, and who takes part."""
    import tensorflow as tf

    # Off by default on processors without AVX-512.
    onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "not said")
    found = {**facts(options, PACKAGES), "oneDNN": onednn}
    for dtype in ("float32", "bfloat16"):
        a, b = (
            tf.cast(tf.random.stateless_normal(shape, (0, 0)), dtype)
            for shape in ((1024, 2048), (2048, 2048))
        )
        times = take_turns({"": functools.partial(tf.matmul, a, b)}, 15)
        rate = 2 * 1024 * 2048 * 2048 / times[""] / 1e6
        found[f"{dtype} products, GF/s"] = round(rate)
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
