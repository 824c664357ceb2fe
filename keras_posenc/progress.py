"""Shows the steps of long work."""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator

_LONGEST = 2000  # of an error, in characters
_UNPRINTABLE = re.compile(r"[^ -~]")


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


def printable_lines(text: str) -> str:
    """Returns a text of several lines as `printable` returns each of them."""
    return "\n".join(map(printable, text.split("\n")))


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
        raise kind(shown) from error.__cause__


@contextlib.contextmanager
def progress(verbose: int) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the step that starts on standard error.

    Without `verbose` it shows nothing.
    """
    with _tensorflow_only_warns():
        if not verbose:
            yield lambda message: None
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
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
    """Yields a function that shows on standard error how much is done.

    It takes the numbers of rows, and of `total` files, done so far: shown on a
    terminal always, elsewhere in a line at most every ten seconds.
    """
    if not verbose:
        yield lambda rows, done: None
        return
    from rich.console import Console

    console, status = Console(stderr=True), None
    began = last = time.monotonic()

    def show(rows: int, done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if not console.is_terminal and now - last < 10:
            return
        last = now
        words = "loading the model"
        if rows:
            speed = rows / max(now - began, 1e-9)
            words = (
                f"{done:,} of {total:,} files, {rows:,} rows, "
                f"{speed:,.0f} rows/s"
            )
        if status is not None:
            status.update(words)
        else:
            console.print(words, highlight=False)

    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            status = stack.enter_context(console.status("loading the model"))
        yield show
