"""Fonts for texts in any script, among those that are installed."""

import functools
from collections.abc import Iterable

# These fonts have a box for every character, and no letters.
_NO_FONTS = ("last resort", ".lastresort", "lastresort")


def readable(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns font families that cover the texts, and the texts.

    A character that no installed font has would be drawn as a box, with a
    warning each time. The texts returned have its code point instead: U+C6D4.

    Args:
        texts: The texts to draw.

    Returns:
        Families for matplotlib's `fontfamily`, its default first; the texts.
    """
    from matplotlib import font_manager

    texts = list(texts)
    own = font_manager.findfont(font_manager.FontProperties())
    families = [font_manager.FontProperties(fname=own).get_name()]
    missing = {ord(c) for text in texts for c in text} - _characters(own)
    if missing:
        # Few fonts look better: take the one that covers the most first.
        entries = [
            entry
            for entry in font_manager.fontManager.ttflist
            if not entry.name.lower().startswith(_NO_FONTS)
            and entry.style == "normal"
        ]
        while missing and entries:
            best = max(
                entries,
                key=lambda entry: len(missing & _characters(entry.fname)),
            )
            gained = missing & _characters(best.fname)
            if not gained:
                break
            families.append(best.name)
            missing -= gained
    spelled = {code: f"U+{code:04X}" for code in missing}
    return families, [text.translate(spelled) for text in texts]


@functools.cache
def _characters(path: str) -> frozenset[int]:
    """Returns the code points that a font has; none if it is unreadable."""
    from matplotlib import font_manager

    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
