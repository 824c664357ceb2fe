"""Beam search."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int, is_number
from keras_posenc.generation.claim import Claim
from keras_posenc.generation.generated import (
    IMPOSSIBLE,
    Forbidden,
    Generated,
    Next,
    check_search,
    is_any,
    log_probabilities,
    with_column,
)
from keras_posenc.ops.reductions import largest, smallest


def beam_search(
    next: Next,
    prompt: Any,
    *,
    beams: int,
    n_best: int = 1,
    length_penalty: float = 0.0,
    cache: Any = None,
    index: Any = 1,
    end_ids: Sequence[int] = (),
    pad_id: int = 0,
    min_length: int = 0,
    forbidden_ids: Sequence[int] = (),
    claim: Claim | None = None,
) -> Generated:
    """Keeps the `beams` best partial sequences of each prompt, step by step.

    Partial sequences ("beams") are ranked by their log-likelihood divided by
    ((5 + n) / 6) ** length_penalty, with n the tokens after the prompt, the
    end symbol included. One that has ended keeps its score, and stays as long
    as no other is better. The search ends when no open beam can still exceed
    the best that have ended.

    Args:
        next: As for `greedy_search`, called with `batch * beams` rows.
        prompt: As for `greedy_search`.
        beams: How many beams are kept for each prompt.
        n_best: How many sequences are returned for each prompt.
        length_penalty: At least 0, which is none; the paper uses 0.6.
        cache: As for `greedy_search`, of `batch` rows.
        index: As for `greedy_search`.
        end_ids: As for `greedy_search`.
        pad_id: As for `greedy_search`.
        min_length: As for `greedy_search`.
        forbidden_ids: As for `greedy_search`.
        claim: As for `greedy_search`.

    Returns:
        Sequences `(batch, n_best, length)`, the best first. If fewer exist,
        the missing ones are padding, and their score is the lowest float32.

    Raises:
        ValueError: A prompt without free columns, or an invalid argument.

    References:
        - Wu et al. 2016, [Google's Neural Machine Translation System](
          https://arxiv.org/abs/1609.08144): the length penalty
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1
    """
    check_positive_int("beams", beams)
    check_n_best(n_best, beams)
    check_length_penalty(length_penalty)
    prompt = ops.convert_to_tensor(prompt)
    check_search(prompt, index, end_ids, pad_id)
    forbidden = Forbidden(end_ids, pad_id, min_length, forbidden_ids)

    prompt = ops.cast(prompt, "int32")
    batch = prompt.shape[0] or ops.shape(prompt)[0]
    length = prompt.shape[1] or ops.shape(prompt)[1]
    start = ops.cast(index, "int32")

    # TensorFlow's loops need a size that is known not to change.
    size = batch if isinstance(batch, int) else -1

    def by_beam(x: Any) -> Any:  # (batch * beams, ...) -> (batch, beams, ...)
        return ops.reshape(x, (size, beams, *ops.shape(x)[1:]))

    def penalty(count: Any) -> Any:
        count = ops.cast(count, "float32")
        return ops.power((5.0 + count) / 6.0, length_penalty)

    first_rows = ops.expand_dims(
        ops.arange(batch, dtype="int32") * beams, 1
    )  # (batch, 1)

    def unfinished(
        index: Any,
        prompt: Any,
        scores: Any,
        state: Any,
        cache: Any,
    ) -> Any:
        totals, counts, ended = state  # (batch, beams) each, the best first
        # An open beam's score only falls, but its penalty may become milder.
        reach = totals / penalty(length - start)
        reach = largest(ops.where(ended, IMPOSSIBLE, reach), axis=1)
        worst = ops.where(ended, totals / penalty(counts), IMPOSSIBLE)
        worst = smallest(worst[:, :n_best], axis=1)
        return ops.logical_and(
            ops.less(index, length), ops.any(ops.less(worst, reach))
        )

    def step(
        index: Any,
        prompt: Any,
        scores: Any,
        state: Any,
        cache: Any,
    ) -> tuple[Any, ...]:
        totals, counts, ended = state
        logits, _, cache = next(prompt, cache, index)
        vocabulary = logits.shape[-1]
        # Scores that are kept from step to step are float32.
        gains = ops.cast(log_probabilities(logits), "float32")
        gains = by_beam(forbidden(gains, index - start))
        # A beam that has ended continues with padding, at no cost: in the
        # place of id 0 if padding is no id of the vocabulary.
        is_pad = ops.equal(
            ops.arange(vocabulary, dtype="int32"), max(pad_id, 0)
        )
        free = ops.cast(
            ops.where(is_pad, 0.0, IMPOSSIBLE), "float32"
        )  # (vocabulary,)
        gains = ops.where(
            ops.expand_dims(ended, 2), ops.reshape(free, (1, 1, -1)), gains
        )
        candidates = ops.expand_dims(totals, 2) + gains
        lengths = counts + ops.cast(ops.logical_not(ended), "int32")
        ranks = candidates / ops.expand_dims(penalty(lengths), 2)
        if claim is not None:
            # A penalty would raise the score of what is impossible.
            ranks = ops.where(candidates > IMPOSSIBLE, ranks, IMPOSSIBLE)
            ranks = claim.favored_beams(ranks, prompt, index)
        # (batch, beams, vocabulary) -> (batch, beams * vocabulary)
        ranks, candidates, gains = (
            ops.reshape(x, (size, beams * vocabulary))
            for x in (ranks, candidates, gains)
        )
        places = ops.cast(ops.top_k(ranks, beams)[1], "int32")
        parents = places // vocabulary  # (batch, beams)
        tokens = places - parents * vocabulary

        def of_parents(x: Any) -> Any:
            return ops.take_along_axis(x, parents, axis=1)

        was_ended = of_parents(ended)
        if pad_id < 0:
            tokens = ops.where(was_ended, pad_id, tokens)
        rows = ops.reshape(first_rows + parents, (-1,))
        gained = ops.reshape(ops.take_along_axis(gains, places, axis=1), (-1,))
        prompt = with_column(
            ops.take(prompt, rows, axis=0), index, ops.reshape(tokens, (-1,))
        )
        scores = with_column(ops.take(scores, rows, axis=0), index, gained)
        state = (
            ops.take_along_axis(candidates, places, axis=1),
            of_parents(lengths),
            ops.logical_or(was_ended, is_any(tokens, end_ids)),
        )
        return index + 1, prompt, scores, state, take_rows(cache, rows)

    room = ops.expand_dims(ops.arange(length, dtype="int32") >= start, 0)
    prompt = ops.where(room, pad_id, prompt)
    # (batch, beams) -> (batch * beams,)
    rows = ops.repeat(ops.arange(batch, dtype="int32"), beams)
    prompt = ops.take(prompt, rows, axis=0)
    # All beams are equal at first: all except one must not count.
    alive = ops.equal(ops.arange(beams, dtype="int32"), 0)
    totals = ops.broadcast_to(
        ops.expand_dims(ops.where(alive, 0.0, IMPOSSIBLE), 0), (batch, beams)
    )
    state = (
        ops.cast(totals, "float32"),
        ops.zeros((batch, beams), "int32"),
        ops.zeros((batch, beams), "bool"),
    )
    _, prompt, scores, (totals, counts, _), _ = ops.while_loop(
        unfinished,
        step,
        (
            start,
            prompt,
            ops.zeros_like(prompt, dtype="float32"),
            state,
            () if cache is None else take_rows(cache, rows),
        ),
    )
    # False for NaN, which a broken model gives.
    exists = totals > IMPOSSIBLE
    ranks = ops.where(exists, totals / penalty(counts), IMPOSSIBLE)
    exists = ops.reshape(exists, (-1, 1))  # (batch * beams, 1)
    ids = ops.where(
        ops.logical_or(exists, ops.logical_not(room)), prompt, pad_id
    )
    scores = ops.where(exists, scores, ops.zeros_like(scores))
    return Generated(
        by_beam(ids)[:, :n_best],
        ranks[:, :n_best],
        by_beam(scores)[:, :n_best],
    )


def take_rows(cache: Any, rows: Any) -> Any:
    """Returns these rows of all tensors in a structure that have any axes."""
    return keras.tree.map_structure(
        lambda x: ops.take(x, rows, axis=0) if len(x.shape) else x, cache
    )


def check_n_best(n_best: Any, beams: int) -> int:
    """Returns `n_best` if it is of 1 to `beams`, else `ValueError`."""
    check_positive_int("n_best", n_best)
    if n_best > beams:
        raise ValueError(
            f"`n_best` must be at most the number of beams, {beams}. "
            f"Received: n_best={n_best}"
        )
    return int(n_best)


def check_length_penalty(value: Any) -> float:
    """Returns `value` if it is a finite number from 0, else `ValueError`."""
    if not is_number(value) or not 0 <= value < float("inf"):
        raise ValueError(
            "`length_penalty` must be a finite number of at least 0. "
            f"Received: length_penalty={value!r}"
        )
    return float(value)
