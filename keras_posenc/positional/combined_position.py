"""Several positions inside the same attention."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.named import config_of
from keras_posenc.positional.attention_kinds import check_attention_position
from keras_posenc.positional.attention_position import AttentionPosition

_HOOKS = (
    "rotate",
    "rotate_keys",
    "bias",
    "values",
    "contextual_bias",
    "steps",
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class CombinedPosition(AttentionPosition):
    """Uses several positions in the same attention.

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

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> kinds = ["rotary", kp.positions.ForgettingBias()]
    >>> position = kp.positions.CombinedPosition(kinds)
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)
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
        self.uses_length = any(each.uses_length for each in parts)
        self.is_absolute = any(each.is_absolute for each in parts)
        self.causal_only = any(each.causal_only for each in parts)
        self.counts_keys = any(each.counts_keys for each in parts)
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
        self.built = True

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

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        return _sum(
            each.bias(query, key, query_positions, key_positions)
            for each in self._with("bias")
        )

    def values(
        self, weights: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        return _sum(
            each.values(weights, query_positions, key_positions)
            for each in self._with("values")
        )

    def contextual_bias(
        self,
        query: Any,
        key: Any,
        mask: Any,
        query_places: Any,
        key_places: Any,
    ) -> Any:
        return _sum(
            each.contextual_bias(query, key, mask, query_places, key_places)
            for each in self._with("contextual_bias")
        )

    def steps(self, x: Any) -> Any:
        (only,) = self._with("steps")
        return only.steps(x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}

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
    if len({id(each) for each in parts}) < len(parts):
        raise ValueError(
            f"`{name}` must not have the same layer twice. "
            f"Received: {name}={value!r}"
        )
    if any(each.num_axes is not None for each in parts):
        raise ValueError(
            f"`{name}` must all take positions that are numbers, not vectors: "
            f"leave `axes` out. Received: {name}={value!r}"
        )
    if sum(each.steps is not None for each in parts) > 1:
        raise ValueError(
            f"`{name}` can have one position with `steps`, such as "
            f"ForgettingBias. Received: {name}={value!r}"
        )
    if any(each.widening > 1 for each in parts[1:]):
        raise ValueError(
            f"`{name}` can have a position that widens queries and keys, such "
            "as PolarEmbedding, in the first place alone: it takes them as "
            f"they are projected. Received: {name}={value!r}"
        )
    if parts[0].widening > 1 and any(each.values for each in parts):
        raise ValueError(
            f"`{name}` with a position that widens queries and keys, such as "
            "PolarEmbedding, can have none with the hook `values`: make "
            "RelativePositionEmbedding with values=False, or leave it out. "
            f"Received: {name}={value!r}"
        )
    return parts


def _sum(terms: Iterable[Any]) -> Any:
    """Returns the sum of what hooks returned; None where all are None."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total
