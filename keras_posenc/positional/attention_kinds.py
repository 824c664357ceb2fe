"""The kinds of positions inside attention, by name, and several at once."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.suggestions import misspelt
from keras_posenc.positional._merged_encoding import TokenEncoding
from keras_posenc.positional.attention_position import (
    AttentionPosition,
    OwnPosition,
)
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
    value: Any, dtype: Any, name: str = "position"
) -> AttentionPosition | None:
    """Returns the position given, also by name or config, or None."""
    if isinstance(value, str) and value in ATTENTION_KINDS:
        layer = name.removesuffix("_position") + "_position"
        return ATTENTION_KINDS[value](dtype=dtype, name=layer)
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if value is None or isinstance(value, AttentionPosition):
        return value
    names = ", ".join(map(repr, ATTENTION_KINDS))
    raise ValueError(
        f"`{name}` must be an AttentionPosition, such as "
        f"keras_posenc.RotaryEmbedding(), the name of one ({names})"
        f"{', an Attention' * name.endswith('attention')} or None. "
        f"Received: {name}={value!r}{advice_for(name, value)}"
    )


def advice_for(name: str, value: Any) -> str:
    """Says where in a model a value belongs that is no position there."""
    kind = value if isinstance(value, type) else type(value)
    if kind is value and issubclass(kind, keras.Layer):
        return f", a class. Give a layer: {kind.__name__}(...)"
    name = name.replace("input_position", "attention")
    if issubclass(kind, AttentionPosition):
        return f". It belongs inside attention: give it as `{name}`"
    if issubclass(kind, TokenEncoding):
        return ". It belongs in the inputs: put it after the Embedding layer"
    if not isinstance(value, str):
        return ""
    return "".join(
        f". Did you mean {name}={each!r}?"
        for each in misspelt(value, ATTENTION_KINDS)
    )


_HOOKS = (
    "rotate",
    "rotate_keys",
    "bias",
    "values",
    "contextual_bias",
    "steps",
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class CombinedPosition(OwnPosition):
    """Uses several positions in the same attention.

    >>> import keras_posenc as kp
    >>> kinds = ["rotary", kp.positions.ForgettingBias()]
    >>> position = kp.positions.CombinedPosition(kinds)
    >>> layer = kp.SelfAttention(4, attention=position)

    Rotations follow one another, in the given order; terms of the scores, and
    additions to the outputs, are summed. `PolarEmbedding`, which makes queries
    and keys wider, comes first.

    Args:
        attention_positions: At least two: each an `AttentionPosition`, or the
            name of a kind, such as `"rotary"`.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: Not a list of at least two positions; a position twice;
            two with the hook `steps`; or one that widens queries and keys after
            another one, or together with one that has the hook `values`.
    """

    def __init__(
        self,
        attention_positions: Sequence[AttentionPosition | str],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention_positions = _checked(
            attention_positions, self.dtype_policy
        )
        parts = self.attention_positions
        for flag in (
            "uses_length",
            "is_absolute",
            "causal_only",
            "counts_keys",
        ):
            setattr(self, flag, any(getattr(each, flag) for each in parts))
        self.widening = parts[0].widening
        self.bidirectional = all(
            getattr(each, "bidirectional", True) for each in parts
        )
        for hook in _HOOKS:
            if not self._with(hook):  # absent: attention sees that
                setattr(self, hook, None)

    def build(self, input_shape: Any, tokens_shape: Any = None) -> None:
        for each in self.attention_positions:
            if not each.built:
                shapes = [input_shape]
                if each.steps is not None:
                    shapes.append(tokens_shape)
                each.build(*shapes)
            *outer, width = input_shape
            input_shape = *outer, width * each.widening

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        return self._rotate("rotate", x, positions, known)

    def rotate_keys(self, x: Any, positions: Any, known: Any = None) -> Any:
        return self._rotate("rotate_keys", x, positions, known)

    def _rotate(self, hook: str, x: Any, positions: Any, known: Any) -> Any:
        # Each in the dtype that it would get alone: xPos chooses by it what
        # queries and keys have in common.
        known, dtype = {} if known is None else known, x.dtype
        for each in self.attention_positions:
            x = ops.cast(each.turned(hook, x, positions, known), dtype)
        return x

    def bias(self, *args: Any) -> Any:
        return self._sum("bias", *args)

    def values(self, *args: Any) -> Any:
        return self._sum("values", *args)

    def contextual_bias(self, *args: Any) -> Any:
        return self._sum("contextual_bias", *args)

    def _sum(self, hook: str, *args: Any) -> Any:
        """Returns the sum of what hooks return; None where all are None."""
        total = None
        for each in self._with(hook):
            term = getattr(each, hook)(*args)
            if term is not None:
                total = term if total is None else total + term
        return total

    def steps(self, x: Any) -> Any:
        (only,) = self._with("steps")
        return only.steps(x)

    def _with(self, hook: str) -> list[Any]:
        """Returns the positions that have a hook."""
        return [
            each
            for each in self.attention_positions
            if getattr(each, hook) is not None
        ]


def _checked(value: Any, dtype: Any) -> list[AttentionPosition]:
    name = "attention_positions"
    parts: list[Any] = []
    if isinstance(value, list | tuple):
        parts = [check_attention_position(x, dtype, name) for x in value]
    if len(parts) < 2 or None in parts:
        raise ValueError(
            f"`{name}` must be a list of at least two positions, such as "
            "['rotary', keras_posenc.positions.ScalableSoftmax()]. "
            f"Received: {name}={value!r}"
        )
    for is_wrong, why in (
        (
            len({id(each) for each in parts}) < len(parts),
            "must not have the same layer twice",
        ),
        (
            any(each.num_axes is not None for each in parts),
            "must all take positions that are numbers, not vectors: leave "
            "`axes` out",
        ),
        (
            sum(each.steps is not None for each in parts) > 1,
            "can have one position with `steps`, such as ForgettingBias",
        ),
        (
            any(each.widening > 1 for each in parts[1:]),
            "can have a position that widens queries and keys, such as "
            "PolarEmbedding, in the first place alone: it takes them as they "
            "are projected",
        ),
        (
            parts[0].widening > 1 and any(each.values for each in parts),
            "with a position that widens queries and keys, such as "
            "PolarEmbedding, can have none with the hook `values`: make "
            "RelativePositionEmbedding with values=False, or leave it out",
        ),
    ):
        if is_wrong:
            raise ValueError(f"`{name}` {why}. Received: {name}={value!r}")
    return parts
