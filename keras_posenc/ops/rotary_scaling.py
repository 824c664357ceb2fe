"""Which scaling of rotary embeddings takes what, and gives what."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.ops.arguments import (
    check_bool,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.rotary import dynamic_phases, phases_by_length
from keras_posenc.ops.rotary_rates import (
    linear_rates,
    llama3_rates,
    longrope_attention_factor,
    longrope_rates,
    yarn_attention_factor,
    yarn_rates,
)
from keras_posenc.ops.sinusoids import Phases

LENGTH = "original_max_position_embeddings"
# What each type must be given, and what it may be given besides.
REQUIRED = {
    "default": (),
    "linear": ("scaling_factor",),
    "dynamic": ("scaling_factor", LENGTH),
    "yarn": ("scaling_factor", LENGTH),
    "longrope": ("scaling_factor", LENGTH, "short_factor", "long_factor"),
    "llama3": (
        "scaling_factor",
        LENGTH,
        "low_freq_factor",
        "high_freq_factor",
    ),
}
OPTIONAL = {
    "yarn": (
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "longrope": ("attention_factor",),
}
ROPE_TYPES = tuple(REQUIRED)
# Those whose frequencies depend on how long a row is.
BY_LENGTH = ("dynamic", "longrope")
_LISTS = ("short_factor", "long_factor")


def check_scaling(
    rope_type: str, *, max_wavelength: float, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Holds the parameters, None where not given, to those of the type.

    Returns:
        The parameters as numbers of the right kind.

    Raises:
        ValueError: One is missing, unknown to the type, or out of range.
    """
    required = REQUIRED[rope_type]
    known = required + OPTIONAL.get(rope_type, ())
    given = {
        name: value for name, value in parameters.items() if value is not None
    }
    missing = [f"`{name}`" for name in required if name not in given]
    if missing:
        raise ValueError(
            f"rope_type={rope_type!r} needs {', '.join(missing)}. "
            f"Received: {_written(given)}"
        )
    strange = {name: x for name, x in given.items() if name not in known}
    if strange:
        raise ValueError(
            f"rope_type={rope_type!r} has no "
            + ", ".join(f"`{name}`" for name in strange)
            + f". Received: {_written(strange)}"
        )
    for name, value in given.items():
        if name == LENGTH:
            given[name] = check_positive_int(name, value)
        elif name in _LISTS:
            given[name] = _check_factors(name, value)
        elif name == "truncate":
            given[name] = check_bool(name, value)
        else:
            given[name] = check_positive(name, value)
    for name, low in (("scaling_factor", 1), (LENGTH, 2)):
        if given.get(name, low) < low:
            raise ValueError(
                f"`{name}` must be at least {low}. "
                f"Received: {name}={given[name]!r}"
            )
    _check_ramp(given, "high_freq_factor", "low_freq_factor")
    if rope_type == "yarn":
        _check_ramp({**_YARN, **given}, "beta_fast", "beta_slow")
        _check_mscale(given)
        if max_wavelength == 1:
            raise ValueError(
                "`max_wavelength` must be above 1 for rope_type='yarn'. "
                f"Received: max_wavelength={max_wavelength!r}"
            )
    return {name: given.get(name) for name in parameters}


def check_pairs(parameters: Mapping[str, Any], pairs: int) -> None:
    """Raises `ValueError` unless lists of factors have one for each pair."""
    for name in _LISTS:
        factors = parameters[name]
        if factors is not None and len(factors) != pairs:
            raise ValueError(
                f"`{name}` must have one entry for each of the {pairs} pairs "
                f"of features. Received: {len(factors)} entries"
            )


def scaled_phases(
    positions: Any,
    *,
    dim: int,
    max_wavelength: float,
    rope_type: str,
    parameters: Mapping[str, Any],
    dtype: str,
) -> tuple[Any, Any]:
    """Sines and cosines of a type, times its attention factor.

    Args:
        positions: `(..., seq)`.
        dim: Number of features that turn.
        max_wavelength: The base of the progression of wavelengths.
        rope_type: One of `ROPE_TYPES`.
        parameters: What `check_scaling` returned.
        dtype: `"float32"` or `"float64"`, the dtype of the arithmetic.

    Returns:
        Two tensors of shape `(*positions.shape, dim // 2)`.
    """
    factor, length = parameters["scaling_factor"], parameters[LENGTH]
    grown = parameters["attention_factor"]
    if rope_type == "dynamic":
        return dynamic_phases(
            positions,
            dim=dim,
            max_wavelength=max_wavelength,
            scaling_factor=factor,
            original_length=length,
            dtype=dtype,
        )
    if rope_type == "longrope":
        short, long = (
            Phases(
                longrope_rates(
                    dim, max_wavelength=max_wavelength, factors=parameters[name]
                ),
                dtype=dtype,
            )
            for name in _LISTS
        )
        sine, cosine = phases_by_length(
            positions, short=short, long=long, original_length=length
        )
        if grown is None:
            grown = longrope_attention_factor(
                factor, original_max_position_embeddings=length
            )
    else:
        if rope_type == "linear":
            rates = linear_rates(
                dim, max_wavelength=max_wavelength, scaling_factor=factor
            )
        elif rope_type == "llama3":
            low, high = (
                parameters[f"{x}_freq_factor"] for x in ("low", "high")
            )
            rates = llama3_rates(
                dim,
                max_wavelength=max_wavelength,
                scaling_factor=factor,
                original_max_position_embeddings=length,
                low_freq_factor=low,
                high_freq_factor=high,
            )
        elif rope_type == "yarn":
            ramp = {
                name: default if parameters[name] is None else parameters[name]
                for name, default in _YARN.items()
            }
            rates = yarn_rates(
                dim,
                max_wavelength=max_wavelength,
                scaling_factor=factor,
                original_max_position_embeddings=length,
                **ramp,
            )
            if grown is None:
                grown = yarn_attention_factor(
                    factor,
                    mscale=parameters["mscale"] or 1.0,
                    mscale_all_dim=parameters["mscale_all_dim"] or 0.0,
                )
        else:
            rates = frequencies(dim, max_wavelength=max_wavelength)
        sine, cosine = Phases(rates, dtype=dtype).at(positions)
    if grown is None or grown == 1:
        return sine, cosine
    return grown * sine, grown * cosine


_YARN: dict[str, Any] = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
}


def _check_ramp(given: Mapping[str, Any], above: str, below: str) -> None:
    if above in given and given[above] <= given[below]:
        ends = {name: given[name] for name in (above, below)}
        raise ValueError(
            f"`{above}` must be above `{below}`. Received: {_written(ends)}"
        )


def _check_mscale(given: Mapping[str, Any]) -> None:
    """Refuses what would be ignored: half of the pair, or two factors."""
    pair = {
        name: given[name]
        for name in ("mscale", "mscale_all_dim")
        if name in given
    }
    if len(pair) == 1:
        raise ValueError(
            "`mscale` and `mscale_all_dim` say together what queries and keys "
            f"are multiplied by. Received: {_written(pair)} alone"
        )
    if pair and "attention_factor" in given:
        raise ValueError(
            "`attention_factor` says what `mscale` and `mscale_all_dim` would, "
            "and cannot be used with them. Received: attention_factor="
            f"{given['attention_factor']!r}, {_written(pair)}"
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


def _written(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in given.items()) or "none of them"
