"""Errors of exports, and checks that all exports share."""

import re
from pathlib import Path
from typing import Any

from keras_posenc.progress import printable_lines

# In messages of Keras and TensorFlow: colors, and devices and operators.
_COLORS = re.compile(r"\x1b\[[\d;]*m")
_INTERNALS = re.compile(
    r"\{\{function_node [^}]*\}\} ?| ?\[Op:\w+\]"
    r"|\n You may be trying to load on a different device.*"
    r"|Graph execution error:\n\n"
    r"|Detected at node [^\n]* defined at \(most recent call last\):\n"
    r"(?:(?:  File [^\n]*|<stack traces unavailable>)?\n)*"
    r"|\n\t \[\[\{\{node [^}]*\}\}[^\n]*"
)


class ExportError(RuntimeError):
    """A model could not be exported. No file was written.

    The message has no colors. Other control characters, which may be quoted
    from a file, are escaped.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable_lines(_COLORS.sub("", message)))


class ExportVerificationError(ExportError):
    """An exported model does not reproduce its model.

    Attributes:
        report: The `VerificationReport`, or None if the exported model did not
            load.
    """

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


def in_words(error: object) -> str:
    """Returns the text of a TensorFlow error without TensorFlow's internals."""
    return _INTERNALS.sub("", _COLORS.sub("", str(error)))


def check_verify(verify: bool, samples: Any) -> None:
    """Raises `ValueError` for samples that would not be used."""
    if samples is not None and not verify:
        raise ValueError("`samples` cannot be used with `verify=False`")


def check_model(model: Any, function: str) -> None:
    """Raises an error for anything but a model, such as its path.

    `RuntimeError` on another backend than TensorFlow, with a command to use.
    """
    import keras  # late: scoring's processes import this file, but not Keras

    backend = keras.config.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"`{function}` needs the TensorFlow backend, and this is "
            f"'{backend}'. Save the model with model.save('model.keras'), then "
            "run: keras-posenc export saved-model model.keras --out FOLDER "
            "(or export litert model.keras --out FILE.tflite)"
        )
    if isinstance(model, keras.Model):
        return
    hint = ""
    if isinstance(model, str | Path):
        hint = f". Load it: keras.saving.load_model('{model}')"
    raise ValueError(
        "`model` must be a keras.Model, of Keras 3. Received: "
        f"model={model!r}{hint}"
    )
