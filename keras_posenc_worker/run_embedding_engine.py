"""Runs texts in LiteRT-LM's embedding engine."""

import time
from typing import Any

from keras_posenc_worker.process import forbid

# In place of a folder: the engine writes nothing next to the package.
NO_CACHE = ":nocache"


def load_engine() -> None:
    """Imports the engine's library, and neither Keras nor TensorFlow."""
    forbid("keras_posenc", "tensorflow")
    import litert_lm

    litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)


def main(path: str, texts: list[str]) -> dict[str, Any]:
    """Returns each text's vector as the package gives it, or its error.

    Longer texts are cut, and keep their last token.
    """
    load_engine()
    import litert_lm

    options = litert_lm.EmbeddingOptions(
        normalize=False,
        input_overflow_strategy=litert_lm.InputOverflowStrategy.TRUNCATE,
    )
    began = time.perf_counter()
    with litert_lm.EmbeddingEngine(path, cache_dir=NO_CACHE) as engine:
        load_seconds = time.perf_counter() - began
        cases: list[dict[str, Any]] = []
        for text in texts:
            began = time.perf_counter()
            try:
                vector = engine.compute_embedding(text, options).embedding
            except RuntimeError as error:
                cases.append({"error": str(error)})
                continue
            seconds = time.perf_counter() - began
            cases.append({"milliseconds": seconds * 1e3, "vector": vector})
    return {"load_seconds": load_seconds, "cases": cases}
