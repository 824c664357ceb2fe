"""Runs a package in LiteRT-LM's engines, which log why they fail."""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_posenc_worker.process import forbid, respond

# In place of a folder: the engines write nothing next to the package.
NO_CACHE = ":nocache"


def load_engine() -> None:
    """Imports the engines' library, and neither Keras nor TensorFlow."""
    forbid("keras_posenc", "tensorflow")
    import litert_lm

    litert_lm.set_min_log_severity(litert_lm.LogSeverity.ERROR)


def vectors(path: str, texts: Sequence[str]) -> dict[str, Any]:
    """Returns an embedder's `cases`: vectors or errors."""
    import litert_lm

    cut = litert_lm.InputOverflowStrategy.TRUNCATE
    options = litert_lm.EmbeddingOptions(
        normalize=False, input_overflow_strategy=cut
    )
    with litert_lm.EmbeddingEngine(path, cache_dir=NO_CACHE) as engine:
        cases: list[dict[str, Any]] = []
        for text in texts:
            began = time.perf_counter()
            try:
                vector = engine.compute_embedding(text, options).embedding
            except RuntimeError as error:
                cases.append({"error": str(error)})
                continue
            took = 1e3 * (time.perf_counter() - began)
            cases.append({"milliseconds": took, "vector": vector})
    return {"cases": cases}


def main(path: str, request: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Returns what the engine makes of the lists of a request.

    These are `texts` to tokenize, `targets` to score after their `parts`, and
    `chats`; or `vectors` of an embedder. What fails is a dict with an `error`.
    """
    load_engine()
    if "vectors" in request:
        return vectors(path, request["vectors"])
    engine = _tried(_engine, path)
    if isinstance(engine, dict):
        return engine
    found = {
        "texts": [_tried(engine.tokenize, x) for x in request.get("texts", ())]
    }
    for name, run in (("targets", _scored), ("chats", _chat)):
        found[name] = [_tried(run, engine, **x) for x in request.get(name, ())]
    return found


def reply(
    path: str, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Sends the pieces of a reply to a chat, as a dict with a `piece` each.

    `options` are `count`, the most tokens, or None; and `sampler`, arguments of
    a `SamplerConfig`, or None. Returns a dict, which may have an `error`.
    """
    load_engine()

    def replied() -> dict[str, Any]:
        *earlier, last = messages
        talk = _engine(path).create_conversation(
            messages=earlier or None,
            sampler_config=_sampler(options["sampler"]),
            max_output_tokens=options["count"],
        )
        with contextlib.closing(talk):
            for each in talk.send_message_async(last):
                respond({"piece": str(each)})
        return {}

    found: dict[str, Any] = _tried(replied)
    return found


def _engine(path: str) -> Any:
    import litert_lm

    backend = litert_lm.Backend.CPU(thread_count=min(os.cpu_count() or 1, 4))
    return litert_lm.Engine(path, backend=backend, cache_dir=NO_CACHE)


_GREEDY = {"top_k": 1, "top_p": 1.0, "temperature": 1.0, "seed": 0}


def _sampler(options: Mapping[str, Any] | None = _GREEDY) -> Any:
    import litert_lm

    return None if options is None else litert_lm.SamplerConfig(**options)


def _scored(engine: Any, parts: list[str], target: str) -> list[float]:
    session = engine.create_session(
        apply_prompt_template=False, sampler_config=_sampler()
    )
    with contextlib.closing(session):
        # 0.18.1 takes the last token of a prompt for one slot earlier: with
        # that token twice, all is where it should be.
        session.run_prefill([*parts, parts[-1]])
        found = session.run_text_scoring([target], store_token_lengths=True)
        (scores,) = found.token_scores
        return [float(each) for each in scores]


def _chat(
    engine: Any, messages: list[str], count: int
) -> list[tuple[str, str]]:
    talk = engine.create_conversation(
        sampler_config=_sampler(), max_output_tokens=count
    )
    turns = []
    with contextlib.closing(talk):
        for each in messages:
            read = talk.render_message_to_string(each)
            turns.append((read, str(talk.send_message(each))))
    return turns


def _tried(run: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    before = os.fstat(2).st_size
    try:
        return run(*arguments, **named)
    except MemoryError:
        raise
    except Exception as error:  # whatever the engine raises
        with contextlib.suppress(OSError):  # not a file
            written = os.pread(2, 2**16, before).decode(errors="replace")
            for line in written.splitlines():
                _, found, reason = line.partition("] ")
                if line.startswith(("E0", "F0")) and found:
                    return {"error": reason}
        return {"error": f"{type(error).__name__}: {error}"}
