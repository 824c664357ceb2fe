"""What is being done, for whoever waits."""

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(verbose: int) -> Iterator[Callable[[str], None]]:
    """A function that shows a step of long work on standard error.

    Args:
        verbose: Whether to show anything.

    Yields:
        A function that takes what is being done now.
    """
    if not verbose:
        yield lambda message: None
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if not console.is_terminal:
        # As it is: a path has no markup, and is not broken in two.
        yield lambda message: console.print(
            Text(f"{message} ..."), soft_wrap=True
        )
        return
    with console.status("") as status:
        yield lambda message: status.update(Text(f"{message} ..."))
