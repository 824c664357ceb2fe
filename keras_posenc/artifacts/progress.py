"""What is being done, for whoever waits."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(visible: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows a step of long work on standard error.

    Args:
        visible: Whether to show anything.

    Yields:
        A function that takes what is being done now.
    """
    if not visible:
        yield lambda message: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda message: console.print(f"{message} ...")
        return
    with console.status("") as status:
        yield lambda message: status.update(f"{message} ...")
