"""From a model to the content of a LiteRT file, by TensorFlow's converter."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.graphs.keras_int8 import int8_in_floats
from keras_posenc.artifacts.graphs.writing import write_saved_model
from keras_posenc.artifacts.ground.errors import ExportError
from keras_posenc.artifacts.ground.staging import working_folder
from keras_posenc.artifacts.isolated.reading.formats import unpack
from keras_posenc.artifacts.litert import quantization as modes
from keras_posenc.artifacts.litert.rewriting import rewrite_operators
from keras_posenc.artifacts.signatures.called import of_one_row
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.keras_internals import unread_converter

_LARGE = 2**26  # bytes of a file


def convert(
    signatures: Sequence[Signature],
    quantization: str | None,
    representative: Mapping[str, Sequence[Inputs]],
    allow_flex: bool,
) -> bytes:
    """Signatures as the content of a LiteRT file.

    Args:
        signatures: Those of a snapshot, of which nothing is asked afterwards:
            layers of Keras's int8 compute in floats from then on.
        quantization: The mode, or None.
        representative: What to calibrate each signature with, by its name.
        allow_flex: Whether operators of TensorFlow's own may remain.

    Raises:
        ExportError: The model needs operators that LiteRT lacks.
    """
    import tensorflow as tf

    # The converter writes them in this order, whatever it is given, and shares
    # their constants in another one.
    signatures = sorted(signatures, key=lambda each: each.name)
    int8_in_floats(signatures)
    with working_folder() as folder:
        saved_model = folder / "saved_model"
        write_saved_model(signatures, saved_model)
        rewrite_operators(saved_model)
        names = [signature.name for signature in signatures]
        converter = (
            unread_converter(saved_model, names, _is_compact)
            if quantization is None
            else tf.lite.TFLiteConverter.from_saved_model(
                str(saved_model), signature_keys=names
            )
        )
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.TFLITE_BUILTINS,
            *([tf.lite.OpsSet.SELECT_TF_OPS] if allow_flex else []),
        ]
        try:
            return modes.convert(converter, quantization, representative)
        except Exception as error:  # ConverterError is not public
            raise _conversion_error(error, signatures) from error


def _is_compact(content: bytes) -> bool:
    """Whether a large file has next to nothing twice.

    TensorFlow would pack it anew, so that equal constants are there once, and
    have the file in memory four times meanwhile.
    """
    if len(content) < _LARGE:
        return False
    seen = set()
    repeated = 0
    for buffer in unpack(content).buffers:
        if buffer.data is not None and len(buffer.data):
            found = hashlib.sha256(buffer.data).digest()
            repeated += len(buffer.data) * (found in seen)
            seen.add(found)
    return 100 * repeated < len(content)


_FLEX = (
    "With `allow_flex=True, verify=False` (--allow-flex --no-verify) {what} as "
    "TensorFlow's own, in a runtime with the Flex delegate: verify the file "
    "where there is one"
)


def _conversion_error(
    error: Exception, signatures: Sequence[Signature]
) -> ExportError:
    message = str(error)
    needed = {
        kind: sorted(set(re.split(r",\s*", found[1].strip())))
        for kind in ("TF Select", "Custom")
        if (found := re.search(rf"{kind} ops: ([^\n]+)", message))
    }
    if "TF Select" in needed:
        return ExportError(
            "The model needs operators that LiteRT does not have: "
            f"{', '.join(needed['TF Select'])}. "
            f"{_FLEX.format(what='they run')}"
        )
    if "Custom" in needed:
        return ExportError(
            "The model needs operators that neither LiteRT nor its Flex "
            f"delegate has: {', '.join(needed['Custom'])}"
        )
    if "TensorList" in message:
        return ExportError(
            "The model has a loop over its sequence, as a recurrent layer has, "
            "and LiteRT's needs a fixed batch: give "
            f"{of_one_row(signatures)}. {_FLEX.format(what='the loop runs')}"
        )
    reason = message.splitlines()[0]
    if found := re.search(r"'tfl\.(\w+)' op ([^\n]+)", message):
        reason = f"operator {found[1]} {found[2]}"
    return ExportError(f"LiteRT's converter refuses the model: {reason}")
