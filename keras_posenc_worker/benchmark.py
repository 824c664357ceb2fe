"""Times a LiteRT file."""

import math
import re
import statistics
import time
from pathlib import Path
from typing import Any


def main(
    path: str, signature: str, threads: int, lengths: list[int], repeats: int
) -> dict[str, Any]:
    """Loads the file once, and times it at each length.

    Args:
        path: The file.
        signature: Name of a signature.
        threads: Number of threads that the runtime may use.
        lengths: Sizes of the dynamic dimensions; a dynamic batch is 1.
        repeats: Number of timed runs of each length, after three runs to warm
            up.

    Returns:
        `load_seconds`; `peak_bytes`, the most memory of the process; and
        `runs`, those of `timed` for each length. Or `error`, what the runtime
        raised.
    """
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    before = peak_bytes()
    began = time.perf_counter()
    interpreter = Interpreter(model_path=path, num_threads=threads)
    runner = interpreter.get_signature_runner(signature)
    load_seconds = time.perf_counter() - began
    rng = np.random.default_rng(0)
    runs = []
    for length in lengths:
        inputs = {}
        for name, details in runner.get_input_details().items():
            sizes = [
                int(size) if size > 0 else (1 if axis == 0 else length)
                for axis, size in enumerate(details["shape_signature"])
            ]
            # 1 is an id or a mask value that every model takes.
            inputs[name] = (
                rng.standard_normal(sizes)
                if np.issubdtype(details["dtype"], np.floating)
                else np.ones(sizes)
            ).astype(details["dtype"])
        try:
            runner(**inputs)
        except Exception as error:  # whatever the runtime raises
            given = ", ".join(
                f"{n} of shape {v.shape}" for n, v in inputs.items()
            )
            return {"error": f"{error}, with {given}"}
        seconds: list[float] = []
        for index in range(repeats + 2):
            began = time.perf_counter()
            runner(**inputs)
            if index >= 2:  # the runs before warm up
                seconds.append(time.perf_counter() - began)
        shapes = {n: list(v.shape) for n, v in inputs.items()}
        runs.append(timed(signature, shapes, seconds))
    return {
        "load_seconds": load_seconds,
        "peak_bytes": peak_bytes() - before,
        "runs": runs,
    }


def timed(
    signature: str,
    shapes: dict[str, list[int]],
    seconds: list[float],
    tokens: int | None = None,
) -> dict[str, Any]:
    """Returns the numbers of a `Timing` that depend on the runs."""
    return {
        "signature": signature,
        "shapes": shapes,
        "median_milliseconds": statistics.median(seconds) * 1e3,
        "p95_milliseconds": 1e3
        * sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1],
        "tokens": tokens,
    }


def peak_bytes() -> int:
    """Returns the most memory that this process has used, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where getrusage includes the parent's peak
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        return int(found[1]) * 1024 if found else 0
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
