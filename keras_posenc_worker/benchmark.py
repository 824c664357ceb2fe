"""Times a LiteRT file in its runtime, or a package in LiteRT-LM's engine."""

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from keras_posenc_worker.process import memory
from keras_posenc_worker.run_litertlm import NO_CACHE, load_engine

DECODED = 32  # tokens that a language model generates in a run
_LOADS = 3  # most runs of a language model, each of which loads it
_UNTIMED = 3  # runs before those that are timed


def main(
    kind: str,
    path: str,
    signature: str,
    threads: int,
    lengths: list[int],
    repeats: int,
) -> dict[str, Any]:
    """Loads a file once, and times it at each length.

    Args:
        kind: `"litert"`; or of a package `"embedder"` or `"generator"`.
        path: The file, or the package.
        signature: Name of a signature of a LiteRT file.
        threads: Number of threads that the runtime may use.
        lengths: Sizes of the dynamic dimensions of a LiteRT file, words of a
            text, or tokens of a prompt.
        repeats: Number of timed runs of each length.

    Returns:
        `runs`, a dict for each: `signature`; `shapes`, of each input by name,
        of a package the number of `words` of a text, or of tokens of a
        `prompt`; `threads`; `load_seconds`, the time from the path to a runner;
        `peak_bytes`, the most memory of the process, over all lengths, and 0
        but on Linux; `median_milliseconds` and `p95_milliseconds` of a run; and
        `tokens` that a language model reads or generates, or None. Or `error`,
        what the runtime raised.
    """
    time_runs = {
        "litert": _litert,
        "embedder": _embedder,
        "generator": _generator,
    }[kind]
    try:
        before, load_seconds, *runs = time_runs(
            path, signature, threads, lengths, repeats
        )
    except Exception as error:  # whatever the runtime raises
        return {"error": f"{error}"}
    common = {
        "threads": threads,
        "load_seconds": load_seconds,
        "peak_bytes": memory("VmHWM") - before,
    }
    return {"runs": [{**common, **run} for run in runs]}


def _litert(
    path: str, signature: str, threads: int, lengths: list[int], repeats: int
) -> Iterator[Any]:
    """Yields the memory before, the time of loading, and each length's run."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    yield memory("VmHWM")
    began = time.perf_counter()
    interpreter = Interpreter(model_path=path, num_threads=threads)
    runner = interpreter.get_signature_runner(signature)
    yield time.perf_counter() - began
    rng = np.random.default_rng(0)
    known = runner.get_input_details()
    is_static = all(
        min(each["shape_signature"][1:], default=1) > 0
        for each in known.values()
    )
    for length in lengths[:1] if is_static else lengths:
        inputs = {}
        for name, details in known.items():
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
        shapes = {name: list(value.shape) for name, value in inputs.items()}
        try:
            seconds = _seconds(functools.partial(runner, **inputs), repeats)
        except Exception as error:
            raise RuntimeError(f"{error}, with {shapes}") from error
        yield _run(signature, shapes, seconds)


def _embedder(
    path: str, _: str, threads: int, lengths: list[int], repeats: int
) -> Iterator[Any]:
    load_engine()
    import litert_lm

    yield memory("VmHWM")
    options = litert_lm.EmbeddingOptions(
        input_overflow_strategy=litert_lm.InputOverflowStrategy.TRUNCATE
    )
    began = time.perf_counter()
    with litert_lm.EmbeddingEngine(
        path,
        backend=litert_lm.Backend.CPU(thread_count=threads),
        cache_dir=NO_CACHE,
    ) as engine:
        yield time.perf_counter() - began
        for length in lengths:
            text = " ".join("a" * length)
            seconds = _seconds(
                functools.partial(engine.compute_embedding, text, options),
                repeats,
            )
            yield _run("text", {"words": [length]}, seconds)


def _generator(
    path: str, _: str, threads: int, lengths: list[int], repeats: int
) -> Iterator[Any]:
    load_engine()
    import litert_lm

    yield memory("VmHWM")
    for index, length in enumerate(lengths):
        found = [
            litert_lm.Benchmark(
                path,
                litert_lm.Backend.CPU(thread_count=threads),
                prefill_tokens=length,
                decode_tokens=DECODED,
                cache_dir=NO_CACHE,
            ).run()
            for _ in range(min(repeats, _LOADS))
        ]
        if not index:
            yield statistics.median(x.init_time_in_second for x in found)
        for name in ("prefill", "decode"):
            count = getattr(found[0], f"last_{name}_token_count")
            rates = [
                getattr(x, f"last_{name}_tokens_per_second") for x in found
            ]
            seconds = [count / rate for rate in rates]
            yield _run(name, {"prompt": [length]}, seconds, count)


def _seconds(run: Callable[[], Any], repeats: int) -> list[float]:
    seconds = []
    for _ in range(_UNTIMED + repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return seconds[_UNTIMED:]


def _run(
    signature: str,
    shapes: dict[str, list[int]],
    seconds: list[float],
    tokens: int | None = None,
) -> dict[str, Any]:
    """Returns the numbers of `main` that depend on the runs."""
    import numpy as np

    return {
        "signature": signature,
        "shapes": shapes,
        "median_milliseconds": statistics.median(seconds) * 1e3,
        "p95_milliseconds": float(np.percentile(seconds, 95)) * 1e3,
        "tokens": tokens,
    }
