"""The kinds of positions inside attention, by name."""

import inspect
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
        f"Received: {name}={value!r}{_advice(value)}"
    )


def kind_meant(value: Any) -> str | None:
    """Returns the name of the kind that another name means, or None."""
    if not isinstance(value, str):
        return None
    known = {name: name for name in ATTENTION_KINDS}
    for name, kind in ATTENTION_KINDS.items():
        known[getattr(kind, "__name__", "")] = name
    return next((known[each] for each in misspelt(value, known)), None)


def call_of(kind: type) -> str:
    """Returns the code of a call of a class that was given as a layer."""
    required = ", ".join(
        f"{p.name}=..."
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )
    return f"{kind.__name__}({required})"


def _advice(value: Any) -> str:
    if kind := kind_meant(value):
        return f". Did you mean {kind!r}?"
    if isinstance(value, type) and issubclass(value, AttentionPosition):
        return f", a class. Give a layer: {call_of(value)}"
    if issubclass(
        value if isinstance(value, type) else type(value), TokenEncoding
    ):
        return ". It belongs in the inputs: put it after the Embedding layer"
    if isinstance(value, str):
        if misspelt(value, ("shaw", "relative", "RelativePositionEmbedding")):
            return (
                ", which must be given as a layer: "
                "keras_posenc.positions.RelativePositionEmbedding("
                "max_distance=16)"
            )
        if misspelt(value, ("sinusoidal", "sinusoid", "PositionalEncoding")):
            return (
                ", which is added to the embeddings: give a model "
                "input_position='sinusoidal', or put the layer "
                "keras_posenc.PositionalEncoding() before this one"
            )
    return ""
