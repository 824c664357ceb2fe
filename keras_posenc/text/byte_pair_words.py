"""The words that byte-level BPE splits into pieces, in TensorFlow.

The same as in the library "tokenizers", by the regular expressions of GPT-2,
Llama 3, Qwen 2 and SmolLM2. All end with two alternatives for white space:
first a run without its last character, where something follows (that character
belongs to the next word), then any run. TensorFlow's RE2 cannot look ahead. So
that last character is cut off first, and a single alternative for any run
remains.
"""

import re
from typing import Any

# Unicode's white space; RE2's `\s` is ASCII's.
WHITE = r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}"
WHITE += r"\x{202f}\x{205f}\x{3000}"


def ranges(classes: str) -> str:
    """Returns ranges for the inside of a regular expression's brackets."""
    return re.sub(r"\s*([0-9a-f]+)(-?)", r"\\x{\1}\2", classes.strip())


# RE2 has the classes of Unicode 15, "tokenizers" those of Unicode 16.
_LETTERS = r"\pL" + ranges(
    """
    1c89-1c8a a7cb-a7cd a7da-a7dc 105c0-105f3 10d4a-10d65 10d6f-10d85
    10ec2-10ec4 11380-11389 1138b 1138e 11390-113b5 113b7 113d1 113d3
    11bc0-11be0 13460-143fa 16100-1611d 16d40-16d6c 18cff 1e5d0-1e5ed 1e5f0
    2ebf0-2ee5d
    """,
)
_NUMBERS = r"\pN" + ranges(
    """
    10d40-10d49 116d0-116e3 11bf0-11bf9 16130-16139 16d70-16d79 1ccf0-1ccf9
    1e5f1-1e5fa
    """,
)
# A byte that UTF-8 never has, and so no expression matches it.
CUT = b"\xff"

_SHORT = "'s|'t|'re|'ve|'m|'ll|'d"


def _before(last: str, next_: str) -> str:
    """Returns white space, the last of it, and what may follow."""
    return f"([{WHITE}])([{last}][^{next_}])"


def _gpt2(digits: str, next_: str = WHITE) -> tuple[str, str, str]:
    return (
        rf"{_SHORT}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+"
        r"|\s+(?!\S)|\s+",
        rf"{_SHORT}| ?[{_LETTERS}]+|{digits}"
        rf"| ?[^{WHITE}{_LETTERS}{_NUMBERS}]+|[{WHITE}]+",
        _before(WHITE, next_),
    )


def _llama3(digits: str) -> tuple[str, str, str]:
    return (
        rf"(?i:{_SHORT})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        rf"(?i:{_SHORT})|[^\r\n{_LETTERS}{_NUMBERS}]?[{_LETTERS}]+"
        rf"|[{_NUMBERS}]{digits}| ?[^{WHITE}{_LETTERS}{_NUMBERS}]+[\r\n]*"
        rf"|[{WHITE}]*[\r\n]+|[{WHITE}]+",
        # Not line breaks: here they end a run.
        _before(WHITE.replace(r"\t-\r", r"\t\x{b}\x{c}"), WHITE),
    )


# The expression of "tokenizers"; the same without looking ahead; and where to
# cut off the last of several characters of white space. "smollm2" is that of
# GPT-2 between digits, each of which is a word.
_EXPRESSIONS = {
    "gpt2": _gpt2(f" ?[{_NUMBERS}]+"),
    "llama3": _llama3("{1,3}"),
    "qwen2": _llama3(""),
    "smollm2": _gpt2(f"[{_NUMBERS}]", WHITE + _NUMBERS),
}
PATTERNS = tuple(_EXPRESSIONS)


def expression_of(pattern: str) -> str:
    """Returns the expression of "tokenizers" that one of `PATTERNS` is for."""
    return _EXPRESSIONS[pattern][0]


def byte_pair_words(texts: Any, pattern: str) -> Any:
    """Splits texts into words, without losing characters."""
    import tensorflow as tf

    replace = tf.strings.regex_replace
    _, words, last = _EXPRESSIONS[pattern]
    x = replace(texts, last, rb"\1" + CUT + rb"\2")
    x = tf.strings.split(replace(x, words, rb"\0" + CUT), CUT)
    return tf.ragged.boolean_mask(x, x != "")
