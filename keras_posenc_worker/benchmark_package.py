"""Times a `.litertlm` package in LiteRT-LM's engine."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

from keras_posenc_worker.benchmark import peak_bytes, timed
from keras_posenc_worker.run_embedding_engine import NO_CACHE, load_engine

DECODED = 32  # tokens that a language model generates in a run
_RUNS = 3  # at most, of a language model: each of them loads it


def main(
    path: str,
    threads: int,
    lengths: list[int],
    repeats: int,
    is_embedder: bool,
) -> dict[str, Any]:
    """Loads a package, and times it at each length.

    Args:
        path: The package.
        threads: Number of threads that the engine may use.
        lengths: Of an embedder, words of a text, of one letter each; of a
            language model, tokens of a prompt.
        repeats: Number of timed runs of each length; of a language model at
            most 3.
        is_embedder: Whether it makes vectors of texts.

    Returns:
        As `benchmark.main`, and the lengths of texts that are `cut`.
    """
    load_engine()
    before = peak_bytes()
    find, cut = _of_texts if is_embedder else _of_tokens, list[int]()
    try:
        load_seconds, *runs = find(path, threads, lengths, repeats, cut)
    except RuntimeError as error:
        return {"error": f"{error}"}
    return {
        "load_seconds": load_seconds,
        "peak_bytes": peak_bytes() - before,
        "runs": runs,
        "cut": cut,
    }


def _of_texts(
    path: str, threads: int, lengths: list[int], repeats: int, cut: list[int]
) -> Iterator[Any]:
    """Yields the time of loading, and a run for each length."""
    import litert_lm

    whole, truncated = (
        litert_lm.EmbeddingOptions(input_overflow_strategy=each)
        for each in (
            litert_lm.InputOverflowStrategy.ERROR,
            litert_lm.InputOverflowStrategy.TRUNCATE,
        )
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
            try:
                engine.compute_embedding(text, whole)
            except RuntimeError:  # another one is raised again below
                cut.append(length)
            seconds = []
            for _ in range(repeats + 3):
                began = time.perf_counter()
                engine.compute_embedding(text, truncated)
                seconds.append(time.perf_counter() - began)
            yield timed("text", {"words": [length]}, seconds[3:])


def _of_tokens(
    path: str, threads: int, lengths: list[int], repeats: int, _: list[int]
) -> Iterator[Any]:
    """Yields the time of loading, and runs of the prompt and the reply."""
    import litert_lm

    for index, length in enumerate(lengths):
        found = [
            litert_lm.Benchmark(
                path,
                litert_lm.Backend.CPU(thread_count=threads),
                prefill_tokens=length,
                decode_tokens=DECODED,
                cache_dir=NO_CACHE,
            ).run()
            for _ in range(min(repeats, _RUNS))
        ]
        if not index:
            yield statistics.median(x.init_time_in_second for x in found)
        for name in ("prefill", "decode"):
            count = getattr(found[0], f"last_{name}_token_count")
            rates = [
                getattr(x, f"last_{name}_tokens_per_second") for x in found
            ]
            seconds = [count / rate for rate in rates]
            yield timed(name, {"prompt": [length]}, seconds, count)
