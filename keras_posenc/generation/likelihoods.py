"""How likely a generator finds sequences of others, such as an export's.

A quantized file may choose another token where two are nearly equally likely,
and every later token may then differ. So its sequences are not compared with
the model's, but read by the model.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.generation.generated import Forbidden
from keras_posenc.generation.scoring import Scoring
from keras_posenc.generation.search import Search

# 512 tokens: the mean divergence is then known to a few percent.
_TEXTS = 8
_TOKENS = 64


def rescored(
    search: Search, scoring: Scoring, source: Any, ids: Any
) -> dict[str, Any]:
    """Returns how likely the model finds generated tokens.

    Args:
        search: The search that generated them, or an export of it.
        scoring: The layer that scores targets of its model.
        source: Integers `(batch, seq)`: what they were generated from.
        ids: Integers `(batch, max_length)`, or with the axis of `n_best`, of
            which the first is read.

    Returns:
        A dict of `is_token`, bool `(batch, max_length)`: which have a score;
        `token_score`, float32 of the same shape; and, if the search takes the
        most likely token each time, `best_score`, that of this token.
    """
    ids = ops.cast(ids, "int32")
    if len(ids.shape) == 3:
        ids = ids[:, 0]
    logs, target, real = scoring.read({"source": source, "target": ids})
    scores = ops.take_along_axis(logs, ops.expand_dims(target, 2), axis=2)
    place = ops.arange(ops.shape(target)[1], dtype="int32")
    real = ops.logical_and(real, place >= len(search.prefix_ids))
    found = {"is_token": real, "token_score": ops.squeeze(scores, 2)}
    is_greedy = (
        search.beams == 1
        and search.draw is None
        and search.repetition_penalty == 1
        and search.least == 0
        and not getattr(search, "rules", None)
    )
    if is_greedy:
        forbidden = Forbidden(
            search.end_ids, scoring.pad_id, 0, search.forbidden_ids
        )
        rows = forbidden(ops.reshape(logs, (-1, logs.shape[-1])), 0)
        best = ops.reshape(ops.max(rows, axis=-1), ops.shape(target))
        found["best_score"] = best
    return {name: x[:, : search.max_length] for name, x in found.items()}


def drawn_pairs(
    search: Search,
    given: Sequence[np.ndarray],
    run: Callable[..., np.ndarray],
) -> Iterator[tuple[dict[str, np.ndarray], bool]]:
    """Yields sources with targets, to measure likelihoods on.

    Targets that the model samples itself are typical of its language, and show
    the divergence from its distribution: the mean difference of log-likelihoods
    is what the KL divergence is the expectation of.

    Args:
        search: The generator's search.
        given: Prompts or sources, integers `(batch, seq)` each; none for some
            that are made up.
        run: Takes a function of tensors, and arrays; returns an array.

    Yields:
        A dict of `source` and `target`, and whether the model has sampled the
        target. If not, it is the second half of a given prompt.
    """
    model = search.model
    limit = model.max_positions or _TOKENS + 1
    for ids in given or [_invented(search)]:
        ids = np.asarray(ids)[:_TEXTS]
        half = ids.shape[1] // 2
        if given and half and not search.has_encoder:
            yield {"source": ids[:, :half], "target": ids[:, half:]}, False
        room = limit if search.has_encoder else limit - ids.shape[1] + 1
        room = min(room, _TOKENS)
        if room < 1:
            continue
        sampled = Search(
            model,
            max_length=room,
            temperature=1.0,
            start_id=search.start_id,
            end_ids=search.end_ids,
            generated_ids=search.generated_ids,
        )
        noise = np.random.default_rng(0).random((len(ids), room), "float32")
        ids = ids.astype("int32")
        target = run(functools.partial(_ids, sampled), ids, noise)
        yield {"source": ids, "target": target}, True
        # One alone, and after a long text, of which the others are pieces.
        yield {"source": ids[:1], "target": target[:1]}, True
        long = target[1:].reshape(1, -1)
        if not search.has_encoder and long.size + room <= (
            model.max_positions or math.inf
        ):
            yield {"source": long, "target": target[:1]}, False


def _ids(search: Search, ids: Any, noise: Any) -> Any:
    return search(ids, noise=noise)["ids"]


def _invented(search: Search) -> np.ndarray:
    """Returns one token for each text, or some for each source."""
    rng = np.random.default_rng(0)
    vocabulary = search.model.vocabulary_size
    shape = (_TEXTS, 8 if search.has_encoder else 1)
    ids = rng.integers(1, vocabulary, shape, "int32")
    # Nothing follows an end symbol.
    return np.where(np.isin(ids, search.end_ids), vocabulary - 1, ids)
