"""Runs a LiteRT file in LiteRT's `CompiledModel`, in a process of its own."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.worker_client import Limits, run_model

_Case = tuple[str, Mapping[str, Any]]

_SECONDS = 0.2  # of runs, as the Interpreter took them
_TIMEOUT = 60  # seconds by the clock; it has hung, too
# Shares of the largest number, by dtype.
_ROUNDING = {"float16": 2**-9, "bfloat16": 2**-6}
_SHARE = 1e-4  # of other dtypes


def compare_in_compiled_model(
    path: Path,
    cases: Sequence[_Case],
    found: Sequence[Mapping[str, Any]],
    limits: Limits,
) -> str:
    """Returns "equal", "different" or "not run", and what else is known."""
    left, chosen = 1e3 * _SECONDS, list[int]()
    for index, (_, inputs) in enumerate(cases):
        took = found[index].get("milliseconds", 0.0)
        runs = "error" not in found[index]
        runs = runs and all(np.size(value) for value in inputs.values())
        if runs and (took <= left or not chosen):
            chosen.append(index)
            left -= took
    if not chosen:
        return "not run: there is no case that the Interpreter runs"
    limits = dataclasses.replace(limits, timeout=min(limits.timeout, _TIMEOUT))
    some = [cases[index] for index in chosen]
    try:
        response = run_model("litert_compiled", path, some, limits, times=1)
    except ExportVerificationError as error:
        if "No module named" in str(error):
            return "not run: this ai-edge-litert has none"
        if "did not respond within" in str(error):
            return f"not run: it took more than {limits.timeout} s"
        reason = f"its process {error.__cause__}" if error.__cause__ else error
        return _different(str(reason))
    largest = 0.0
    for index, case in zip(chosen, response["cases"], strict=True):
        reason = case.get("error")
        for name, known in found[index]["outputs"].items():
            if reason is None:
                difference = _difference(case["outputs"].get(name), known)
                largest = max(largest, difference)
                if difference > _ROUNDING.get(known.dtype.name, _SHARE):
                    reason = f"{name} is off by {difference:.2g}"
        if reason is not None:
            return _different(reason)
    return f"equal to the Interpreter, largest difference {largest:.2g}"


def _different(reason: str) -> str:
    return (
        f"different: {' '.join(reason.split())}. Use LiteRT's Interpreter, "
        "whose outputs are the model's; or export fixed sizes, if some are "
        "known only during a run, by `signatures`"
    )


def _difference(value: Any, known: Any) -> float:
    """Returns the largest difference, as a share of the largest number."""
    if value is None or value.shape != known.shape:
        return math.inf
    value, known = np.float64(value), np.float64(known)
    differs = ~((value == known) | (np.isnan(value) & np.isnan(known)))
    largest = np.max(np.abs(known), initial=0, where=np.isfinite(known))
    found = np.abs(value[differs] - known[differs]) / (largest or 1.0)
    return float(np.max(np.nan_to_num(found, nan=np.inf), initial=0.0))
