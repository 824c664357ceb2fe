"""Texts that a model samples, to measure the likelihoods of an export on."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_posenc.generation.search import Search

# 512 tokens: the mean divergence is then known to a few percent.
_TEXTS = 8
_TOKENS = 64


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
