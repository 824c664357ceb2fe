"""Greedy search, and sampling."""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from keras_posenc.checks import check_positive
from keras_posenc.generation.claim import Claim
from keras_posenc.generation.generated import (
    Forbidden,
    Generated,
    Next,
    check_search,
    in_full,
    is_any,
    log_probabilities,
    with_column,
)
from keras_posenc.generation.repetition import penalize, seen_ids
from keras_posenc.generation.sampling import Sampling
from keras_posenc.ops.arguments import check_shape


def greedy_search(
    next: Next,
    prompt: Any,
    *,
    cache: Any = None,
    index: Any = 1,
    end_ids: Sequence[int] = (),
    pad_id: int = 0,
    min_length: int = 0,
    forbidden_ids: Sequence[int] = (),
    repetition_penalty: float = 1.0,
    claim: Claim | None = None,
    rules: Callable[[Any, Any, Any], Any] | None = None,
) -> Generated:
    """Generates the most likely token each time, until all rows have ended.

    Args:
        next: `next(prompt, cache, index) -> (logits, hidden, cache)`, logits
            `(batch, vocabulary)` of the token at `index`, the same as for
            keras-hub's samplers. `hidden` is not used, and may be None.
        prompt: Integers `(batch, length)`: the tokens before `index`, and free
            columns for those to come.
        cache: What `next` keeps from step to step: tensors in any structure,
            whose shapes do not change.
        index: The column of the first token, an integer or a scalar tensor.
        end_ids: Ids that end a row; padding follows.
        pad_id: The id of padding, which is never chosen.
        min_length: How many tokens at least come before an end symbol.
        forbidden_ids: Other ids that are never chosen, such as the start's.
        repetition_penalty: See `penalize`; above 0.
        claim: Sequences that decide near-ties; see `Claim`.
        rules: `rules(logits, prompt, index)` returns the logits of what may
            follow.

    Returns:
        The sequences, each of the prompt's length.

    Raises:
        ValueError: A prompt without free columns, or an invalid argument.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_posenc.generation.one_by_one import greedy_search
        >>> def count_up(prompt, cache, index):
        ...     last = ops.take(prompt, index - 1, axis=1)
        ...     return 9.0 * ops.one_hot((last + 1) % 5, 5), None, cache
        >>> prompt = np.array([[1, 0, 0, 0, 0], [3, 0, 0, 0, 0]])
        >>> found = greedy_search(count_up, prompt, end_ids=[4])
        >>> print(ops.convert_to_numpy(found.ids))
        [[1 2 3 4 0]
         [3 4 0 0 0]]
    """

    def choose(logits: Any, index: Any) -> Any:
        if claim is not None:
            logits = claim.favored(logits, index)
        # Not argmax: some converters have no operator of its own for it.
        return ops.squeeze(ops.top_k(logits, 1)[1], 1)

    return _one_by_one(
        next,
        prompt,
        choose,
        cache=cache,
        index=index,
        forbidden=Forbidden(end_ids, pad_id, min_length, forbidden_ids),
        repetition_penalty=repetition_penalty,
        rules=rules,
    )


def sample(
    next: Next,
    prompt: Any,
    *,
    noise: Any,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    cache: Any = None,
    index: Any = 1,
    end_ids: Sequence[int] = (),
    pad_id: int = 0,
    min_length: int = 0,
    forbidden_ids: Sequence[int] = (),
    repetition_penalty: float = 1.0,
    claim: Claim | None = None,
    rules: Callable[[Any, Any, Any], Any] | None = None,
) -> Generated:
    """Samples tokens from the model's distribution, until all have ended.

    Args:
        next: As for `greedy_search`.
        prompt: As for `greedy_search`.
        noise: Floats in [0, 1), `(batch, steps)`, with a column for each
            column of the prompt from `index` on. The same noise samples the
            same tokens.
        temperature: See `Sampling`.
        top_k: See `Sampling`.
        top_p: See `Sampling`.
        min_p: See `Sampling`.
        cache: As for `greedy_search`.
        index: As for `greedy_search`.
        end_ids: As for `greedy_search`.
        pad_id: As for `greedy_search`.
        min_length: As for `greedy_search`.
        forbidden_ids: As for `greedy_search`.
        repetition_penalty: As for `greedy_search`.
        claim: As for `greedy_search`.
        rules: As for `greedy_search`.

    Returns:
        The sequences. Their scores are of the unrestricted distribution.

    Raises:
        ValueError: As `greedy_search`, and for noise of another shape.
    """
    draw = Sampling(temperature, top_k, top_p, min_p)
    prompt = ops.convert_to_tensor(prompt)
    noise = ops.convert_to_tensor(noise)
    start = ops.cast(index, "int32")
    check_shape(
        "noise",
        noise,
        ("batch", "steps"),
        sizes={"batch": prompt.shape[0], "steps": None},
    )

    def choose(logits: Any, index: Any) -> Any:
        level = ops.take(noise, index - start, axis=1)
        tokens = draw(logits, level)
        if claim is None:
            return tokens
        claimed = claim.tokens(index)
        is_near = draw.distance(logits, level, claimed) <= claim.tolerance
        is_claimed = ops.logical_or(is_near, claim.is_forced)
        return ops.where(is_claimed, claimed, tokens)

    return _one_by_one(
        next,
        prompt,
        choose,
        cache=cache,
        index=index,
        forbidden=Forbidden(end_ids, pad_id, min_length, forbidden_ids),
        repetition_penalty=repetition_penalty,
        rules=rules,
    )


