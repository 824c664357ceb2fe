"""The operators that an exported file may have: those of `operators.toml`.

The user allows more by `allow_operators` (`--allow-op`).
"""

import difflib
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path

_LISTS = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
ALLOWED, BY_PLACE = (
    frozenset(name for group in _LISTS[of].values() for name in group.split())
    for of in ("allowed", "allowed_in_some_places")
)


def check_known(names: Sequence[str], present: Collection[str] = ()) -> None:
    """Raises `ValueError` for a name that no operator has.

    Args:
        names: The user's `allow_operators`. TensorFlow's operators may begin
            with Flex, as in LiteRT files.
        present: The operators of the exported model.
    """
    if not names:
        return  # without importing TensorFlow
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    known = {*ALLOWED, *BY_PLACE, *dir(tf.raw_ops)}
    for name in names:
        plain = name.removeprefix("Flex")
        if name in present or plain in known or op_def_registry.get(plain):
            continue
        near = difflib.get_close_matches(name, sorted(present), n=1)
        near = near or difflib.get_close_matches(name, sorted(known), n=1)
        raise ValueError(
            "`allow_operators` (--allow-op) must be names of operators. "
            f"Received: '{name}', which neither TensorFlow nor the exported "
            f"model has{f'. Did you mean {near[0]!r}?' if near else ''}"
        )
