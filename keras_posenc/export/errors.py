"""Errors of exports, and what every export checks first."""

import re
from typing import Any

from keras_posenc.progress import printable_lines

# Of a device and an operator, which are not the user's, and colours.
_INTERNALS = re.compile(
    r"\x1b\[\d*m|\{\{function_node [^}]*\}\} ?| ?\[Op:\w+\]"
    r"|\n You may be trying to load on a different device.*"
    r"|Graph execution error:\n\n|\n\t \[\[\{\{node [^}]*\}\}[^\n]*"
)


class ExportError(RuntimeError):
    """A model could not be exported; nothing was left behind.

    The message may quote a file, or a runtime that quotes one, so control
    characters in it are escaped.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable_lines(message))


class ExportVerificationError(ExportError):
    """An artifact does not do what its model does.

    Attributes:
        report: The `VerificationReport`, or None if the artifact did not even
            load.
    """

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


def in_words(error: object) -> str:
    """What an error of TensorFlow says, without what is internal to it."""
    return _INTERNALS.sub("", str(error))


def check_verify(verify: bool, samples: Any) -> None:
    """Raises `ValueError` for samples that would not be used."""
    if samples is not None and not verify:
        raise ValueError(
            "`samples` are for the verification. Received: samples with "
            "verify=False"
        )


def require_tensorflow_backend(function: str) -> None:
    """Raises `RuntimeError` on another backend, and says what to do."""
    import keras  # late: scoring's processes import this file, and no Keras

    backend = keras.config.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"`{function}` needs the TensorFlow backend, and this is "
            f"'{backend}'. Save the model by model.save('model.keras'), then "
            "run: keras-posenc export saved-model model.keras --out FOLDER "
            "(or export litert model.keras --out FILE.tflite)"
        )
