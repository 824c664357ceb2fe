"""Likelihoods, in a generator, of sequences of others, such as an export's.

A quantized file may choose another token where two are nearly equally likely,
and every later token may then differ. So its sequences are not compared with
the model's, but read by the model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.generation.decoding import Decoding
from keras_posenc.generation.generated import (
    IMPOSSIBLE,
    is_any,
    log_probabilities,
    refusable,
)
from keras_posenc.generation.scoring import Scoring
from keras_posenc.generation.search import Search
from keras_posenc.ops.reductions import largest

# 512 tokens: the mean divergence is then known to a few percent.
_TEXTS = 8
_TOKENS = 64


def rescored(
    search: Search, scoring: Scoring, source: Any, ids: Any
) -> dict[str, Any]:
    """Returns how likely the model finds generated tokens, `(rows, length)`.

    Of bool `(rows,)`: whether a row has only ids that the model has, after the
    prefix (`is_known`), ends with an end symbol or is full (`is_whole`), has
    each id only where it may follow (`is_allowed`), and has an end symbol
    (`has_end`). What its score is divided by, `divisor`, and whether that is
    exact. And of each place whether it is generated (`is_token`), its
    log-likelihood (`token_score`), and, if the search takes the most likely
    token, how much less likely it is (`lost`).
    """
    ids = ops.cast(ids, "int32")
    if len(ids.shape) == 3:
        source = ops.repeat(source, ops.shape(ids)[1], axis=0)
        ids = ops.reshape(ids, (-1, ops.shape(ids)[2]))
    decoding = search.decoding
    prefix = len(decoding.prefix_ids)
    place = ops.arange(ops.shape(ids)[1], dtype="int32")
    is_padding = ops.equal(ids, scoring.pad_id)
    is_end = is_any(ids, decoding.end_ids)
    is_known = ((ids >= 0) & (ids < search.vocabulary)) | is_padding
    start = ops.array([decoding.prefix_ids], "int32")
    is_start = ops.all(ops.equal(ids[:, :prefix], start), axis=1)
    # After an end symbol, and nowhere else, there is padding.
    is_over = is_padding | (is_end & (place >= prefix))
    is_whole = ops.all(ops.equal(is_padding[:, 1:], is_over[:, :-1]), axis=1)
    is_token = ~is_padding & (place >= prefix)
    found = _replayed(
        search, scoring, source, ops.where(is_known, ids, scoring.pad_id)
    )
    count = ops.sum(ops.cast(is_token, "float32"), axis=1)
    divisor, is_divisor = ops.ones_like(count), True
    if decoding.beams > 1:
        length = ops.maximum(count, 1.0)
        way: Any = search.way(None)
        divisor = 1 / way.divided(divisor, length)
        # Transformers divides by the length at another step, and penalties
        # change its sums.
        is_divisor = decoding.repetition_penalty == 1 and (
            type(decoding) is Decoding or decoding.length_penalty == 0
        )
    return {
        **found,
        "is_token": is_token,
        "is_known": ops.all(is_known, axis=1) & is_start,
        "is_whole": is_whole & ~is_padding[:, 0],
        "is_allowed": ops.all(found["is_allowed"] | ~is_token, axis=1),
        "has_end": ops.any(is_end, axis=1),
        "divisor": divisor,
        "is_divisor": ops.full_like(is_whole, is_divisor),
    }


def _replayed(
    search: Search, scoring: Scoring, source: Any, ids: Any
) -> dict[str, Any]:
    """Returns what a search finds if it takes these tokens, one by one."""
    decoding = search.decoding
    prefix, has_beams = len(decoding.prefix_ids), decoding.beams > 1
    allowed = search.allowed()
    penalty = max(decoding.repetition_penalty, 1 / decoding.repetition_penalty)
    prompt = search.prompt(
        refusable(source, search.model.vocabulary_size, search.model.pad_id)
    )
    start = ops.shape(prompt)[1]
    prompt = ops.concatenate([prompt, ids[:, prefix:]], axis=1)

    def of_place(given: dict[str, Any]) -> dict[str, Any]:
        logits = given["logits"]
        tokens = ops.expand_dims(given["tokens"], 1)

        def of_tokens(x: Any) -> Any:
            return ops.squeeze(ops.take_along_axis(x, tokens, axis=1), 1)

        scores = log_probabilities(logits)
        rows = allowed(
            scores if has_beams else logits,
            prompt=prompt,
            index=start + given["place"] - prefix,
            start=start,
        )
        best, chosen = largest(rows, axis=1), of_tokens(rows)
        found = {
            # Where nothing is allowed, any token is.
            "is_allowed": ops.logical_or(
                chosen > IMPOSSIBLE, best <= IMPOSSIBLE
            )
        }
        if has_beams:
            if getattr(decoding, "renormalize_logits", False):
                rows = log_probabilities(rows)
            if decoding.repetition_penalty == 1:
                scores = rows
        elif decoding.draw is None:
            # A penalty scales what rounding moves too.
            found["lost"] = ops.where(
                found["is_allowed"], (best - chosen) / penalty, 0.0
            )
        found["token_score"] = of_tokens(scores)
        return found

    by_row = {
        "logits": scoring.logits(source, ids, decoding.removed_ids),
        "tokens": ops.maximum(ids, 0),  # padding may be no id
    }
    by_place = {name: ops.swapaxes(x, 0, 1) for name, x in by_row.items()}
    by_place["place"] = ops.arange(ops.shape(ids)[1], dtype="int32")
    found = ops.map(of_place, by_place)
    return {name: ops.swapaxes(x, 0, 1) for name, x in found.items()}


def drawn_pairs(
    search: Search,
    given: Sequence[np.ndarray],
    run: Callable[..., np.ndarray],
) -> Iterator[tuple[dict[str, np.ndarray], bool]]:
    """Yields pairs of `source` and `target`, to measure likelihoods on.

    With each, whether the model has sampled the target: such targets are
    typical of its language, and the mean difference of their log-likelihoods
    estimates the KL divergence. Else it is the second half of a given prompt.
    `run` takes a function of tensors, and arrays.
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
        noise = np.random.default_rng(0).random((len(ids), room), "float32")
        ids = ids.astype("int32")
        target = run(sampler(search, room), ids, noise)
        yield {"source": ids, "target": target}, True
        # One alone, and after a long text, of which the others are pieces.
        yield {"source": ids[:1], "target": target[:1]}, True
        long = target[1:].reshape(1, -1)
        if not search.has_encoder and long.size + room <= (
            model.max_positions or math.inf
        ):
            yield {"source": long, "target": target[:1]}, False


def sampler(search: Search, count: int) -> Callable[[Any, Any], Any]:
    """Returns what samples `count` tokens, of ids and noise."""
    sampled = plain_search(search, count, temperature=1.0)
    return lambda ids, noise: sampled(ids, noise=noise)["ids"]


def plain_search(search: Search, count: int, **options: Any) -> Search:
    """Returns a search of the same model with no options but these."""
    # Of a checkpoint, a start symbol may be an end symbol too.
    decoding = type(search.decoding)(
        max_length=count,
        start_id=search.decoding.start_id,
        end_ids=search.decoding.end_ids,
        **options,
    )
    return Search(search.model, decoding, generated_ids=search.generated_ids)


def _invented(search: Search) -> np.ndarray:
    """Returns one token for each text, or some for each source."""
    rng = np.random.default_rng(0)
    vocabulary = search.model.vocabulary_size
    shape = (_TEXTS, 8 if search.has_encoder else 1)
    ids = rng.integers(1, vocabulary, shape, "int32")
    # Nothing follows an end symbol.
    return np.where(np.isin(ids, search.decoding.end_ids), vocabulary - 1, ids)
