"""Letters with marks, replaced as the library "tokenizers" replaces them.

SentencePiece replaces the longest part of a text that it has a rule for. The
library does so in graphemes, a letter with its marks: of one of less than six
bytes, by the rule for its shortest beginning, and the rest is dropped; of a
longer one, each character by itself. So it composes "e" with one accent, but
neither a half-width kana with its mark, nor Korean letters.
"""

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping

# What belongs to the character in front: marks, joiners, marks of half-width
# kana, shades of emoji. Of two bytes, and others.
_TWO = r"[^\PM\x{800}-\x{10ffff}]"
_OTHERS = r"\x{200c}\x{200d}\x{ff9e}\x{ff9f}\x{1f3fb}-\x{1f3ff}"
_MORE = rf"(?:[^\PM\x{{0}}-\x{{7ff}}]|[{_OTHERS}])"
_ANY = rf"[\pM{_OTHERS}]"
# Graphemes of six bytes or more: their first character by its bytes, and the
# rest. Where a control character is first, it ends a grapheme.
_LONG = "|".join(
    rf"([^\pC{others}])({rest})"
    for others, rest in (
        (
            r"\x{80}-\x{10ffff}",
            f"{_TWO}{_TWO}{_ANY}+|{_TWO}{_MORE}{_ANY}*|{_MORE}{_ANY}+",
        ),
        (
            r"\x{0}-\x{7f}\x{800}-\x{10ffff}",
            f"{_TWO}{_ANY}+|{_MORE}{_ANY}+",
        ),
        (
            r"\x{0}-\x{7ff}\x{10000}-\x{10ffff}",
            f"{_TWO}{_ANY}+|{_MORE}{_ANY}*",
        ),
        (r"\x{0}-\x{ffff}", f"{_ANY}+"),
    )
)
# Korean consonants and syllables, before vowels and finals.
_KOREAN = r"([\x{1100}-\x{115f}\x{ac00}-\x{d7a3}])([\x{1160}-\x{11ff}])"
_ACCENTS = [*map(chr, range(0x300, 0x370))]


def grapheme_rules(
    rules: Mapping[int, bytes],
    rule_of: Callable[[str], bytes | None],
    parting: str,
) -> list[tuple[str, str]]:
    """Returns replacements after which a model's rules give the library's.

    They are regular expressions of RE2 with what replaces their matches, in
    order. `parting` is a control character that no text has and the rules
    delete, for between letters and marks that are not composed.
    """
    composed: dict[str, list[str]] = {}
    letters = [chr(code) for code in range(0x20, 0x7F) if code not in rules]
    for letter, accent in itertools.product(letters, _ACCENTS):
        if rule_of(letter + accent) is not None:
            composed.setdefault(letter, []).append(accent)
    pairs = [
        f"{re.escape(letter)}[{character_class(accents)}]"
        for letter, accents in composed.items()
    ]
    bases = [chr(code) for code in rules if _is_base(chr(code))]
    two = character_class(c for c in bases if "\x80" <= c < "\u0800")
    three = character_class(c for c in bases if c >= "\u0800")
    # What begins with a rule's characters, which are all that is kept.
    dropped = [
        expression
        for expression, is_known in (
            (r"(\r)\n", ord("\r") in rules),
            (f"({'|'.join(pairs)}){_TWO}", pairs),
            (f"([{two}])(?:{_TWO}|{_MORE})", two),
            (f"([{three}]){_TWO}", three),
        )
        if is_known
    ]
    kept = "".join(f"\\{index + 1}" for index in range(len(dropped) + 1))
    return [
        (_LONG, rf"\1\3\5\7{parting}\2\4\6\8"),
        (
            "|".join([*dropped, _KOREAN]),
            f"{kept}{parting}\\{len(dropped) + 2}",
        ),
    ]


def _is_base(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CM" and (
        character not in "\uff9e\uff9f"
    )


def character_class(characters: Iterable[str]) -> str:
    """Returns ranges, for the inside of a regular expression's brackets."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges)
