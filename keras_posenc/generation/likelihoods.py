"""Likelihoods, in a generator, of sequences of others, such as an export's.

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

from keras_posenc.generation.generated import Forbidden, is_any
from keras_posenc.generation.scoring import Scoring
from keras_posenc.generation.search import Search

# 512 tokens: the mean divergence is then known to a few percent.
_TEXTS = 8
_TOKENS = 64


# Two distributions with a divergence of 0.1 nats have cumulative probabilities
# that differ by at most sqrt(0.1 / 2) (Pinsker).
_NEAR = 0.22


def rescored(
    search: Search, scoring: Scoring, source: Any, ids: Any, noise: Any = None
) -> dict[str, Any]:
    """Returns how likely the model finds generated tokens.

    Args:
        search: The search that generated them, or an export of it.
        scoring: The layer that scores targets of its model.
        source: Integers `(batch, seq)`: what they were generated from.
        ids: Integers `(batch, max_length)`, or with the axis of `n_best`, of
            each is a row more here.
        noise: Floats `(batch, max_length)` that they were sampled with.

    Returns:
        A dict of `is_token`, bool `(rows, max_length)`: which have a score;
        `token_score`, float32 of the same shape; `is_known`, bool `(rows,)`:
        whether each id is one that may be generated; `is_whole`, whether a row
        ends with an end symbol or is full, with padding only at its end;
        `is_filled`, bool `(rows, max_length)`: which places hold a generated
        id; `has_end`, whether a row has an end symbol; `divisor`, float32
        `(rows,)`: what its score is divided by; and `is_divisor`, whether this
        is exact. If the
        search takes the most likely token each time, also `best_score`, that
        of this token. If it samples, also `is_near`, whether noise changed by
        at most 0.22 samples the token, bool `(rows, max_length)`.
    """
    ids = ops.cast(ids, "int32")
    if len(ids.shape) == 3:
        source = ops.repeat(source, ops.shape(ids)[1], axis=0)
        ids = ops.reshape(ids, (-1, ops.shape(ids)[2]))
    prefix, pad_id = len(search.prefix_ids), scoring.pad_id
    is_padding = ops.equal(ids, pad_id)
    is_end = is_any(ids, search.end_ids)
    place = ops.arange(ops.shape(ids)[1], dtype="int32")
    is_id = ops.logical_and(ids >= 0, ids < search.vocabulary)
    listed = np.isin(np.arange(search.vocabulary), search.forbidden_ids)
    is_unlisted = ops.take(~listed, ops.clip(ids, 0, search.vocabulary - 1))
    is_known = ops.logical_and(
        is_id, ops.logical_or(is_unlisted, place < prefix)
    )
    is_known = ops.logical_or(is_known, is_padding)
    # Nothing follows padding, nor an end symbol after the prefix.
    ends = ops.logical_or(is_padding, ops.logical_and(is_end, place >= prefix))
    follows = ops.logical_and(ends[:, :-1], ops.logical_not(is_padding[:, 1:]))
    is_cut = ops.logical_and(
        is_padding[:, 1:],
        ops.logical_not(ops.logical_or(ends[:, :-1], is_end[:, :-1])),
    )
    is_whole = ops.logical_not(
        ops.logical_or(
            ops.any(ops.logical_or(follows, is_cut), axis=1), is_padding[:, 0]
        )
    )
    count = ops.sum(ops.cast(~is_padding, "float32"), axis=1) - prefix
    is_listed = search.rules is None
    divisor = (5 + count) / 6 if is_listed else ops.maximum(count, 1.0)
    divisor = ops.power(ops.maximum(divisor, 0.5), search.length_penalty)
    is_own = is_listed or search.length_penalty == 0
    is_own = is_own and search.repetition_penalty == 1
    of_rows = {
        "is_known": ops.all(is_known, axis=1),
        "is_whole": is_whole,
        "is_filled": ops.logical_and(~is_padding, place >= prefix),
        "has_end": ops.any(is_end, axis=1),
        "divisor": divisor if search.beams > 1 else ops.ones_like(divisor),
        "is_divisor": ops.full_like(is_whole, is_own or search.beams == 1),
    }
    ids = ops.where(is_known, ids, pad_id)
    logs, target, real = scoring.read({"source": source, "target": ids})
    scores = ops.take_along_axis(logs, ops.expand_dims(target, 2), axis=2)
    place = ops.arange(ops.shape(target)[1], dtype="int32")
    real = ops.logical_and(real, place >= len(search.prefix_ids))
    found = {"is_token": real, "token_score": ops.squeeze(scores, 2)}
    is_plain = (
        search.beams == 1
        and search.repetition_penalty == 1
        and not search.rules
    )
    if is_plain:
        flat = ops.reshape(logs, (-1, logs.shape[-1]))
        early, late = (
            Forbidden(search.end_ids, pad_id, least, search.forbidden_ids)(
                flat, 0
            )
            for least in (1, 0)
        )
        is_early = ops.broadcast_to(
            place - prefix < search.least, ops.shape(target)
        )
        rows = ops.where(ops.reshape(is_early, (-1, 1)), early, late)
        if search.draw is None:
            best = ops.reshape(ops.max(rows, axis=-1), ops.shape(target))
            found["best_score"] = best
        elif noise is not None:
            width = ops.shape(target)[1] - ops.shape(noise)[1]
            level = ops.pad(ops.clip(noise, 0, 1), ((0, 0), (0, width)))
            # The first column of noise is that of the first token.
            level = ops.roll(level, prefix, axis=1)
            is_near = search.draw.nearly_draws(
                rows,
                ops.reshape(level, (-1,)),
                ops.reshape(target, (-1,)),
                _NEAR,
            )
            found["is_near"] = ops.reshape(is_near, ops.shape(target))
    found = {name: x[:, : search.max_length] for name, x in found.items()}
    return {**found, **of_rows}


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
