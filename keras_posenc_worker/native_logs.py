"""Keeps the logs of native code off standard error.

`keras_posenc.progress` does so, and the command, which begins before Keras and
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

# Lines of absl's and TensorFlow's loggers, native or Python's, and of LiteRT;
# and what MLIR says of a graph, up to an empty line.
_NATIVE = re.compile(
    r"""^(?:
        [IWEF]\d{4}\ \d\d:\d\d:.*\n
        (?:To\ enable\ the\ following\ instructions.*\n)?
        | \d{4}-\d\d-\d\d\ \d\d:\d\d:\S+:\ [IWEF]\ .*\n
        | WARNING:\ All\ log\ messages\ before\ absl.*\n
        | (?:INFO|WARNING|ERROR):(?:absl|tensorflow):.*\n
        | INFO:\ (?:Created|Initialized)\ TensorFlow\ Lite.*\n
        | fully_quantize:\ \d.*\n
        | (?:loc\(|<unknown>:0:|error:\ failed\ while\ converting)
          (?:.*\n)+?(?:\n|\Z)
    )""",
    re.MULTILINE | re.VERBOSE,
)
_CHATTER = re.compile(
    r"[IW]\d{4} |\S+ \S+: [IW] |WARNING|INFO|To enable the"
    r"|fully_quantize: "
)


class _Kept:
    """Where file descriptor 2 leads, for as many as want it elsewhere."""

    lock = threading.Lock()
    users = 0
    terminal = -1
    file: IO[bytes]


@contextlib.contextmanager
def native_logs_kept() -> Iterator[IO[str] | None]:
    """Keeps what native code logs off standard error.

    TensorFlow and LiteRT's converter log to file descriptor 2, whatever
    TF_CPP_MIN_LOG_LEVEL says. It leads to a temporary file meanwhile, for the
    whole process: threads share it, the first to come redirects it and the
    last to go restores it. What others write there, other threads and processes
    that they start among them, is passed on then, all but the lines that are
    native logs by their form. If native code ends the process, its last words
    are lost with the file. Python's own `sys.stderr` stays as it is.

    Yields:
        A file for what is to be seen at once, where `sys.stderr` itself writes
        to the descriptor; else None.
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
                # Each write goes to its end, wherever it is read.
                kept.file = tempfile.TemporaryFile("a+b", buffering=0)
                os.dup2(kept.file.fileno(), 2)
        kept.users += 1
        if kept.terminal >= 0:
            begin = os.lseek(kept.file.fileno(), 0, os.SEEK_END)
            if _is_descriptor(sys.stderr):
                terminal = os.fdopen(
                    os.dup(kept.terminal),
                    "w",
                    buffering=1,
                    encoding=sys.stderr.encoding,
                    errors="backslashreplace",
                )
    try:
        yield terminal
    except Exception as error:
        if kept.terminal >= 0:
            _flush()
            with kept.lock:
                said = _read(kept.file, begin)
            errors = [
                line
                for found in _NATIVE.findall(said)
                for line in found.splitlines()
                if line and not _CHATTER.match(line)
            ]
            if errors:
                error.add_note("\n".join(["Native code wrote:", *errors[-20:]]))
        raise
    finally:
        if terminal is not None:
            terminal.close()
        with kept.lock:
            kept.users -= 1
            if not kept.users and kept.terminal >= 0:
                _flush()
                os.dup2(kept.terminal, 2)
                os.close(kept.terminal)
                others = _NATIVE.sub("", _read(kept.file, 0))
                kept.file.close()
                with contextlib.suppress(OSError):
                    os.write(2, others.encode(errors="surrogateescape"))


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()


def _is_descriptor(stream: IO[str] | None) -> bool:
    """Whether a stream writes to file descriptor 2; a notebook's does not."""
    try:
        return stream is not None and stream.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False


def _read(file: IO[bytes], begin: int) -> str:
    file.seek(begin)
    return file.read().decode(errors="surrogateescape")
