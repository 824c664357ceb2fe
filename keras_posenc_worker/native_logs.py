"""Keeps the logs of native code off standard error.

`keras_posenc.progress` uses it, and so does the command before Keras and
TensorFlow are imported: hence it is not in keras_posenc.
"""

import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

# Lines of the loggers of absl, TensorFlow (native and Python) and LiteRT, and
# MLIR's messages about a graph, up to an empty line.
_NATIVE = re.compile(
    r"""^(?:
        [IWEF]\d{4}\ \d\d:\d\d:.*\n
        (?:To\ enable\ the\ following\ instructions.*\n)?
        | \d{4}-\d\d-\d\d\ \d\d:\d\d:\S+:\ [IWEF]\ .*\n
        | WARNING:\ All\ log\ messages\ before\ absl.*\n
        | (?:INFO|WARNING|ERROR):(?:absl|tensorflow):.*\n
        | INFO:\ (?:Created|Initialized)\ TensorFlow\ Lite.*\n
        | fully_quantize:\ \d.*\n
        | (?:loc\(|<unknown>:0:|error:\ failed\ while\ converting
             |(?:TFLite\ interpreter\ needs|Some\ ops\ (?:are|in)))
          (?:.*\n)+?(?:\n|\Z)
    )""",
    re.MULTILINE | re.VERBOSE,
)


class _Kept:
    """The target of file descriptor 2, shared by all that redirect it."""

    lock = threading.Lock()
    users = 0
    terminal = -1
    file: IO[bytes]


@contextlib.contextmanager
def native_logs_kept() -> Iterator[IO[str] | None]:
    """Keeps the logs of native code off standard error.

    TensorFlow and LiteRT's converter log to file descriptor 2, whatever
    TF_CPP_MIN_LOG_LEVEL is. It is redirected to a temporary file for the whole
    process: the first thread redirects it and the last one restores it. Then
    everything else that was written, by other threads and child processes too,
    is passed on; only lines with the form of native logs are dropped. If native
    code ends the process, its last words are lost with the file. Python's own
    `sys.stderr` stays as it is.
    """
    kept, terminal = _Kept, None
    with kept.lock:
        if not kept.users:
            try:
                kept.terminal = os.dup(2) if sys.__stderr__ is not None else -1
            except OSError:
                kept.terminal = -1
            if kept.terminal >= 0:  # there is a standard error
                _flush()
                kept.file = tempfile.TemporaryFile(buffering=0)
                os.dup2(kept.file.fileno(), 2)
        kept.users += 1
        if kept.terminal >= 0 and _is_descriptor(sys.stderr):
            terminal = os.fdopen(
                os.dup(kept.terminal),
                "w",
                buffering=1,
                encoding=sys.stderr.encoding,
                errors="backslashreplace",
            )
    try:
        yield terminal
    finally:
        if terminal is not None:
            terminal.close()
        with kept.lock:
            kept.users -= 1
            if not kept.users and kept.terminal >= 0:
                _flush()
                os.dup2(kept.terminal, 2)
                os.close(kept.terminal)
                kept.file.seek(0)
                said = kept.file.read().decode(errors="surrogateescape")
                kept.file.close()
                with contextlib.suppress(OSError):
                    others = _NATIVE.sub("", said)
                    os.write(2, others.encode(errors="surrogateescape"))


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()


def _is_descriptor(stream: IO[str] | None) -> bool:
    """Returns whether a stream writes to file descriptor 2."""
    try:
        return stream is not None and stream.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False
