"""Runs each LiteRT test case twice in fresh interpreters, as applications do.

XNNPACK's delegate (ai-edge-litert 2.3.0) may give wrong numbers from the second
run of a shape on, if sizes are known only during the run: it moves memory that
its parts share, and parts that have run keep pointers to the old address. With
a Transformer with grouped heads, converted by `tf.lite.TFLiteConverter`, a
fifth of all runs was wrong. Our layers leave no size to the run
(`litert_sizes.py`), but others' may, and so do files of other converters, which
`verify` takes. One interpreter that runs all cases allocates again for each
shape, and so hides the fault.
"""

import time
from collections.abc import Callable
from typing import Any

from keras_posenc_worker.runtimes import Runner

# A fault in every second interpreter is missed by 10 of them once in 1,000.
_INTERPRETERS = 10
_QUICK = 1.0  # milliseconds of a run
_SECONDS = 0.04
_ROUNDING = {"float16": 2**-9, "bfloat16": 2**-6}  # 1e-4 for other dtypes

_DIFFERS = (
    "the {ordinal} run of a fresh interpreter gives other numbers in {name}. "
    "LiteRT's XNNPACK delegate may do so if sizes are known only during the "
    "run: export the file again, or with fixed sizes, as in "
    "`signatures={{'{signature}': (model, {shapes})}}` "
    "(--signature {signature}={options})"
)


def run_fresh(
    load: Callable[[], dict[str, Runner]],
    cases: list[tuple[str, dict[str, Any]]],
    found: list[dict[str, Any]],
    load_seconds: float,
) -> None:
    """Runs quick cases in fresh interpreters, and adds errors for differences.

    Args:
        load: Returns the runners of a fresh interpreter.
        cases: Their signatures and inputs.
        found: For each case its `outputs` by one interpreter and its
            `milliseconds`, or its `error`, which is added here.
        load_seconds: Time that `load` takes.
    """
    took = {
        index: case["milliseconds"]
        for index, case in enumerate(found)
        if "error" not in case
    }
    fastest = min(took.values(), default=0.0)
    most = max(_SECONDS, _INTERPRETERS * (load_seconds + 2e-3 * fastest))
    began = time.perf_counter()
    # Long runs first: cases of few numbers reveal less.
    for index in sorted(took, key=took.__getitem__, reverse=True):
        if took[index] > max(_QUICK, 2 * fastest):
            continue
        signature, inputs = cases[index]
        known = found[index]["outputs"]
        kept = []  # keeps interpreters, so that each gets different memory
        try:
            for _ in range(_INTERPRETERS):
                if time.perf_counter() - began > most:
                    return
                runner = load()[signature]
                if took[index] <= _QUICK:
                    kept.append(runner)
                for ordinal in ("first", "second"):
                    for name, value in runner(inputs).items():
                        if not _is_near(value, known[name]):
                            found[index]["error"] = _differs(
                                ordinal, name, signature, inputs
                            )
        except Exception as error:  # whatever the runtime raises
            found[index]["error"] = (
                f"in a fresh interpreter {type(error).__name__}: {error}"
            )


def _differs(
    ordinal: str, name: str, signature: str, inputs: dict[str, Any]
) -> str:
    """Returns what differs, and the signature with fixed shapes to suggest."""
    options = [
        f"{key}:{'x'.join(map(str, value.shape))}"
        for key, value in inputs.items()
    ]
    return _DIFFERS.format(
        ordinal=ordinal,
        name=name,
        signature=signature,
        shapes={key: tuple(value.shape) for key, value in inputs.items()},
        options=",".join(options),
    )


def _is_near(value: Any, known: Any) -> bool:
    import numpy as np

    if value.shape != known.shape:
        return False
    if value.dtype.kind in "OSUbiu":
        return np.array_equal(value, known)
    share = _ROUNDING.get(value.dtype.name, 1e-4)
    value, known = np.float64(value), np.float64(known)
    most = np.max(np.abs(known), initial=0, where=np.isfinite(known))
    return np.allclose(value, known, share, share * most, equal_nan=True)
