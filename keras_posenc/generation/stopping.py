"""Texts that end an output."""

from collections.abc import Iterator, Sequence
from typing import Any

from keras_posenc.generation.stream import Stream


class Reply(Iterator[str]):
    """The pieces of a text, up to the first stop string, which is no part.

    Attributes:
        ended: None while there may be more; then whether the text is complete:
            False if it was cut off at the most tokens.
    """

    def __init__(self, stream: Stream, stop: Sequence[str]) -> None:
        self.ended: bool | None = None
        self._pieces = self._cut(stream, stop)

    def __next__(self) -> str:
        return next(self._pieces)

    def _cut(self, stream: Stream, stop: Sequence[str]) -> Iterator[str]:
        held = ""  # what may become a stop string
        for piece in stream:
            text, is_over = cut_at(stop, held + piece)
            sent = len(text) if is_over else _certain(text, stop)
            if sent:
                yield text[:sent]
            if is_over:
                self.ended = True
                return
            held = text[sent:]
        if held:
            yield held
        self.ended = stream.ended


def check_stop(stop: Any) -> tuple[str, ...]:
    """Returns one stop string or several as a tuple.

    Raises:
        ValueError: They are no strings, or one is empty.
    """
    several = (stop,) if isinstance(stop, str) else stop
    if not isinstance(several, Sequence) or not all(
        isinstance(each, str) and each for each in several
    ):
        raise ValueError(
            "`stop` must be a text or a list of texts, none of them empty. "
            f"Received: stop={stop!r}"
        )
    return tuple(several)


def cut_at(stop: Sequence[str], text: str) -> tuple[str, bool]:
    """Returns a text before its first stop string, and whether it has one."""
    places = [text.find(each) for each in stop if each in text]
    return (text[: min(places)], True) if places else (text, False)


def _certain(text: str, stop: Sequence[str]) -> int:
    """Returns how many characters cannot be the start of a stop string."""
    longest = max(map(len, stop), default=1) - 1
    for begin in range(max(0, len(text) - longest), len(text)):
        if any(each.startswith(text[begin:]) for each in stop):
            return begin
    return len(text)
