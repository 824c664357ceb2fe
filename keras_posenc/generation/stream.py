"""Tokens of one text, as they are generated, up to texts that end it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.generation.search import Search
from keras_posenc.generation.step import First, Step, begun, numbers_of


def noise_of(search: Search, rows: int) -> np.ndarray:
    """Returns what each token of so many texts is drawn with, if it is."""
    noise = search.noise(rows)
    if noise is None:
        return np.zeros((rows, search.decoding.max_length), "float32")
    return np.asarray(ops.convert_to_numpy(noise))


def tokens_of(
    search: Search, steps: tuple[First, Step], source: Any, noise: Any
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields one more token of each text, and whether each has ended with it.

    They are int32 and bool, `(batch,)`; after its end a text has padding.
    `source` and `noise` are as for `Search`.
    """
    first, step = steps
    first.forget_changed()
    step.forget_changed()
    room = search.decoding.room
    prompt = ops.convert_to_numpy(search.prompt(source))
    rows, start = prompt.shape
    # Of one length: for another, XLA would compile each step again.
    seen = np.pad(prompt, ((0, 0), (0, room)), constant_values=search.pad_id)
    given = {
        "seen": seen,
        "index": np.full(rows, start, "int32"),
        "numbers": numbers_of(search),
    }
    state = begun(
        first,
        step,
        {
            "ids": source.astype("int32"),
            "free": np.zeros((rows, room), "int32"),
        },
        {"noise": noise[0], **given},
    )
    ended = np.zeros(rows, bool)
    for token in search.decoding.prefix_ids:
        yield np.full(rows, token, "int32"), ended
    for count in range(room):
        found = step.run({**state, **given, "noise": noise[:, count]}, first)
        score, ends, token = (
            ops.convert_to_numpy(found.pop(name))
            for name in ("score", "ended", "token")
        )
        search.check_scores(score[~ended], of_beams=False)
        token = np.where(ended, search.pad_id, token).astype("int32")
        ended = ended | ends
        yield token, ended
        if ended.all():
            return
        seen[:, start + count] = token
        given["index"] = given["index"] + 1
        state = {**state, **found, "token": token}


class Stream(Iterator[Any]):
    """The iterator that `Generator.stream` returns.

    Attributes:
        ids: The ids so far, a prefix included, without an end symbol.
        ended: None while there may be more; then whether an end symbol came,
            False for a text that was cut off at `max_length`.
    """

    def __init__(
        self,
        search: Search,
        steps: tuple[First, Step],
        source: Any,
        *,
        texts: Callable[[Any], Any] | None = None,
        noise: Any = None,
        settled: Callable[[str], str] | None = None,
    ) -> None:
        self.ids: list[int] = []
        self.ended: bool | None = None
        self._search = search
        self._steps = steps
        self._settled = settled
        # Now, not at the first token: other streams may draw before it.
        noise = noise_of(search, 1) if noise is None else noise
        tokens = self._tokens(source, noise)
        self._handed_on = (
            tokens if texts is None else self._pieces(texts, tokens)
        )

    def __next__(self) -> Any:
        return next(self._handed_on)

    def _tokens(self, source: Any, noise: Any) -> Iterator[int]:
        for (token,), (ended,) in tokens_of(
            self._search, self._steps, source, noise
        ):
            if ended:
                self.ended = True
                return
            self.ids.append(int(token))
            yield self.ids[-1]
        self.ended = False

    def _pieces(
        self, texts: Callable[[Any], Any], tokens: Iterator[int]
    ) -> Iterator[str]:
        """Yields the texts that tokens add, each once it is certain."""
        sent = ""
        for _ in tokens:
            text = texts(np.array([self.ids], "int32"))[0]
            # A character of several tokens is complete with the last.
            if text.endswith("\ufffd"):
                continue
            if self._settled is not None:
                text = self._settled(text)
            if text.startswith(sent):
                if text != sent:
                    yield text[len(sent) :]
                sent = text
        if self.ids:
            text = texts(np.array([self.ids], "int32"))[0]
            if text[_shared(text, sent) :]:
                yield text[_shared(text, sent) :]


def _shared(text: str, other: str) -> int:
    """Returns how many characters two texts begin with."""
    pairs = enumerate(zip(text, other, strict=False))
    least = min(len(text), len(other))
    return next((at for at, (a, b) in pairs if a != b), least)


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
    """Returns one stop string or several as a tuple."""
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
