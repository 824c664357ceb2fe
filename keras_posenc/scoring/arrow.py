"""pyarrow, once it is needed."""

from typing import Any


def require_pyarrow() -> Any:
    """The package; raises `ImportError` that names the extra without it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Scoring tables needs pyarrow: pip install 'keras-posenc[scoring]'"
        ) from error
    return pyarrow
