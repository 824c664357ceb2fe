"""Exported files that this process has loaded, each once."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError, in_words
from keras_posenc.export.record import digests
from keras_posenc.export.regular_files import open_regular
from keras_posenc_worker.runtimes import (
    Runner,
    SavedModel,
    load_litert,
    load_onnx,
)

_loaded: dict[tuple[Any, ...], dict[str, Runner]] = {}
_lock = threading.Lock()


def digest_of(files: Mapping[str, str]) -> str:
    """Returns one digest of the digests of an exported model's files."""
    text = json.dumps(dict(sorted(files.items())))
    return hashlib.sha256(text.encode()).hexdigest()


def load(
    path: Path,
    kind: str,
    digest: str,
    signatures: Iterable[str],
    threads: int | None,
) -> dict[str, Runner]:
    """Returns functions for the signatures of a file, loaded at first use."""
    with _lock:
        key = (path, digest, threads)
        if key not in _loaded:
            content = _read(path, digest)
            try:
                runners = _load(path, content, kind, signatures, threads)
            except ImportError:
                raise
            except Exception as error:  # whatever its runtime raises
                raise ExportError(
                    f"'{path}' does not load: {in_words(error)}"
                ) from error
            if content is None:  # its runtime has read it itself
                _read(path, digest)
            _loaded[key] = runners
        return _loaded[key]


def _read(path: Path, digest: str) -> bytes | None:
    """Returns the content of a file with this digest; None for a folder.

    The digest is that of the bytes that are run: a mapped file would change
    with whatever is written to it.
    """
    content = None
    try:
        if path.is_dir():
            found = digests(path)
        else:
            with open_regular(path) as file:
                content = file.read()
            found = {"": hashlib.sha256(content).hexdigest()}
    except (OSError, ValueError, MemoryError) as error:
        reason = str(error) or "there is not enough memory for it"
        raise ExportError(f"'{path}' cannot be read: {reason}") from error
    if digest_of(found) != digest:
        raise ExportError(
            f"'{path}' has changed since the Scorer was made: make it again"
        )
    return content


def _load(
    path: Path,
    content: bytes | None,
    kind: str,
    signatures: Iterable[str],
    threads: int | None,
) -> dict[str, Runner]:
    if content is None:
        return SavedModel(str(path), threads).runners
    if kind == "onnx":
        return load_onnx(content, signatures, threads)
    runners = load_litert(content, threads)
    # All callers share its tensors.
    turn = threading.Lock()
    return {name: _in_turn(run, turn) for name, run in runners.items()}


def _in_turn(
    run: Runner, turn: contextlib.AbstractContextManager[Any]
) -> Runner:
    def run_in_turn(inputs: dict[str, Any]) -> dict[str, Any]:
        with turn:
            return run(inputs)

    return run_in_turn
