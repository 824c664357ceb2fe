"""Sizes and times as text, with three significant digits; and JSON."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def size(count: float) -> str:
    """Returns a number of bytes: `"1.23 MB"`, `"45.6 kB"`, `"789 bytes"`."""
    return _scaled(count, _SIZES) or f"{count:.0f} bytes"


def time(seconds: float) -> str:
    """Returns a number of seconds: `"1.23 s"`, `"45.6 ms"`, `"789 µs"`."""
    return _scaled(seconds, _TIMES) or f"{seconds * 1e6:.2g} µs"


def count(number: int, what: str) -> str:
    """Returns a number of things: `"1 example"`, `"1,541 examples"`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def _scaled(number: float, units: tuple[tuple[float, str], ...]) -> str | None:
    for factor, unit in units:
        value = number / factor
        if value >= 999.5:
            return f"{value:.0f} {unit}"
        if value >= 0.9995:  # which rounds to 1.00
            return f"{value:#.3g}".rstrip(".") + f" {unit}"
    return None


def some(words: Sequence[str]) -> str:
    """Returns the first three names, and how many more there are."""
    more = len(words) - 3
    return ", ".join(words[:3]) + f", and {more} more" * (more > 0)


def jsonable(value: Any) -> Any:
    """Returns what JSON can hold: None in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: jsonable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [jsonable(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
