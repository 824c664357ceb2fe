"""The kinds of positions inside attention, by name."""

from collections.abc import Callable
from typing import Any

import keras

from keras_posenc.ops.suggestions import misspelt
from keras_posenc.positional._merged_encoding import TokenEncoding
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.positional.biases import (
    AlibiBias,
    DisentangledBias,
    FireBias,
    KerpleBias,
    RelativePositionBias,
    TransformerXLBias,
)
from keras_posenc.positional.rotary_embedding import RotaryEmbedding

#: The kinds that need no argument, with the same names as in `analysis`.
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
    """Returns the position given, also by name or config, or None.

    Args:
        value: The argument.
        dtype: Dtype of a layer that is made here.
        name: The name of the argument.

    Raises:
        ValueError: None of these, or an unknown name.
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
        f"Received: {name}={value!r}{advice_for(value)}"
    )


def advice_for(value: Any) -> str:
    """Says where in a model a value belongs that is no position there."""
    kind = value if isinstance(value, type) else type(value)
    if kind is value and issubclass(kind, keras.Layer):
        return f", a class. Give a layer: {kind.__name__}(...)"
    if issubclass(kind, AttentionPosition):
        return ". It belongs inside attention: give it as `attention_position`"
    if issubclass(kind, TokenEncoding):
        return ". It belongs in the inputs: put it after the Embedding layer"
    if not isinstance(value, str):
        return ""
    names = {name: name for name in ATTENTION_KINDS}
    for name, known in ATTENTION_KINDS.items():
        names[getattr(known, "__name__", "")] = name
    for each in misspelt(value, names):
        return f". Did you mean attention_position={names[each]!r}?"
    if misspelt(value, ("shaw", "relative", "RelativePositionEmbedding")):
        return (
            ", which must be given as a layer: "
            "keras_posenc.positions.RelativePositionEmbedding(max_distance=16)"
        )
    if misspelt(value, ("sinusoidal", "sinusoid", "PositionalEncoding")):
        return (
            ", which is added to the embeddings: give a model "
            "input_position='sinusoidal', or put the layer "
            "keras_posenc.PositionalEncoding() before this one"
        )
    return ""
