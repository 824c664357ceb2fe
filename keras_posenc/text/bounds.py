"""Limits of tokens, scores and normalizer rules, for TensorFlow's kernels.

TensorFlow's kernels recurse over the characters of a token, and end the process
for one of some million; others take a zero byte for the end of a token.
"""

import math
import struct
from collections.abc import Iterable

# Characters of a token. The longest of known tokenizers have some hundred.
LONGEST = 1000


def check_tokens(name: str, tokens: Iterable[str]) -> None:
    """Raises `ValueError` for a token that native code cannot have."""
    for index, token in enumerate(tokens):
        if not token or "\0" in token or len(token) > LONGEST:
            raise ValueError(
                f"`{name}` must hold tokens of 1 to {LONGEST:,} characters, "
                f"none of them a zero byte. Received at index {index}: "
                f"{len(token):,} characters, {token!r:.40}."
            )


def check_scores(scores: Iterable[float]) -> None:
    """Raises `ValueError` for a score of a piece that is not finite."""
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise ValueError(
                "`model` must have pieces with finite scores. "
                f"Received at index {index}: {score}."
            )


def check_rules(rules: bytes) -> None:
    """Raises `ValueError` for rules of a normalizer that are not whole.

    They are a length, a trie of as many bytes, and texts ended by zero bytes.
    """
    if not rules:
        return
    size = struct.unpack_from("<I", rules)[0] if len(rules) >= 4 else 0
    if not 0 < size <= len(rules) - 5 or size % 4 or rules[-1]:
        raise ValueError(
            "`model` must have a `precompiled_charsmap` that is whole. "
            f"Received: {len(rules):,} bytes, whose trie should have {size:,}."
        )
