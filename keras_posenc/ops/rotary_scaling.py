"""Scalings of rotary embeddings, under the names of Hugging Face's configs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.checks import (
    check_bool,
    check_choice,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.rotary import dynamic_phases, phases_by_length
from keras_posenc.ops.rotary_rates import (
    clipped_rates,
    linear_rates,
    llama3_rates,
    longrope_attention_factor,
    longrope_rates,
    proportional_pairs,
    proportional_rates,
    yarn_attention_factor,
    yarn_rates,
)
from keras_posenc.ops.sinusoids import Phases

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
_GROWTH = ("attention_factor", "mscale", "mscale_all_dim")
OPTIONAL = {
    "yarn": (*_RAMP, *_GROWTH),
    "longrope": ("attention_factor",),
    "proportional": ("factor",),
}
# The types whose frequencies depend on the length of a row.
BY_LENGTH = ("dynamic", "longrope")
_LISTS = ("short_factor", "long_factor")
_RATES: dict[str, Callable[..., np.ndarray]] = {
    "default": frequencies,
    "linear": linear_rates,
    "yarn": yarn_rates,
    "llama3": llama3_rates,
    "proportional": proportional_rates,
    "clipped": clipped_rates,
}


def check_scaling(value: Any, *, max_wavelength: float) -> dict[str, Any]:
    """Checks a scaling; None is the type `"default"`.

    Returns:
        A dict with `rope_type` and numbers of the right types.

    Raises:
        ValueError: It is not a dict, or a key is missing, unknown for the
            type, or has a value out of range.
    """
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
    _check_order(scaling, "high_freq_factor", "low_freq_factor")
    if kind == "yarn":
        _check_order({**_RAMP, **scaling}, "beta_fast", "beta_slow")
        _check_growth(scaling)
        if max_wavelength == 1:
            raise ValueError(
                "`max_wavelength` must be above 1 for the rope_type 'yarn'. "
                f"Received: max_wavelength={max_wavelength!r}"
            )
    return scaling


def check_pairs(scaling: Mapping[str, Any], pairs: int) -> None:
    """Raises `ValueError` for a scaling that does not fit so many pairs.

    Lists of factors have one for each pair; a share is at least one pair; and
    no more pairs are clipped than there are.
    """
    for key in _LISTS:
        factors = scaling.get(key)
        if factors is not None and len(factors) != pairs:
            raise ValueError(
                f"`{_name(key)}` must have one entry for each of the {pairs} "
                f"pairs of features. Received: {len(factors)} entries"
            )
    share = scaling.get(SHARE)
    if share is not None and not proportional_pairs(pairs, share):
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


def scaled_phases(
    positions: Any,
    *,
    dim: int,
    max_wavelength: float,
    scaling: Mapping[str, Any],
    dtype: str,
) -> tuple[Any, Any]:
    """Computes sines and cosines, times the attention factor.

    Args:
        positions: `(..., seq)`.
        dim: Number of features to rotate.
        max_wavelength: The base of the progression of wavelengths.
        scaling: What `check_scaling` returned.
        dtype: `"float32"` or `"float64"`, the dtype of the arithmetic.

    Returns:
        Two tensors of shape `(*positions.shape, dim // 2)`.
    """
    kind = scaling["rope_type"]
    if kind == "dynamic":
        return dynamic_phases(
            positions,
            dim=dim,
            max_wavelength=max_wavelength,
            factor=scaling["factor"],
            original_length=scaling[LENGTH],
            dtype=dtype,
        )
    if kind == "longrope":
        short, long = (
            Phases(
                longrope_rates(
                    dim, max_wavelength=max_wavelength, factors=scaling[key]
                ),
                dtype=dtype,
            )
            for key in _LISTS
        )
        sine, cosine = phases_by_length(
            positions, short=short, long=long, original_length=scaling[LENGTH]
        )
    else:
        of_rates = {
            key: value
            for key, value in scaling.items()
            if key not in ("rope_type", *_GROWTH)
        }
        rates = _RATES[kind](dim, max_wavelength=max_wavelength, **of_rates)
        sine, cosine = Phases(rates, dtype=dtype).at(positions)
    factor = _attention_factor(scaling)
    return (sine, cosine) if factor == 1 else (factor * sine, factor * cosine)


def _attention_factor(scaling: Mapping[str, Any]) -> float:
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])
    if scaling["rope_type"] == "yarn":
        return yarn_attention_factor(
            scaling["factor"],
            mscale=scaling.get("mscale", 1.0),
            mscale_all_dim=scaling.get("mscale_all_dim", 0.0),
        )
    if scaling["rope_type"] == "longrope":
        return longrope_attention_factor(
            scaling["factor"], original_max_position_embeddings=scaling[LENGTH]
        )
    return 1.0


def _checked(key: str, value: Any) -> Any:
    if key in _LISTS:
        return _check_factors(_name(key), value)
    if key in (LENGTH, "clipped_pairs"):
        return check_positive_int(_name(key), value)
    check = check_bool if key == "truncate" else check_positive
    return check(_name(key), value)


def _check_order(scaling: Mapping[str, Any], above: str, below: str) -> None:
    if above in scaling and scaling[above] <= scaling[below]:
        raise ValueError(
            f"`{_name(above)}` must be above `{_name(below)}`. "
            f"Received: {scaling[above]!r} and {scaling[below]!r}"
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


def _check_factors(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(
            f"`{name}` must be a list of positive numbers. "
            f"Received: {name}={value!r}"
        )
    return tuple(
        check_positive(f"{name}[{index}]", factor)
        for index, factor in enumerate(value)
    )


def _name(key: str) -> str:
    return f"scaling[{key!r}]"
