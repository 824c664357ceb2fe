"""Texts of many kinds, by which two tokenizers can be compared."""

import unicodedata
from typing import Any

import numpy as np

from keras_posenc.text.spelled_tokens import spelling
from keras_posenc.text.wordpiece_vocabulary import SUFFIX

ORDINARY = (
    "A short sentence, with punctuation.",
    "How tall is the tower in the middle of the city?",
    "She closed the door and walked slowly to the station.",
    "The quick brown fox jumps over the lazy dog.",
    "Sort a list of numbers, and return the largest one.",
    "Prices rose by three percent last year, more than in any year before.",
    "The old woman knew the name of every ship in the harbour.",
    "Water boils at a lower temperature in the mountains.",
)
_TEXTS = (
    "",
    " ",
    "  Several   spaces,\ttabs\r\nand lines \n\n",
    "ALL CAPITALS and MixedCase: it's 3,000.50€, isn't it?",
    "Ünïcödé café and cafe\u0301, \ufb01ne \uff21\uff22\uff11 ½™ ŉ ß İ",
    "\u200bzero\u00a0width\ufeff and\x01control\x7f characters",
    "🙂👍🏽👩‍👩‍👧 ❤️",
    "def f(x):\n    return x ** 2  # code_with_underscores",
    "https://example.org/a?b=c&d=%20 and someone@example.org",
    "0123456789 1.5e-7 12/31/1999",
    "안녕하세요, 세계! 你好、世界。 こんにちは \uff76\uff9e",
    "Привет, мир! नमस्ते สวัสดี مرحبا שלום",
    "a" * 120 + " " + "ab" * 60,
)
_OF_SCRIPT = 12  # tokens of each script


def sample_texts(tokenizer: Any) -> list[str]:
    """Returns texts of many kinds, for a tokenizer.

    Some spell its special tokens; and for each script of its vocabulary, as
    Unicode names letters, one has tokens of that script.
    """
    special = getattr(tokenizer, "_spelled_tokens", lambda: ())()
    special = special or getattr(tokenizer, "special_tokens", None) or ()
    added = getattr(tokenizer, "added_tokens", ())
    spelled = [spelling(x) for x in (*special, *added)]
    texts = [*_TEXTS]
    if spelled:
        texts += [f"a {' b '.join(spelled[:20])}  c", "".join(spelled[:20])]
        texts.append(" ".join(spelled[:20]).swapcase())
    scripts: dict[str, list[str]] = {}
    ids = np.arange(tokenizer.vocabulary_size())[:, np.newaxis]
    for token in tokenizer.detokenize(ids).numpy():
        word = token.decode(errors="replace").removeprefix(SUFFIX).strip()
        letter = next((c for c in word if c.isalpha()), None)
        if letter is not None:
            script = unicodedata.name(letter, "").partition(" ")[0]
            scripts.setdefault(script, []).append(word)
    for words in scripts.values():
        chosen = words[:: max(1, len(words) // _OF_SCRIPT)][:_OF_SCRIPT]
        texts.append(" ".join(chosen))
    return texts
