"""Checks of a generator's arguments, alone and together."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checks import (
    check_integer,
    check_positive,
    check_positive_int,
    is_number,
)
from keras_posenc.generation.sampling import Sampling, check_temperature

# If any of these is given, tokens are sampled.
SAMPLING = ("temperature", "top_k", "top_p", "min_p")


def check_options(
    *,
    vocabulary: int,
    max_length: Any,
    beams: Any,
    n_best: Any,
    length_penalty: Any,
    sampling: dict[str, Any],
    seed: Any,
    repetition_penalty: Any,
    min_length: Any,
    start_id: Any,
    end_ids: Sequence[int],
    prefix_ids: Sequence[int],
    may_repeat_start: bool,
    may_penalize_beams: bool,
    pad_id: int,
) -> Sampling | None:
    """Returns the `Sampling`; None where no tokens are sampled.

    Raises:
        ValueError: An invalid option, or two that exclude each other.
    """
    check_positive_int("max_length", max_length)
    check_positive_int("beams", beams)
    if beams > vocabulary:
        raise ValueError(
            "`beams` must be at most the number of ids, "
            f"{vocabulary}. Received: beams={beams}"
        )
    check_n_best(n_best, beams)
    check_length_penalty(length_penalty)
    check_positive("repetition_penalty", repetition_penalty)
    if seed is not None:
        check_integer("seed", seed)
    if start_id is not None:
        check_integer("start_id", start_id)
    given = {k: v for k, v in sampling.items() if v is not None}
    is_greedy = is_zero(given.get("temperature"))
    if is_greedy:
        del given["temperature"]
    elif "temperature" in given:
        check_temperature(
            given["temperature"], "0, for the most likely token each time, or "
        )
    draw = Sampling(**given) if given else None
    if is_greedy:  # no other restriction excludes the most likely token
        draw = None
    if beams > 1 and draw is not None:
        name, value = next(iter(given.items()))
        raise ValueError(
            f"`{name}` is an option of sampling, which generates one token at "
            "a time and cannot be used with beams. Received: "
            f"{name}={value!r}, beams={beams}"
        )
    if beams > 1 and repetition_penalty != 1 and not may_penalize_beams:
        raise ValueError(
            "`repetition_penalty` cannot be used with beams, which are ranked "
            "by the model's likelihoods. Give beams=1, or "
            "repetition_penalty=1. Received: "
            f"repetition_penalty={repetition_penalty}, beams={beams}"
        )
    if length_penalty and beams == 1:
        raise ValueError(
            "`length_penalty` ranks beams, and there is only one. "
            f"Received: length_penalty={length_penalty}, beams=1"
        )
    if seed is not None and draw is None:
        raise ValueError(
            "`seed` is an option of sampling: give one of "
            f"{', '.join(SAMPLING)} too, and no temperature of 0. "
            f"Received: seed={seed!r}"
        )
    if start_id in end_ids and not may_repeat_start:
        raise ValueError(
            "`start_id` must not be one of `end_ids`: a sequence would end "
            f"where it starts. Received: start_id={start_id}, "
            f"end_ids={tuple(end_ids)}"
        )
    _check_ids(vocabulary, start_id, end_ids, prefix_ids, pad_id)
    if len(prefix_ids) >= max_length:
        raise ValueError(
            "`prefix_ids` must be fewer than `max_length`, which counts them. "
            f"Received: {len(prefix_ids)} prefix_ids, max_length={max_length}"
        )
    if not 0 <= check_integer("min_length", min_length) < max_length:
        raise ValueError(
            "`min_length` must be an integer in [0, max_length), with "
            f"max_length={max_length}. Received: min_length={min_length!r}"
        )
    return draw


def is_zero(temperature: Any) -> bool:
    """Returns whether a temperature is that of the most likely token."""
    return is_number(temperature) and temperature == 0


def check_ids(name: str, value: Any) -> tuple[int, ...]:
    """Returns one id or several as a tuple; an empty one for None.

    Raises:
        ValueError: Something is not an id.
    """
    if value is None:
        return ()
    is_one = isinstance(value, str | bytes) or not hasattr(value, "__iter__")
    try:
        several = [value] if is_one else value
        return tuple(check_integer(name, each) for each in several)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be an id or several. Received: {name}={value!r}"
        ) from None


def _check_ids(
    vocabulary: int,
    start_id: int | None,
    end_ids: Sequence[int],
    prefix_ids: Sequence[int],
    pad_id: int,
) -> None:
    start = () if start_id is None else (start_id,)
    for name, ids in (
        ("start_id", start),
        ("end_ids", end_ids),
        ("prefix_ids", prefix_ids),
    ):
        for each in ids:
            if not 0 <= each < vocabulary or each == pad_id:
                raise ValueError(
                    f"`{name}` must be of the model's ids, "
                    f"{1 if pad_id == 0 else 0} to {vocabulary - 1}; {pad_id} "
                    "is padding. Received: "
                    f"{name}={each if name == 'start_id' else tuple(ids)}"
                )
    if ends := set(prefix_ids).intersection(end_ids):
        raise ValueError(
            "`prefix_ids` must contain none of `end_ids`, which end a "
            f"sequence. Received: {min(ends)} in prefix_ids={prefix_ids} and "
            f"in end_ids={tuple(end_ids)}"
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
