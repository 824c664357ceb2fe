"""How much memory exports take, in multiples of the weights.

    python benchmarks/memory.py

A folder as Hugging Face's libraries save it, of BERT's size and with random
weights, is made, loaded and exported to each format, verified. Each format has
a fresh process. What counts is what that process and all that it starts hold at
once, shared pages counted once, beyond what its libraries take. Mapped files do
not count: the system lets go of them where memory is short, and how much of
them falls to a process depends on who else maps them. Needs Linux, which tells
it, and about 5 GB of memory.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
from _command import Kept, machine, parse
from _report import report

LOADING = "loading"
EXPORTS = {
    "SavedModel": ("export_saved_model", "model"),
    "LiteRT": ("export_litert", "model.tflite"),
    "ONNX": ("export_onnx", "model.onnx"),
}
# Those of BERT-base.
SIZES = {
    "vocabulary_size": 30522,
    "d_model": 768,
    "num_layers": 12,
    "num_heads": 12,
    "intermediate_dim": 3072,
}
POSITIONS = 512
EVERY = 0.05  # seconds between two looks


def main() -> None:
    options = parse(
        __doc__, [LOADING, *EXPORTS], rounds=1, peers=(), add_options=_hidden
    )
    if options.measure:
        measured(*options.measure)
        return
    from rich.console import Console

    kept = Kept("memory", options)
    console = Console(stderr=True)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "bert", Path(name) / "out"
        with console.status("Making a folder of random weights"):
            weights = make(folder)
        for what in (LOADING, *EXPORTS):
            if options.only not in what:
                continue
            with console.status(f"Measuring {what}"):
                found = [
                    kept.once(f"{what} {turn}", measure, what, folder, out)
                    for turn in range(options.rounds)
                ]
            seconds, peaks = zip(*found, strict=True)
            rows.append(
                {
                    "work": "load" if what == LOADING else "export",
                    "format": "" if what == LOADING else what,
                    "seconds": statistics.median(seconds),
                    "peak": max(peaks) / 1e9,
                    "ratio": max(peaks) / weights,
                }
            )
    found = {
        "machine": machine(options),
        "weights": weights / 1e6,
        "rows": rows,
    }
    report("memory", found, options.to)


def _hidden(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)


def make(folder: Path) -> int:
    """Writes a folder, and returns how many bytes its weights have."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    model = kp.TransformerEncoderModel(
        **SIZES,
        activation="gelu",
        norm=kp.Norm(epsilon=1e-12),
        input_position=kp.PositionEmbedding(POSITIONS),
        embedding_norm=True,
    )
    kp.save_hugging_face(model, folder)
    return 4 * int(model.count_params())


def measure(what: str, folder: Path, out: Path) -> tuple[float, int]:
    """Seconds, and bytes at the peak, of what a fresh process does."""
    command = [sys.executable, __file__, "--measure", what, folder, out]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()  # it has its libraries
        before = held(process.pid)
        with watching(process.pid) as peak:
            process.stdin.write("\n")
            process.stdin.flush()
            seconds = float(process.stdout.readline())
    return seconds, peak[0] - before


def measured(what: str, folder: str, out: str) -> None:
    """Does what is measured, in a process of its own."""
    import onnx
    import tensorflow as tf
    import tf2onnx

    import keras_posenc as kp

    assert all((onnx, tf, tf2onnx))
    print(flush=True)
    input()
    began = time.perf_counter()
    model = kp.load_hugging_face(folder, from_ids=True, verbose=False)
    if what != LOADING:
        began = time.perf_counter()
        function, name = EXPORTS[what]
        getattr(kp, function)(model, Path(out) / name, verbose=False)
    print(time.perf_counter() - began, flush=True)


@contextlib.contextmanager
def watching(pid: int) -> Iterator[list[int]]:
    """The most bytes that a process and its children held, as one number."""
    peak, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(EVERY):
            peak[0] = max(peak[0], held(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def held(pid: int) -> int:
    """The bytes that a process and its children hold, what is shared once."""
    place = Path("/proc", str(pid))
    total = 0
    with contextlib.suppress(OSError):  # those that have ended
        for line in (place / "smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += 1024 * int(line.split()[1])
        for children in place.glob("task/*/children"):
            total += sum(map(held, map(int, children.read_text().split())))
    return total


if __name__ == "__main__":
    main()
