"""Times a LiteRT file in its runtime, or a package in LiteRT-LM's engine."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_posenc_worker.process import memory
from keras_posenc_worker.run_litertlm import NO_CACHE, load_engine

DECODED = 32  # tokens that a language model generates in a run
_UNTIMED = 3  # runs before those that are timed


def main(kind: str, *arguments: Any) -> dict[str, Any]:
    """Loads a file once, and times it at each length.

    Args:
        kind: `"litert"`; or of a package `"embedder"` or `"generator"`.
        arguments: Path of the file or package; name of a signature of a LiteRT
            file; number of threads; lengths, which are sizes of the dynamic
            dimensions of a LiteRT file, words of a text, or tokens of a prompt;
            and the number of timed runs of each.

    Returns:
        `runs`, a dict for each: `signature`; `shapes`, of each input by name,
        of a package the number of `words` of a text, or of tokens of a
        `prompt`; `load_seconds`, the time from the path to a runner;
        `median_milliseconds` and `p95_milliseconds` of a run; `tokens` that a
        language model reads or generates, or None; and `peak_bytes`, the most
        memory of the process so far, and 0 but on Linux. Or `error`, what the
        runtime raised.
    """
    time_runs = {
        "litert": _litert,
        "embedder": _embedder,
        "generator": _generator,
    }[kind]
    try:
        return {"runs": [*time_runs(*arguments)]}
    except Exception as error:  # whatever the runtime raises
        return {"error": f"{error}"}


def _litert(
    path: str, signature: str, threads: int, lengths: list[int], repeats: int
) -> Iterator[dict[str, Any]]:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    before, began = memory("VmHWM"), time.perf_counter()
    interpreter = Interpreter(model_path=path, num_threads=threads)
    runner = interpreter.get_signature_runner(signature)
    loaded = time.perf_counter() - began
    rng = np.random.default_rng(0)
    known = runner.get_input_details()
    sizes = [each["shape_signature"] for each in known.values()]
    is_static = all(min(each[1:], default=1) > 0 for each in sizes)
    for length in lengths[:1] if is_static else lengths:
        inputs = {}
        for name, details in known.items():
            shape = [
                int(size) if size > 0 else (1 if axis == 0 else length)
                for axis, size in enumerate(details["shape_signature"])
            ]
            # 1 is an id or a mask value that every model takes.
            is_float = np.issubdtype(details["dtype"], np.floating)
            values = rng.standard_normal(shape) if is_float else np.ones(shape)
            inputs[name] = values.astype(details["dtype"])
        shapes = {name: list(value.shape) for name, value in inputs.items()}
        try:
            seconds = _seconds(functools.partial(runner, **inputs), repeats)
        except Exception as error:
            raise RuntimeError(f"{error}, with {shapes}") from error
        yield _run(signature, shapes, loaded, before, seconds)


def _embedder(
    path: str, _: str, threads: int, lengths: list[int], repeats: int
) -> Iterator[dict[str, Any]]:
    load_engine()
    import litert_lm

    options = litert_lm.EmbeddingOptions(
        input_overflow_strategy=litert_lm.InputOverflowStrategy.TRUNCATE
    )
    before, began = memory("VmHWM"), time.perf_counter()
    backend = litert_lm.Backend.CPU(thread_count=threads)
    with litert_lm.EmbeddingEngine(
        path, backend=backend, cache_dir=NO_CACHE
    ) as engine:
        loaded = time.perf_counter() - began
        for length in lengths:
            compute = functools.partial(
                engine.compute_embedding, " ".join("a" * length), options
            )
            seconds = _seconds(compute, repeats)
            yield _run("text", {"words": [length]}, loaded, before, seconds)


def _generator(
    path: str, _: str, threads: int, lengths: list[int], repeats: int
) -> Iterator[dict[str, Any]]:
    """Yields times that the engine measures, of one run of each length."""
    load_engine()
    import litert_lm

    before = memory("VmHWM")
    for length in lengths:
        found = litert_lm.Benchmark(
            path,
            litert_lm.Backend.CPU(thread_count=threads),
            prefill_tokens=length,
            decode_tokens=DECODED,
            cache_dir=NO_CACHE,
        ).run()
        for name in ("prefill", "decode"):
            tokens = getattr(found, f"last_{name}_token_count")
            rate = getattr(found, f"last_{name}_tokens_per_second")
            loaded, shapes = found.init_time_in_second, {"prompt": [length]}
            yield _run(name, shapes, loaded, before, [tokens / rate], tokens)


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
    loaded: float,
    before: int,
    seconds: Sequence[float],
    tokens: int | None = None,
) -> dict[str, Any]:
    import numpy as np

    median, most = np.percentile(seconds, [50, 95]) * 1e3
    return {
        "signature": signature,
        "shapes": shapes,
        "load_seconds": loaded,
        "median_milliseconds": float(median),
        "p95_milliseconds": float(most),
        "tokens": tokens,
        "peak_bytes": memory("VmHWM") - before,
    }
