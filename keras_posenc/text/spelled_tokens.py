"""Tokens that become one id wherever a text spells them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_posenc.text.byte_pair_words import CUT, WHITE


def spelling(token: str) -> str:
    """Returns a token without the space for taking white space."""
    return token[1:] if token.startswith(" ") and token.strip() else token


def starts_with(tokens: Sequence[str], others: str, texts: Any) -> Any:
    """Returns whether texts start with one of some tokens, or another match."""
    import tensorflow as tf

    either = "|".join([*map(_expression, tokens), others])
    return tf.strings.regex_full_match(texts, f"(?s)(?:{either}).*")


def ids_around(
    tokens: Sequence[str],
    ids: Mapping[str, int],
    texts: Any,
    between: Callable[[Any], Any],
) -> Any:
    """Returns the ids of texts in which some tokens are spelled.

    A token with a space in front, `" <mask>"`, also takes all white space
    there; its id is that of the token without. `between` gives the ids, ragged,
    of the parts of texts around the tokens. Texts must be valid UTF-8.
    """
    import tensorflow as tf

    if not tokens:
        return between(texts)
    replace = tf.strings.regex_replace
    # Where several start, the longest comes first.
    longest = sorted(tokens, key=lambda token: -len(spelling(token)))
    x = replace(texts, "|".join(map(_expression, longest)), CUT + rb"\0" + CUT)
    parts = tf.strings.split(x, CUT)  # (batch, any): text, token, ..., text
    flat = parts.flat_values
    row = tf.ragged.range(parts.row_lengths()).flat_values
    is_token = row % 2 == 1
    spelled = tf.boolean_mask(flat, is_token)
    for token in longest:
        if spelling(token) != token:
            alone = re.escape(spelling(token))
            spelled = replace(spelled, rf"^[{WHITE}]*({alone})$", r"\1")
    names = [*map(spelling, tokens)]
    place = tf.argmax(
        tf.cast(tf.expand_dims(spelled, 1) == names, "int32"), axis=1
    )
    found = tf.RaggedTensor.from_row_lengths(
        tf.gather([ids[name] for name in names], place),
        tf.cast(is_token, "int64"),
    )
    joined = tf.concat([between(tf.where(is_token, "", flat)), found], 1)
    return parts.with_flat_values(joined).merge_dims(1, 2)


def _expression(token: str) -> str:
    spelled = re.escape(spelling(token))
    return spelled if spelling(token) == token else f"[{WHITE}]*{spelled}"
