"""Runs each LiteRT test case twice in fresh interpreters, as applications do.

XNNPACK's delegate (ai-edge-litert 2.3.0) may give wrong numbers from the second
run of a shape on, if sizes are known only during the run: it moves memory that
its parts share, and parts that have run keep pointers to the old address. With
a Transformer with grouped heads, converted by `tf.lite.TFLiteConverter`, a
fifth of all runs was wrong. Our layers leave no size to the run
(`litert_edit.py`), but others' may, and so do files of other converters, which
`verify` takes. One interpreter that runs all cases allocates again for each
shape, and so hides the fault.
"""

import time
from collections.abc import Callable
from typing import Any

from keras_posenc_worker.cases import difference
from keras_posenc_worker.runtimes import Runner

# A fault in every second interpreter is missed by 10 of them once in 1,000.
_INTERPRETERS = 10
_QUICK = 1.0  # milliseconds of a run
_SECONDS = 0.04
_ROUNDING = {
    "float16": 2**-8,
    "bfloat16": 2**-5,
    "float32": 2e-4,
    "float64": 2e-4,  # of layers that compute in float32
}


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
    seconds = max(_SECONDS, _INTERPRETERS * (load_seconds + 2e-3 * fastest))
    end = time.perf_counter() + seconds
    # Long runs first: cases of few numbers reveal less.
    for index in sorted(took, key=took.__getitem__, reverse=True):
        if took[index] > max(_QUICK, 2 * fastest):
            continue
        signature, inputs = cases[index]
        kept = []  # keeps interpreters, so that each gets different memory
        try:
            for _ in range(_INTERPRETERS):
                if time.perf_counter() > end:
                    return
                runner = load()[signature]
                if took[index] <= _QUICK:
                    kept.append(runner)
                for ordinal in ("first", "second"):
                    outputs = runner(inputs)
                    for name, value in outputs.items():
                        if not _is_near(value, found[index]["outputs"][name]):
                            found[index]["error"] = (
                                f"the {ordinal} run of a fresh interpreter "
                                f"gives other numbers in {name}. LiteRT's "
                                "XNNPACK delegate may do so if sizes are known "
                                "only during the run: export signatures of "
                                "fixed shapes, such as "
                                f"{[x.shape for x in inputs.values()]}"
                            )
        except Exception as error:  # whatever the runtime raises
            found[index]["error"] = (
                f"in a fresh interpreter {type(error).__name__}: {error}"
            )


def _is_near(value: Any, known: Any) -> bool:
    import numpy as np

    if value.shape != known.shape:
        return False
    most = 0.0
    if known.dtype.kind not in "OSUbiu":
        finite = known[np.isfinite(known)].astype("float64")
        most = float(np.max(np.abs(finite), initial=1e-30))
    return difference(known, value, most) <= _ROUNDING.get(known.dtype.name, 0)
