"""Late import of pyarrow."""

from typing import Any


def require_pyarrow() -> Any:
    """Returns pyarrow; raises `ImportError` that names the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Scoring tables needs pyarrow: pip install 'keras-posenc[scoring]'"
        ) from error
    return pyarrow
