"""What can go wrong with an artifact."""

import re

# Of a device and an operator, which are not the user's, and colours.
_INTERNALS = re.compile(
    r"\x1b\[\d*m|\{\{function_node [^}]*\}\} ?| ?\[Op:\w+\]"
    r"|\n You may be trying to load on a different device.*"
    r"|Graph execution error:\n\n|\n\t \[\[\{\{node [^}]*\}\}[^\n]*"
)


class ExportError(RuntimeError):
    """A model could not be exported; nothing was left behind."""


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
