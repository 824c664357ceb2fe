"""What a user of an artifact should know beside the comparisons."""

import math
from collections.abc import Iterator, Sequence

from keras_posenc.artifacts.expectations.allowance import MODES
from keras_posenc.artifacts.expectations.expectations import Expectations
from keras_posenc.artifacts.inspection.inspection import Inspection
from keras_posenc.artifacts.signatures.signature import Signature

_FORMATS = {"litert": "LiteRT", "onnx": "ONNX"}


def notes(
    expectations: Expectations,
    inspection: Inspection,
    allow_operators: Sequence[str] = (),
) -> Iterator[str]:
    """Yields sentences for the report of an artifact.

    Args:
        expectations: What it was asked.
        inspection: What it is.
        allow_operators: Operators that the user allowed it.
    """
    if (
        expectations.quantization in MODES
        and inspection.kind == "litert"
        and inspection.quantization is None
    ):
        yield _unquantized(expectations)
    if inspection.kind in _FORMATS:
        for signature in expectations.signatures:
            if signature.whole is not None:
                yield _cut(signature, _FORMATS[inspection.kind])
    for signature in expectations.signatures:
        for name, own in signature.own_names.items():
            yield (
                f"the output {own} is called {name} in it: an input is called "
                f"{own}, and ONNX has each name once"
            )
    absent = [n for n in allow_operators if n not in inspection.operators]
    if absent:
        yield (
            f"allowed, but not in the artifact: {', '.join(absent)}. "
            "They can be left out of `allow_operators` (--allow-op)"
        )


def _unquantized(expectations: Expectations) -> str:
    """That a mode of quantization left every weight as it was."""
    sizes = [
        math.prod(weight.shape)
        for signature in expectations.signatures
        for weight in signature.model.weights
    ]
    reason = "the model has no weights"
    if sizes:
        reason = (
            "LiteRT keeps weights of fewer than 1,024 numbers in float32, and "
            f"the largest of this model has {max(sizes):,}"
        )
    return (
        f"{expectations.quantization} quantized nothing: {reason}. Leave out "
        "`quantization` (--quantization), or take float16, which has no such "
        "limit"
    )


def _cut(signature: Signature, kind: str) -> str:
    """That a signature begins where its model's strings have become numbers."""
    assert signature.whole is not None
    whole = signature.whole.signature.specs
    texts = [name for name, spec in whole.items() if spec.dtype == "string"]
    numbers = [name for name in signature.specs if name not in whole]
    # A name of strings may be that of the numbers as well.
    numbers += [name for name in texts if name in signature.specs]
    return (
        f"{signature.name} takes {', '.join(numbers)} in place of the strings "
        f"{', '.join(texts)}: {kind} holds no strings, so the application must "
        "prepare them as the model's own layers do"
    )