class Allowed:
    """Makes impossible what may not be the next token.

    Args:
        forbidden: The ids that may not be chosen.
        repetition_penalty: See `penalize`.
        rules: As for `greedy_search`.
    """

    def __init__(
        self,
        forbidden: Forbidden,
        repetition_penalty: float = 1.0,
        rules: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        check_positive("repetition_penalty", repetition_penalty)
        self.forbidden = forbidden
        self.repetition_penalty = repetition_penalty
        self.rules = rules

    def __call__(
        self, logits: Any, *, prompt: Any, index: Any, start: Any
    ) -> Any:
        """Returns logits `(batch, vocabulary)` to choose the next token by.

        Args:
            logits: Floats of this shape.
            prompt: Integers `(batch, length)`, filled before `index`.
            index: The column of the next token.
            start: The column of the first token that is generated.
        """
        logits = in_full(logits)
        if self.repetition_penalty != 1:
            seen = seen_ids(prompt, logits.shape[-1], before=index)
            logits = penalize(logits, seen, self.repetition_penalty)
        logits = self.forbidden(logits, index - start)
        if self.rules is not None:
            logits = self.rules(logits, prompt, index)
        return logits


def _one_by_one(
    next: Next,
    prompt: Any,
    choose: Callable[[Any, Any], Any],
    *,
    cache: Any,
    index: Any,
    forbidden: Forbidden,
    repetition_penalty: float,
    rules: Callable[[Any, Any, Any], Any] | None,
) -> Generated:
    prompt = ops.convert_to_tensor(prompt)
    check_search(prompt, index, forbidden.end_ids, forbidden.pad_id)
    allowed = Allowed(forbidden, repetition_penalty, rules)
    prompt = ops.cast(prompt, "int32")
    length = prompt.shape[1] or ops.shape(prompt)[1]
    start = ops.cast(index, "int32")

    def unfinished(
        index: Any, prompt: Any, scores: Any, ended: Any, cache: Any
    ) -> Any:
        return ops.logical_and(
            ops.less(index, length), ops.logical_not(ops.all(ended))
        )

    def step(
        index: Any, prompt: Any, scores: Any, ended: Any, cache: Any
    ) -> tuple[Any, ...]:
        logits, _, cache = next(prompt, cache, index)
        scores_of_all = log_probabilities(logits)
        logits = allowed(logits, prompt=prompt, index=index, start=start)
        tokens = ops.cast(choose(logits, index), "int32")
        gained = ops.take_along_axis(
            scores_of_all, ops.expand_dims(tokens, 1), axis=1
        )
        gained = ops.squeeze(gained, 1)
        tokens = ops.where(ended, forbidden.pad_id, tokens)
        gained = ops.where(ended, ops.zeros_like(gained), gained)
        prompt = with_column(prompt, index, tokens)
        scores = with_column(scores, index, gained)
        ended = ops.logical_or(ended, is_any(tokens, forbidden.end_ids))
        return index + 1, prompt, scores, ended, cache

    # The columns from `index` on are free, whatever they contain.
    room = ops.expand_dims(ops.arange(length, dtype="int32") >= start, 0)
    prompt = ops.where(room, forbidden.pad_id, prompt)
    has_cache = cache is not None
    _, prompt, scores, _, _ = ops.while_loop(
        unfinished,
        step,
        (
            start,
            prompt,
            ops.zeros_like(prompt, dtype="float32"),
            ops.zeros_like(prompt[:, 0], dtype="bool"),
            cache if has_cache else (),
        ),
    )
    return Generated(prompt, ops.sum(scores, axis=1), scores)
