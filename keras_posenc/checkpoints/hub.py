"""Models of Hugging Face's hub, by name."""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

# "org/name", by which the hub calls a model.
ON_HUB = r"\w[\w.-]*/\w[\w.-]*"
# No pickled weights, which run code when they are read.
_FILES = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.spm", "*.txt")
# Weights a second time, for other libraries.
_OTHERS = ("onnx/*", "openvino/*", "original/*", "consolidated*")


def is_on_hub(name: Any) -> bool:
    """Returns whether this can only be the name of a model on the hub."""
    return (
        isinstance(name, str | os.PathLike)
        and re.fullmatch(ON_HUB, os.fspath(name)) is not None
        and not Path(name).parent.exists()
    )


def fetched(
    name: str | os.PathLike[str], revision: str | None, verbose: bool
) -> Any:
    """Returns a folder of the hub's cache for a name on the hub.

    What exists, and what is no such name, is returned as it is. Files that the
    cache has are not downloaded again.

    Raises:
        ImportError: The library `huggingface_hub` is missing.
        FileNotFoundError: There is no such model or revision, or no access.
    """
    if not is_on_hub(name):
        if revision is not None:
            raise ValueError(
                "`revision` is that of a model on the hub, and must be None "
                f"for a folder. Received: revision={revision!r} and '{name}'"
            )
        return name
    name = os.fspath(name)
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError
        from huggingface_hub.utils.tqdm import (
            disable_progress_bars,
            enable_progress_bars,
        )
    except ImportError as error:
        at = f" --revision {revision}" if revision else ""
        raise ImportError(
            f"'{name}' is no folder here. To fetch it by its name: pip install "
            f"'keras-posenc[hub]'. Or: hf download {name}{at} --local-dir "
            f"{Path(name).name}, and give '{Path(name).name}'"
        ) from error
    with contextlib.ExitStack() as stack:
        if not verbose:
            disable_progress_bars()
            stack.callback(enable_progress_bars)
        try:
            return huggingface_hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=[*_FILES],
                ignore_patterns=[*_OTHERS],
            )
        except (HfHubHTTPError, OSError) as error:
            first = str(error).strip().partition("\n")[0]
            raise FileNotFoundError(
                f"'{name}' cannot be fetched from the hub: {first}. A gated "
                "model needs its conditions accepted there, and `hf auth login`"
            ) from error
