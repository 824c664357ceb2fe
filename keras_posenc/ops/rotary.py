"""Rotary embeddings: pairs of features, rotated by angles of positions.

Scalings have the names of Hugging Face's `rope_parameters`. Frequencies are
NumPy in float64, computed once for each layer, before any graph.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.checks import (
    as_integer,
    check_bool,
    check_choice,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.reductions import largest
from keras_posenc.ops.sinusoids import (
    LIMIT,
    Phases,
    add_angles,
    split_positions,
)
from keras_posenc.ops.tables import kept_table, rows_of
from keras_posenc.ops.turns import angles, learned_turns, time_digits

LENGTH = "original_max_position_embeddings"
SHARE = "partial_rotary_factor"
# The keys that each type requires.
REQUIRED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", LENGTH),
    "yarn": ("factor", LENGTH),
    "longrope": ("factor", LENGTH, "short_factor", "long_factor"),
    "llama3": ("factor", LENGTH, "low_freq_factor", "high_freq_factor"),
    "proportional": (SHARE,),
    "clipped": ("clipped_pairs",),
}
# Its optional keys: for frequencies, and for the attention factor.
_RAMP = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
OPTIONAL = {
    "yarn": (*_RAMP, "attention_factor", "mscale", "mscale_all_dim"),
    "longrope": ("attention_factor",),
    "proportional": ("factor",),
}
# The types whose frequencies depend on the length of a row.
BY_LENGTH = ("dynamic", "longrope")
_LISTS = ("short_factor", "long_factor")
_SECTIONS, _INTERLEAVED = "mrope_section", "mrope_interleaved"


def rotate_pairs(x: Any, *, sine: Any, cosine: Any, layout: str) -> Any:
    """Rotates the pairs of features of `x`, `(..., 2 * pairs)`.

    Pair `j` is the columns `j` and `pairs + j` (`layout="halves"`), or `2 j`
    and `2 j + 1` (`"interleaved"`). Sines and cosines broadcast to
    `(..., pairs)`.
    """
    if layout == "halves":
        a, b = ops.split(x, 2, axis=-1)
    else:
        shape = ops.shape(x)
        # (..., 2 * pairs) -> two of (..., pairs, 1)
        x = ops.reshape(x, (*shape[:-1], x.shape[-1] // 2, 2))
        a, b = ops.split(x, 2, axis=-1)
        sine, cosine = ops.expand_dims(sine, -1), ops.expand_dims(cosine, -1)
    turned = ops.concatenate(
        [a * cosine - b * sine, a * sine + b * cosine], axis=-1
    )
    return turned if layout == "halves" else ops.reshape(turned, shape)


# ---- Scalings


def check_scaling(value: Any, *, max_wavelength: float) -> dict[str, Any]:
    """Returns a scaling, checked; None is the type `"default"`."""
    value = {"rope_type": "default"} if value is None else value
    if not isinstance(value, Mapping):
        raise ValueError(
            "`scaling` must be None or a dict, such as {'rope_type': 'linear', "
            f"'factor': 4.0}}. Received: scaling={value!r}"
        )
    scaling = {key: x for key, x in value.items() if x is not None}
    kind = check_choice(
        _name("rope_type"), scaling.get("rope_type"), [*REQUIRED]
    )
    missing = [repr(key) for key in REQUIRED[kind] if key not in scaling]
    if missing:
        raise ValueError(
            f"`scaling` with the rope_type {kind!r} needs the keys "
            f"{', '.join(missing)}. Received: scaling={scaling!r}"
        )
    known = {"rope_type", *REQUIRED[kind], *OPTIONAL.get(kind, ())}
    unknown = [repr(key) for key in scaling if key not in known]
    if unknown:
        raise ValueError(
            f"`scaling` with the rope_type {kind!r} has no "
            f"{', '.join(unknown)}. Received: scaling={scaling!r}"
        )
    for key, given in scaling.items():
        if key != "rope_type":
            scaling[key] = _checked(key, given)
    for key, low in (("factor", 1), (LENGTH, 2)):
        if scaling.get(key, low) < low:
            raise ValueError(
                f"`{_name(key)}` must be at least {low}. "
                f"Received: {_name(key)}={scaling[key]!r}"
            )
    if scaling.get(SHARE, 1) > 1:
        raise ValueError(
            f"`{_name(SHARE)}` must be in (0, 1]. "
            f"Received: {_name(SHARE)}={scaling[SHARE]!r}"
        )
    ordered = {**_RAMP, **scaling} if kind == "yarn" else scaling
    for above, below in (
        ("high_freq_factor", "low_freq_factor"),
        ("beta_fast", "beta_slow"),
    ):
        if above in ordered and ordered[above] <= ordered[below]:
            raise ValueError(
                f"`{_name(above)}` must be above `{_name(below)}`. "
                f"Received: {ordered[above]!r} and {ordered[below]!r}"
            )
    if kind == "yarn":
        _check_growth(scaling)
        if max_wavelength == 1:
            raise ValueError(
                "`max_wavelength` must be above 1 for the rope_type 'yarn'. "
                f"Received: max_wavelength={max_wavelength!r}"
            )
    return scaling


def check_pairs(scaling: Mapping[str, Any], pairs: int) -> None:
    """Raises `ValueError` for a scaling that does not fit so many pairs."""
    for key in _LISTS:
        factors = scaling.get(key)
        if factors is not None and len(factors) != pairs:
            raise ValueError(
                f"`{_name(key)}` must have one entry for each of the {pairs} "
                f"pairs of features. Received: {len(factors)} entries"
            )
    share = scaling.get(SHARE)
    if share is not None and not _proportional_pairs(pairs, share):
        raise ValueError(
            f"`{_name(SHARE)}` must be at least {1 / pairs:.4g}, to rotate one "
            f"of the {pairs} pairs of features. Received: "
            f"{_name(SHARE)}={share!r}"
        )
    clipped = scaling.get("clipped_pairs", 0)
    if clipped > pairs:
        raise ValueError(
            f"`{_name('clipped_pairs')}` must be at most {pairs}, the number "
            f"of pairs of features. Received: "
            f"{_name('clipped_pairs')}={clipped}"
        )


def _checked(key: str, value: Any) -> Any:
    name = _name(key)
    if key in (LENGTH, "clipped_pairs"):
        return check_positive_int(name, value)
    if key == "truncate":
        return check_bool(name, value)
    if key not in _LISTS:
        return check_positive(name, value)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(
            f"`{name}` must be a list of positive numbers. "
            f"Received: {name}={value!r}"
        )
    return tuple(
        check_positive(f"{name}[{index}]", factor)
        for index, factor in enumerate(value)
    )


def _check_growth(scaling: Mapping[str, Any]) -> None:
    """Raises `ValueError` for keys that would be ignored."""
    pair = [key for key in ("mscale", "mscale_all_dim") if key in scaling]
    if len(pair) == 1:
        raise ValueError(
            "`scaling` needs the keys 'mscale' and 'mscale_all_dim' together. "
            f"Received: scaling={dict(scaling)!r}"
        )
    if pair and "attention_factor" in scaling:
        raise ValueError(
            "'attention_factor' of `scaling` cannot be used with 'mscale' and "
            f"'mscale_all_dim'. Received: scaling={dict(scaling)!r}"
        )


def _name(key: str) -> str:
    return f"scaling[{key!r}]"


# ---- Frequencies


def scaled_rates(
    dim: int, *, max_wavelength: float, scaling: Mapping[str, Any]
) -> np.ndarray:
    """Returns radians per position of each pair, scaled: float64, `(pairs,)`.

    For all types whose frequencies do not depend on the length of a row.
    """
    rates = frequencies(dim, max_wavelength=max_wavelength)
    factor = scaling.get("factor", 1.0)
    match scaling["rope_type"]:
        case "linear":
            return rates / factor
        case "yarn":
            # Those of `beta_fast` turns within the original length, or more,
            # stay; those of `beta_slow` turns or fewer are divided.
            ramp = _yarn_ramp(dim, max_wavelength, {**_RAMP, **scaling})
            return rates * (1 - ramp) + rates / factor * ramp
        case "llama3":  # as yarn, with a ramp in turns rather than in pairs
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            turns = scaling[LENGTH] * rates / (2 * math.pi)
            share = np.clip((turns - low) / (high - low), 0, 1)
            return rates * share + rates / factor * (1 - share)
        case "proportional":
            # Each pair keeps the frequency that it has among all: a partial
            # rotation would spread all frequencies over fewer pairs.
            rates = rates / factor
            rates[_proportional_pairs(dim // 2, scaling[SHARE]) :] = 0
        case "clipped":
            # Along half a cosine, the last one to 0. The first keeps its
            # frequency, as in the published code.
            count = min(scaling["clipped_pairs"], len(rates))
            phase = np.linspace(0, math.pi, count)
            rates[len(rates) - count :] *= (1 + np.cos(phase)) / 2
    return rates


def _yarn_ramp(
    dim: int, max_wavelength: float, scaling: Mapping[str, Any]
) -> np.ndarray:
    """Returns how far each pair's frequency is divided, from 0 to 1."""

    def pair_of(turns: float) -> float:
        wavelength = scaling[LENGTH] / turns
        return (
            dim
            * math.log(wavelength / (2 * math.pi))
            / (2 * math.log(max_wavelength))
        )

    first, last = pair_of(scaling["beta_fast"]), pair_of(scaling["beta_slow"])
    if scaling["truncate"]:  # the ramp begins and ends at whole pairs
        first, last = math.floor(first), math.ceil(last)
    low, high = max(first, 0), min(last, dim - 1)
    width = high - low or 0.001  # a step if both are the same pair
    return np.clip((np.arange(dim // 2) - low) / width, 0, 1)


def _proportional_pairs(pairs: int, partial_rotary_factor: float) -> int:
    return int(partial_rotary_factor * 2 * pairs // 2)


def _attention_factor(scaling: Mapping[str, Any]) -> float:
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])
    growth = math.log(max(scaling.get("factor", 1.0), 1.0))
    match scaling["rope_type"]:
        case "yarn":  # to keep the softmax equally sharp
            growth = 0.1 * growth
            above = scaling.get("mscale", 1.0) * growth + 1.0
            # The part that models have in their scores already.
            return above / (scaling.get("mscale_all_dim", 0.0) * growth + 1.0)
        case "longrope":
            return math.sqrt(1 + growth / math.log(scaling[LENGTH]))
    return 1.0


# ---- Sines and cosines


def scaled_phases(
    positions: Any,
    *,
    dim: int,
    max_wavelength: float,
    scaling: Mapping[str, Any],
    dtype: str,
    length: Any = None,
) -> tuple[Any, Any]:
    """Computes sines and cosines, times the attention factor.

    Two tensors `(*positions.shape, dim // 2)`, where `dim` is the number of
    features to rotate and `scaling` what `check_scaling` returned. Rows count
    as of `length` with longrope; by default as long as their positions say.
    """
    kind = scaling["rope_type"]
    if kind == "dynamic":
        return _dynamic_phases(
            positions,
            dim=dim,
            max_wavelength=max_wavelength,
            factor=scaling["factor"],
            original_length=scaling[LENGTH],
            dtype=dtype,
        )
    if kind == "longrope":
        rates = frequencies(dim, max_wavelength=max_wavelength)
        short, long = (
            Phases(rates / np.asarray(scaling[key]), dtype=dtype).at(positions)
            for key in _LISTS
        )
        seen = _lengths_seen(positions) if length is None else length
        is_long = ops.greater(seen, scaling[LENGTH])
        is_long = ops.expand_dims(is_long, -1)
        sine, cosine = (
            ops.where(is_long, y, x) for x, y in zip(short, long, strict=True)
        )
    else:
        rates = scaled_rates(
            dim, max_wavelength=max_wavelength, scaling=scaling
        )
        sine, cosine = Phases(rates, dtype=dtype).at(positions)
    factor = _attention_factor(scaling)
    return (sine, cosine) if factor == 1 else (factor * sine, factor * cosine)


def _lengths_seen(positions: Any) -> Any:
    """Returns each row's longest position + 1: (..., seq) -> int32 (..., 1)."""
    whole, _, _ = split_positions(positions)
    return largest(whole, axis=-1, keepdims=True) + 1


def _dynamic_phases(
    positions: Any,
    *,
    dim: int,
    max_wavelength: float,
    factor: float,
    original_length: int,
    dtype: str,
) -> tuple[Any, Any]:
    """Returns sines and cosines at frequencies that fall with a row's length.

    Let s = 1 + factor * (length - original) / original if the row is longer
    than the original length. The base grows by s^(dim / (dim - 2)), so pair j
    rotates by c_j - c_j (1 - s^-a_j), where c_j is the original angle and
    a_j = 2 j / (dim - 2). The first angle comes from the exact tables; the
    graph computes only the second, which is 0 within the original length.

    Frequencies have float32 accuracy, about 2**-21. But they are the same at
    all positions of a row, and for these frequencies the angles are accurate
    to 1e-6 more than those of `Phases`: scores depend only on differences of
    positions.
    """
    rates = frequencies(dim, max_wavelength=max_wavelength)
    pair = np.arange(dim // 2)
    # As bits, and gathered by a dynamic index: converters to float16 would
    # round a constant. Row 0 is for rows whose frequencies do not change.
    growing = np.concatenate(
        [
            rates / (2 * np.pi),
            2 * pair / max(dim - 2, 1),
            [factor / original_length],
        ]
    ).astype(dtype)
    table = kept_table(np.stack([0 * growing, growing]))
    excess = ops.clip(_lengths_seen(positions) - original_length, 0, LIMIT)
    # (..., 1) -> (..., 1, columns)
    row = rows_of(ops.convert_to_tensor(table), ops.minimum(excess, 1))
    turns, exponent, growth = ops.split(row, [dim // 2, dim // 2 * 2], axis=-1)
    excess = ops.expand_dims(ops.cast(excess, dtype), -1)
    slowdown = ops.exp(-exponent * ops.log(1 + excess * growth))
    digits = time_digits(positions, dtype=dtype)
    slower = learned_turns(turns * (1 - slowdown), digits=digits, dtype=dtype)
    lag = angles(digits, slower, dtype=dtype)
    return add_angles(
        Phases(rates, dtype=dtype).at(positions), (-ops.sin(lag), ops.cos(lag))
    )


# ---- Positions that are vectors


def check_axes(value: Any) -> int | dict[str, Any] | None:
    """Returns None, a number of axes from 2 on, or a dict of sections."""
    if value is None:
        return None
    number = as_integer(value)
    if number is not None and number >= 2:
        return number
    if not isinstance(value, Mapping) or _SECTIONS not in value:
        raise ValueError(
            "`axes` must be None, a number of axes from 2 on, or a dict such "
            "as {'mrope_section': [16, 24, 24], 'mrope_interleaved': False}. "
            f"Received: axes={value!r}"
        )
    if value.keys() - {_SECTIONS, _INTERLEAVED}:
        raise ValueError(
            f"`axes` as a dict has the keys '{_SECTIONS}' and '{_INTERLEAVED}' "
            f"alone. Received: axes={dict(value)!r}"
        )
    sections = value[_SECTIONS]
    if not isinstance(sections, Sequence) or len(sections) < 2:
        raise ValueError(
            f"`axes['{_SECTIONS}']` must be a list of at least two integers, "
            "how many pairs of features each axis rotates. "
            f"Received: axes={dict(value)!r}"
        )
    sections = [
        check_positive_int(f"axes['{_SECTIONS}'][{axis}]", size)
        for axis, size in enumerate(sections)
    ]
    name = f"axes['{_INTERLEAVED}']"
    is_interleaved = check_bool(name, value.get(_INTERLEAVED, False))
    pairs = sum(sections)
    for axis, size in enumerate(sections[1:], start=1):
        last = axis + (size - 1) * len(sections)
        if is_interleaved and last >= pairs:
            raise ValueError(
                f"`axes` with '{_INTERLEAVED}' gives axis {axis} one of every "
                f"{len(sections)} pairs, from {axis} to {last}, and the "
                f"sections sum to {pairs} pairs. Make the first section "
                f"larger. Received: {_SECTIONS}={list(sections)!r}"
            )
    return {_SECTIONS: sections, _INTERLEAVED: is_interleaved}


def axis_count(axes: int | Mapping[str, Any] | None) -> int | None:
    """Returns how many axes positions have; None where they are numbers."""
    return len(axes[_SECTIONS]) if isinstance(axes, Mapping) else axes


def fits(axes: int | Mapping[str, Any], dim: int) -> bool:
    """Returns whether `dim` rotated features can be shared out."""
    if isinstance(axes, Mapping):
        return bool(2 * sum(axes[_SECTIONS]) == dim)
    return dim % (2 * axes) == 0


def phases_of_axes(
    positions: Any, *, axes: int | Mapping[str, Any], dim: int, **options: Any
) -> tuple[Any, Any]:
    """Computes sines and cosines of vectors: two of `(batch, seq, dim // 2)`.

    Positions are `(batch, seq, axes)`. Of a number of axes, each has its share
    of the pairs, with frequencies as of a head of that width. With sections,
    pair `j` has the frequency of pair `j` of the head, and follows one axis.
    """
    own = dim if isinstance(axes, Mapping) else dim // axes
    count, pairs = axis_count(axes) or 1, own // 2
    # (batch, seq, axes, pairs of one) -> (batch, seq, axes * pairs)
    sine, cosine = (
        ops.reshape(part, (*ops.shape(part)[:2], count * pairs))
        for part in scaled_phases(positions, dim=own, **options)
    )
    if isinstance(axes, Mapping):  # of these, pair `j` of its axis
        of = (_axis_of_pairs(axes) * pairs + np.arange(pairs)).astype("int32")
        sine, cosine = (ops.take(x, of, axis=-1) for x in (sine, cosine))
    return sine, cosine


def _axis_of_pairs(axes: Mapping[str, Any]) -> np.ndarray:
    """Returns the axis that each pair of features follows, `(pairs,)`."""
    sections = axes[_SECTIONS]
    if not axes[_INTERLEAVED]:
        return np.repeat(np.arange(len(sections)), sections)
    of = np.zeros(sum(sections), "int64")
    for axis, size in enumerate(sections[1:], start=1):
        of[axis : size * len(sections) : len(sections)] = axis
    return of
