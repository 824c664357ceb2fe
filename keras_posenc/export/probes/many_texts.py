"""Some 500 texts of many kinds, to compare tokenizers with."""

import itertools
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

# ruff: noqa: RUF001 (texts of other scripts)
_PHRASES = (
    "The quick brown fox jumps over the lazy dog.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Voix ambiguë d’un cœur qui, au zéphyr, préfère les jattes de kiwis.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul ISPARTA",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "いろはにほへと ちりぬるを カタカナ ﾊﾝｶｸ",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。",
    "다람쥐 헌 쳇바퀴에 타고파 각",
    "Tiếng Việt có dấu: Nguyễn ở Huế",
    "def f(x: int) -> str:\n    return f'{x!r}'  # why?\n",
    "SELECT * FROM t WHERE a >= 3.14e-10 AND b IS NOT NULL;",
    "https://example.org/a?b=c&d=%20#e  me@example.org",
    "1234567890 12,345.67 3/4 −5 ½ ² Ⅷ ①",
    "🙂 👩‍👩‍👧‍👦 🇰🇷 ✈️ 👍🏽",
    "cafe\u0301 e\u0308 \ufb01 \u212b \u1e9b\u0323",
    "tabs\tand\n\nlines\r\nand   spaces   ",
    "don't we'll I'VE they're 'quoted' \"double\"",
    "!!! ??? ... --- === ~~~ ``` <<< >>>",
    "zero\u200bwidth\u200d joiner\u2060 bom\ufeff soft\u00adhyphen",
    "no\u00a0break\u2003em\u3000ideographic\u2028line\u0085next",
    "\u0001\u0007\u001b\u007f",
    "a" * 300,
    "Donaudampfschifffahrtsgesellschaftskapitän" * 3,
    "UPPER lower MiXeD cAmElCase snake_case kebab-case",
    "\ufffd \ue000 \U0001f9ff \U00020000 \U0010ffff",
)


_HANGUL = range(0xAC00, 0xAD00)


def many_texts(tokens: Sequence[str] = ()) -> list[str]:
    """Returns the texts, without any NUL, which a C string cannot hold."""
    return [*dict.fromkeys(_texts(tokens))]


def _texts(tokens: Sequence[str]) -> Iterator[str]:
    yield from ("", " ", "  ", "\n", "\t", "a", ".", "é", "中", "🙂")
    yield from _PHRASES
    for each in _PHRASES:
        yield f" {each}"
        yield f"{each}\n"
        yield each.upper()
        yield each.lower()
        yield each[: len(each) // 2]
        yield each[::3]
    for first, second in itertools.pairwise(_PHRASES):
        yield f"{first} {second}"
        yield f"{first}{second}"
    for token in tokens[:40]:
        yield f"before{token}after {token} {token}{token}\n"
    # Characters of all planes in common use, and pieces of the phrases. Not
    # those that Unicode added later: libraries have other versions of it.
    rng = np.random.default_rng(0)
    common = [
        each
        for each in (*range(1, 0x3000), *range(0x4E00, 0x4F00), *_HANGUL)
        if unicodedata.ucd_3_2_0.category(chr(each)) != "Cn"
    ]
    for _ in range(120):
        chosen = rng.choice(common, 12)
        yield "".join(map(chr, chosen))
    pieces = " ".join(_PHRASES).split(" ")
    for _ in range(100):
        yield " ".join(rng.choice(pieces, 12))
