"""The kinds of positions inside attention, by their names."""

from collections.abc import Callable
from typing import Any

import keras

from keras_posenc.positional.alibi_bias import AlibiBias
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.positional.disentangled_bias import DisentangledBias
from keras_posenc.positional.fire_bias import FireBias
from keras_posenc.positional.kerple_bias import KerpleBias
from keras_posenc.positional.relative_position_bias import RelativePositionBias
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.positional.transformer_xl_bias import TransformerXLBias

#: Those that need no argument; in `analysis` they have the same names.
ATTENTION_KINDS: dict[str, Callable[..., AttentionPosition]] = {
    "rotary": RotaryEmbedding,
    "alibi": AlibiBias,
    "t5": RelativePositionBias,
    "transformer-xl": TransformerXLBias,
    "kerple": KerpleBias,
    "fire": FireBias,
    "deberta": DisentangledBias,
}


def check_attention_position(
    value: Any, dtype: Any, name: str = "attention_position"
) -> AttentionPosition | None:
    """Returns the position given, by name or config too, or None.

    Args:
        value: The argument.
        dtype: That of a layer that is made here.
        name: What the argument is called.

    Raises:
        ValueError: None of these, or a name that is unknown.
    """
    if isinstance(value, str) and value in ATTENTION_KINDS:
        return ATTENTION_KINDS[value](dtype=dtype, name=name)
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if value is None or isinstance(value, AttentionPosition):
        return value
    names = ", ".join(map(repr, ATTENTION_KINDS))
    raise ValueError(
        f"`{name}` must be an AttentionPosition, such as "
        f"keras_posenc.RotaryEmbedding(), the name of one ({names}) or None. "
        f"Received: {name}={value!r}"
    )
