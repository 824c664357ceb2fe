"""Messages of protocol buffers, field by field, without parsing them whole."""

from collections.abc import Iterator
from typing import Any

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def fields(
    content: Any, begin: int, end: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yields the fields of a message that lies in a buffer.

    Args:
        content: The buffer.
        begin: Where the message begins.
        end: Where it ends.

    Yields:
        The number of the field, or 0 if it holds no bytes; where it begins,
        where its value begins, and where both end.

    Raises:
        ValueError: It is no message, or not a complete one.
    """
    while begin < end:
        key, value = _varint(content, begin, end)
        kind, stop = key & 7, value
        if kind == _VARINT:
            _, stop = _varint(content, value, end)
        elif kind == _BYTES:
            size, value = _varint(content, value, end)
            stop = value + size
        elif kind in (_EIGHT, _FOUR):
            stop = value + (8 if kind == _EIGHT else 4)
        else:
            raise ValueError("it has fields of no known kind")
        if stop > end:
            raise ValueError("it ends within a field")
        yield key >> 3 if kind == _BYTES else 0, begin, value, stop
        begin = stop


def head(number: int, size: int) -> bytes:
    """Returns the bytes before the value of a field."""
    found = []
    for value in (number << 3 | _BYTES, size):
        while value > 127:  # seven bits in each, the lowest first
            found.append(value & 127 | 128)
            value >>= 7
        found.append(value)
    return bytes(found)


def _varint(content: Any, begin: int, end: int) -> tuple[int, int]:
    """Returns a number, and where it ends."""
    value = 0
    for place in range(begin, min(begin + 10, end)):
        value |= (content[place] & 127) << 7 * (place - begin)
        if content[place] < 128:
            return value, place + 1
    raise ValueError("it ends within a number")
