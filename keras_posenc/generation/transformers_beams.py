"""Beam search by the rules of the library transformers."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_posenc.generation.beam_search import take_rows
from keras_posenc.generation.claim import Claim
from keras_posenc.generation.generated import (
    IMPOSSIBLE,
    Forbidden,
    Generated,
    Next,
    is_any,
    log_probabilities,
    with_column,
)
from keras_posenc.generation.repetition import penalize, seen_ids
from keras_posenc.generation.transformers_rules import Rules
from keras_posenc.ops.reductions import smallest

# What transformers adds to scores that must not be chosen. With its own number
# ties are its own too.
_OUT = -1e9


def transformers_beam_search(
    next: Next,
    prompt: Any,
    *,
    beams: int,
    n_best: int,
    length_penalty: float,
    early_stopping: bool | str,
    rules: Rules,
    cache: Any,
    index: Any,
    end_ids: Sequence[int],
    pad_id: int,
    min_length: int,
    forbidden_ids: Sequence[int],
    before: int = 0,
    repetition_penalty: float = 1.0,
    renormalize_logits: bool = False,
    claim: Claim | None = None,
) -> Generated:
    """Keeps `beams` open sequences, and the `beams` best that have ended.

    Unlike in `beam_search`, a sequence that ends leaves its place to an open
    one, scores are divided by `n ** length_penalty`, and the search usually
    ends before it is certain that no open sequence becomes better.

    Args:
        next: As for `beam_search`, and the following ones too.
        prompt: As for `beam_search`.
        beams: As for `beam_search`.
        n_best: As for `beam_search`.
        length_penalty: The power of a sequence's length that divides its score.
        early_stopping: True ends a search with `beams` sequences; "never" only
            where no open one can become better; False, the default of
            transformers, if none would be better with its present length.
        rules: Further rules of which tokens may follow.
        cache: As for `beam_search`.
        index: As for `beam_search`.
        end_ids: As for `beam_search`.
        pad_id: As for `beam_search`.
        min_length: As for `beam_search`.
        forbidden_ids: As for `beam_search`.
        before: How many columns before `index` count as generated.
        repetition_penalty: See `penalize`; of log-probabilities, as in
            transformers.
        renormalize_logits: Whether probabilities sum to 1 again once some ids
            are made impossible.
        claim: As for `beam_search`.

    Returns:
        As `beam_search`. With a `repetition_penalty` sequences are ranked by
        penalized log-probabilities, and `score` is of these; `token_score` is
        the model's own.
    """
    forbidden = Forbidden(end_ids, pad_id, min_length, forbidden_ids)
    prompt = ops.cast(ops.convert_to_tensor(prompt), "int32")
    batch = prompt.shape[0] or ops.shape(prompt)[0]
    length = prompt.shape[1] or ops.shape(prompt)[1]
    start = ops.cast(index, "int32")
    size = batch if isinstance(batch, int) else -1
    first_rows = ops.expand_dims(ops.arange(batch, dtype="int32") * beams, 1)

    def by_beam(x: Any) -> Any:  # (batch * beams, ...) -> (batch, beams, ...)
        return ops.reshape(x, (size, beams, *ops.shape(x)[1:]))

    def penalized(scores: Any, count: Any) -> Any:
        count = ops.cast(count + before, "float32")
        return scores / ops.power(count, length_penalty)

    def out(where: Any) -> Any:
        return ops.cast(where, "float32") * _OUT

    def unfinished(
        index: Any, open_beams: Any, done: Any, goes_on: Any, cache: Any
    ) -> Any:
        *_, is_done, possible = done
        goes_on = ops.logical_and(goes_on, ops.any(possible))
        if early_stopping is True:
            goes_on = ops.logical_and(
                goes_on, ops.logical_not(ops.all(is_done))
            )
        return ops.logical_and(goes_on, ops.less(index, length))

    def step(
        index: Any, open_beams: Any, done: Any, goes_on: Any, cache: Any
    ) -> tuple[Any, ...]:
        prompt, scores, totals = open_beams
        done_ids, done_scores, ranks, is_done, possible = done
        logits, _, cache = next(prompt, cache, index)
        vocabulary = logits.shape[-1]
        gains = own = ops.cast(log_probabilities(logits), "float32")
        if repetition_penalty != 1:
            seen = seen_ids(prompt, vocabulary, before=index)
            gains = penalize(gains, seen, repetition_penalty)
        gains = rules(forbidden(gains, index - start), prompt, index)
        if renormalize_logits:
            gains = log_probabilities(gains)
        gains, own = by_beam(gains), by_beam(own)
        candidates = ops.expand_dims(totals, 2) + gains
        favored = candidates
        if claim is not None:
            favored = claim.favored_beams(favored, prompt, index)
        shown = gains if repetition_penalty == 1 else own
        candidates, favored, shown = (
            ops.reshape(x, (size, beams * vocabulary))
            for x in (candidates, favored, shown)
        )
        # Enough that as many as there are beams do not end.
        count = min(max(2, 1 + len(end_ids)) * beams, beams * vocabulary)
        places = ops.cast(ops.top_k(favored, count)[1], "int32")
        parents = places // vocabulary  # (batch, count)
        tokens = places - parents * vocabulary
        totals, favored, gained = (
            ops.take_along_axis(x, places, axis=1)
            for x in (candidates, favored, shown)
        )
        is_last = ops.equal(index, length - 1)
        is_end = ops.logical_or(is_any(tokens, end_ids), is_last)

        rows = ops.reshape(first_rows + parents, (-1,))  # (batch * count,)

        def extended(buffer: Any, values: Any) -> Any:
            found = ops.take(buffer, rows, axis=0)
            found = with_column(found, index, ops.reshape(values, (-1,)))
            return ops.reshape(found, (size, count, *ops.shape(found)[1:]))

        ids, per_token = extended(prompt, tokens), extended(scores, gained)
        # Those that have ended, with the ones before: the best stay.
        is_among = ops.arange(count, dtype="int32") < beams
        ends_now = ops.logical_and(is_end, ops.expand_dims(is_among, 0))
        is_full = ops.all(is_done, axis=1, keepdims=True)
        late = ops.logical_not(possible)
        if early_stopping is True:
            late = ops.logical_or(late, is_full)
        new = penalized(totals, index - start + 1)
        new = new + out(late) + out(ops.logical_not(ends_now))
        all_ranks = ops.concatenate([ranks, new], axis=1)
        all_ids = ops.concatenate([done_ids, ids], axis=1)
        preferred = all_ranks
        if claim is not None:
            preferred = claim.favored_sequences(all_ranks, all_ids)
        best = ops.cast(ops.top_k(preferred, beams)[1], "int32")
        all_scores = ops.concatenate([done_scores, per_token], axis=1)
        wide = ops.expand_dims(best, 2)
        done_ids = ops.take_along_axis(all_ids, wide, axis=1)
        done_scores = ops.take_along_axis(all_scores, wide, axis=1)
        ranks = ops.take_along_axis(all_ranks, best, axis=1)
        is_done = ops.take_along_axis(
            ops.concatenate([is_done, ends_now], axis=1), best, axis=1
        )
        # Those that continue.
        kept = ops.cast(ops.top_k(favored + out(is_end), beams)[1], "int32")
        wide = ops.expand_dims(kept, 2)
        prompt = ops.reshape(
            ops.take_along_axis(ids, wide, axis=1), (-1, ops.shape(prompt)[1])
        )
        scores = ops.reshape(
            ops.take_along_axis(per_token, wide, axis=1),
            (-1, ops.shape(scores)[1]),
        )
        totals = ops.take_along_axis(totals + out(is_end), kept, axis=1)
        rows = ops.reshape(
            first_rows + ops.take_along_axis(parents, kept, axis=1), (-1,)
        )
        reached = index - start + 1
        if early_stopping == "never" and length_penalty > 0:
            reached = length - start
        reach = penalized(totals[:, :1], reached)  # (batch, 1)
        least = smallest(ranks, axis=1, keepdims=True)
        least = ops.where(is_done, least, _OUT)
        possible = ops.logical_and(
            possible, ops.any(reach > least, axis=1, keepdims=True)
        )
        return (
            index + 1,
            (prompt, scores, totals),
            (done_ids, done_scores, ranks, is_done, possible),
            ops.logical_not(ops.all(is_end)),
            take_rows(cache, rows),
        )

    room = ops.expand_dims(ops.arange(length, dtype="int32") >= start, 0)
    prompt = ops.where(room, pad_id, prompt)
    rows = ops.repeat(ops.arange(batch, dtype="int32"), beams)
    prompt = ops.take(prompt, rows, axis=0)
    scores = ops.zeros_like(prompt, dtype="float32")
    # All beams are equal at first: all except one must not count.
    first = ops.equal(ops.arange(beams, dtype="int32"), 0)
    totals = ops.where(first, 0.0, _OUT)
    wide = (batch, beams)
    totals = ops.broadcast_to(ops.expand_dims(totals, 0), wide)
    done = (
        by_beam(prompt),
        by_beam(scores),
        ops.full(wide, _OUT, "float32"),
        ops.zeros(wide, "bool"),
        ops.ones((batch, 1), "bool"),
    )
    _, _, (ids, scores, ranks, _, _), _, _ = ops.while_loop(
        unfinished,
        step,
        (
            start,
            (prompt, scores, ops.cast(totals, "float32")),
            done,
            ops.ones((), "bool"),
            () if cache is None else take_rows(cache, rows),
        ),
    )
    # False for NaN, which a broken model gives.
    exists = ranks > _OUT / 2
    wide_exists = ops.expand_dims(exists, 2)
    room = ops.expand_dims(room, 0)
    ids = ops.where(
        ops.logical_or(wide_exists, ops.logical_not(room)), ids, pad_id
    )
    return Generated(
        ids[:, :n_best],
        ops.where(exists, ranks, IMPOSSIBLE)[:, :n_best],
        ops.where(wide_exists, scores, 0.0)[:, :n_best],
    )
