"""Shows the steps of long work, and not the logs of native code."""

import contextlib
import datetime
import logging
import re
import time
from collections.abc import Callable, Iterator

from keras_posenc_worker.native_logs import native_logs_kept

_LONGEST = 2000  # of an error, in characters
_UNPRINTABLE = re.compile(r"[^ -~]")


def printable(text: str) -> str:
    """A text with what a terminal would obey, or not show, as escapes.

    What files hold may be in it, and so may be anything.
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
    """Makes what is said of files a line that can be shown: see `printable`."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        shown = printable(str(error)[: _LONGEST + 1])
        if len(shown) > _LONGEST:  # a name in a file may have any length
            shown = f"{shown[:_LONGEST]}…"
        if shown == str(error):
            raise
        kind = FileNotFoundError if isinstance(error, OSError) else ValueError
        raise kind(shown) from None


@contextlib.contextmanager
def progress(verbose: int) -> Iterator[Callable[[str], None]]:
    """A function that shows a step of long work on standard error.

    What native code logs meanwhile is not shown, unless `verbose` is 2: see
    `native_logs_kept`. The errors among it become a note of the exception
    that ends the work, if one does.

    Args:
        verbose: 0 or False shows nothing, 1 or True the steps, and 2 also what
            native code logs.

    Yields:
        A function that takes what is being done now.
    """
    with contextlib.ExitStack() as stack:
        stderr = None
        if verbose < 2:
            stack.enter_context(_tensorflow_only_warns())
            stderr = stack.enter_context(native_logs_kept())
        if not verbose:
            yield lambda message: None
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(file=stderr, stderr=True)
        if not console.is_terminal:
            # As it is: a path has no markup, and is not broken in two.
            yield lambda message: console.print(
                Text(f"{message} ..."), soft_wrap=True
            )
            return
        with console.status("") as status:
            yield lambda message: status.update(Text(f"{message} ..."))


@contextlib.contextmanager
def _tensorflow_only_warns() -> Iterator[None]:
    """In notebooks TensorFlow tells standard output what it writes."""
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
    """A function that shows on standard error how many rows are done.

    On a terminal by a bar, with rows per second and the time left; elsewhere
    by a line, at most every ten seconds. Before there are any, the model is
    being loaded.

    Args:
        verbose: Whether to show anything.
        total: How many bytes there are to read.

    Yields:
        A function that takes the rows and the bytes that are done.
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

        def tell(rows: int, done: int) -> None:
            nonlocal last
            if time.monotonic() - last >= 10:
                last = time.monotonic()
                words = in_words(rows)
                if rows and done:
                    left = (last - began) * max(0, total - done) / done
                    share = 100 * done // max(total, 1)
                    words = f"{share}%: {words}, {_clock(left)} left"
                console.print(words, highlight=False)

        yield tell
        return
    columns = BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[a]}")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, a=in_words(0))
        yield lambda rows, done: bar.update(
            task, completed=done, a=in_words(rows)
        )


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
