"""Fonts for texts of any script, as far as the machine has them."""

import functools
from collections.abc import Iterable

# Fonts whose characters are boxes that say what is missing.
_NO_FONTS = ("last resort", ".lastresort", "lastresort")


def readable(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Font families that together have what texts are made of, and the texts.

    A character that no installed font has would be a box and a warning each
    time that it is drawn: in the texts it is written as U+C6D4, say.

    Args:
        texts: What is to be drawn.

    Returns:
        For matplotlib's `fontfamily`, matplotlib's own first, and the texts.
    """
    from matplotlib import font_manager

    texts = list(texts)
    own = font_manager.findfont(font_manager.FontProperties())
    families = [font_manager.FontProperties(fname=own).get_name()]
    missing = {ord(c) for text in texts for c in text} - _characters(own)
    if missing:
        # Those of one font look alike: first the font that has the most.
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
    """The code points that a font has; none of what is no readable font."""
    from matplotlib import font_manager

    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
