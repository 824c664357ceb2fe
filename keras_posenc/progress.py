"""Shows the steps of long work, and not the logs of native code."""

import contextlib
import datetime
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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
_LONGEST = 2000  # of an error, in characters
_UNPRINTABLE = re.compile(r"[^ -~]")
_CHATTER = re.compile(
    r"[IW]\d{4} |\S+ \S+: [IW] |WARNING|INFO|To enable the"
    r"|fully_quantize: "
)


def printable(text: str) -> str:
    """Returns a text with escapes for what a terminal obeys or cannot show.

    A text from a file may contain anything, terminal commands included.
    """
    return _UNPRINTABLE.sub(
        lambda found: (
            found[0]
            if found[0].isprintable()
            else found[0].encode("unicode_escape").decode()
        ),
        text,
    )


@contextlib.contextmanager
def printable_errors() -> Iterator[None]:
    """Makes messages about files printable and short: see `printable`."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        shown = printable(str(error)[: _LONGEST + 1])
        if len(shown) > _LONGEST:  # names in files may have any length
            shown = f"{shown[:_LONGEST]}…"
        if shown == str(error):
            raise
        kind = FileNotFoundError if isinstance(error, OSError) else ValueError
        raise kind(shown) from None


@contextlib.contextmanager
def progress(verbose: int) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the current step on standard error.

    What native code logs meanwhile is not shown, unless `verbose` is 2: see
    `_native_logs_kept`. The errors among it become a note of the exception
    that ends the work, if one does.

    Args:
        verbose: 0 or False shows nothing, 1 or True the steps, and 2 also the
            logs of native code.

    Yields:
        A function that takes the name of the step that starts.
    """
    with contextlib.ExitStack() as stack:
        stderr = None
        if verbose < 2:
            stack.enter_context(_tensorflow_only_warns())
            stderr = stack.enter_context(_native_logs_kept())
        if not verbose:
            yield lambda message: None
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(file=stderr, stderr=True)
        if not console.is_terminal:
            # Unchanged: a path has no markup, and is not broken in two.
            yield lambda message: console.print(
                Text(f"{message} ..."), soft_wrap=True
            )
            return
        with console.status("") as status:
            yield lambda message: status.update(Text(f"{message} ..."))


@contextlib.contextmanager
def _tensorflow_only_warns() -> Iterator[None]:
    """Drops TensorFlow's logs below warnings: a notebook would show them."""
    logger = logging.getLogger("tensorflow")

    def is_warning(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    logger.addFilter(is_warning)
    try:
        yield
    finally:
        logger.removeFilter(is_warning)


@contextlib.contextmanager
def counting(verbose: int, total: int) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that shows on standard error how many rows are done.

    On a terminal it shows a bar, with rows per second and the time left;
    elsewhere a line, at most every ten seconds. Before the first rows it shows
    that the model is being loaded.

    Args:
        verbose: Whether to show anything.
        total: How many bytes there are to read.

    Yields:
        A function that takes the numbers of rows and of bytes done so far.
    """
    if not verbose:
        yield lambda rows, done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console, began = Console(stderr=True), time.monotonic()

    def in_words(rows: int) -> str:
        if not rows:
            return "loading the model"
        speed = rows / max(time.monotonic() - began, 1e-9)
        return f"{rows:,} rows, {speed:,.0f} rows/s"

    if not console.is_terminal:
        last = began

        def show(rows: int, done: int) -> None:
            nonlocal last
            if time.monotonic() - last >= 10:
                last = time.monotonic()
                words = in_words(rows)
                if rows and done:
                    left = (last - began) * max(0, total - done) / done
                    share = 100 * done // max(total, 1)
                    words = f"{share}%: {words}, {_clock(left)} left"
                console.print(words, highlight=False)

        yield show
        return
    columns = BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[a]}")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, a=in_words(0))
        yield lambda rows, done: bar.update(
            task, completed=done, a=in_words(rows)
        )


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


class _Kept:
    """Where file descriptor 2 leads, for as many as want it elsewhere."""

    lock = threading.Lock()
    users = 0
    terminal = -1
    file: IO[bytes]


@contextlib.contextmanager
def _native_logs_kept() -> Iterator[IO[str] | None]:
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
