"""What can go wrong with an artifact."""


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
