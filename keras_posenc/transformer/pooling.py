"""Layers that pool a sequence into one vector."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import check_sequence_shape, check_tokens
from keras_posenc.ops.masks import hide_padding, resolve_mask
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.ops.reductions import largest, smallest


def _sums(x: Any, mask: Any, weights: Any = None) -> tuple[Any, Any]:
    """Returns weighted sums of the tokens, and of their weights, at least 1."""
    x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    x = hide_padding(x, mask)
    if weights is None:
        count = ops.sum(ops.cast(mask, x.dtype), axis=1, keepdims=True)
    else:
        weights = ops.cast(weights, x.dtype)
        x = x * ops.expand_dims(weights, -1)
        count = ops.sum(weights, axis=1, keepdims=True)
    return ops.sum(x, axis=1), ops.maximum(count, ops.ones_like(count))


def _mean(x: Any, mask: Any, start: int) -> Any:
    total, count = _sums(x, mask)
    return total / count


def _mean_sqrt_length(x: Any, mask: Any, start: int) -> Any:
    total, count = _sums(x, mask)
    return total / ops.sqrt(count)


def _weighted_mean(x: Any, mask: Any, start: int) -> Any:
    length = ops.shape(x)[1]
    places = ops.arange(length, dtype="int32")
    found = ops.where(mask, places, ops.full_like(places, length))
    places = places - smallest(found, axis=1, keepdims=True) + start
    weights = ops.where(mask, places, ops.zeros_like(places))
    total, count = _sums(x, mask, weights)
    return total / count


def _max(x: Any, mask: Any, start: int) -> Any:
    lowest = ops.full_like(x, float("-inf"))
    found = largest(ops.where(ops.expand_dims(mask, -1), x, lowest), axis=1)
    has_tokens = ops.any(mask, axis=1, keepdims=True)
    return ops.where(has_tokens, found, ops.zeros_like(found))


def _first(x: Any, mask: Any, start: int) -> Any:
    # Equal to `x[:, 0]`, which fails where there is no token.
    return ops.sum(x[:, :1], axis=1)


def _last(x: Any, mask: Any, start: int) -> Any:
    # A sum with all other tokens hidden: exact, and unlike a gather its
    # operators are in every runtime.
    places = ops.arange(ops.shape(x)[1], dtype="int32") + 1
    places = ops.where(mask, places, ops.zeros_like(places))
    last = ops.equal(places, largest(places, axis=1, keepdims=True))
    return ops.sum(hide_padding(x, ops.logical_and(mask, last)), axis=1)


_KINDS: dict[str, Callable[[Any, Any, int], Any]] = {
    "mean": _mean,
    "max": _max,
    "first": _first,
    "last": _last,
    "mean_sqrt_length": _mean_sqrt_length,
    "weighted_mean": _weighted_mean,
    "mean_after_first": lambda x, mask, _: _mean(x[:, 1:], mask[:, 1:], 0),
}


@keras.saving.register_keras_serializable(package="keras_posenc")
class Pooling1D(ConfiguredLayer, keras.Layer):
    """Pools the unmasked tokens of each row into one vector.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [4.0], [100.0]]], "float32")
    >>> mask = np.array([[True, True, False]])
    >>> float(kp.Pooling1D("mean")(tokens, mask=mask)[0, 0])
    2.5
    >>> float(kp.Pooling1D("weighted_mean")(tokens, mask=mask)[0, 0])
    3.0
    >>> print(np.array(kp.Pooling1D(["first", "max"])(tokens, mask=mask)))
    [[1. 4.]]

    Padding may be on either side, except for `"first"`. A row without tokens
    becomes zeros, where Keras's `GlobalAveragePooling1D` divides 0 by 0. Sums
    are computed in float32 or higher.

    Args:
        kind: How tokens become a vector, or a list of kinds, whose vectors
            are concatenated:

            - `"mean"`: their average.
            - `"max"`: the maximum of each feature.
            - `"first"`: the first token, masked or not: `[CLS]` in BERT.
            - `"last"`: the last token, which alone knows the whole text in a
              model that attends only to earlier tokens.
            - `"mean_sqrt_length"`: their sum, divided by the root of their
              number (`mean_sqrt_len_tokens` of sentence-transformers).
            - `"weighted_mean"`: the average with weights 1, 2, 3, ... from
              the first unmasked token on; a masked token between others keeps
              its number.
            - `"mean_after_first"`: the average without the first token.
        start: The weight of the first unmasked token in `"weighted_mean"`.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry; without one every token counts.

    Returns:
        `(batch, kinds * dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: There is no such kind, inputs are not of rank 3, or the
            mask does not fit.

    References:
        - [Cer et al., 2018](https://arxiv.org/abs/1803.11175), the root
        - [Muennighoff, 2022](https://arxiv.org/abs/2202.08904), equation 2,
          the weights
    """

    def __init__(
        self, kind: str | list[str], *, start: int = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        kinds = [kind] if isinstance(kind, str) else kind
        if (
            not isinstance(kinds, list | tuple)
            or not kinds
            or any(each not in [*_KINDS] for each in kinds)
        ):
            raise ValueError(
                "`kind` must be one of "
                f"{', '.join(map(repr, _KINDS))}, or a list of some. "
                f"Received: kind={kind!r}"
            )
        self.kind = kind if isinstance(kind, str) else list(kinds)
        keep_arguments(self, locals())
        self._kinds = tuple(kinds)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)

    def call(self, inputs: Any, *, mask: Any = None) -> Any:
        mask = resolve_mask(mask, inputs)
        check_tokens(self, inputs, mask)
        if mask is None:
            mask = ops.ones(ops.shape(inputs)[:2], dtype="bool")
        # Means are float32 where a maximum has the dtype of the inputs.
        found = [
            ops.cast(_KINDS[kind](inputs, mask, self.start), self.compute_dtype)
            for kind in self._kinds
        ]
        return found[0] if len(found) == 1 else ops.concatenate(found, axis=-1)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None

    def compute_output_spec(self, inputs: Any, *, mask: Any = None) -> Any:
        check_tokens(self, inputs, mask)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, _, dim = input_shape
        return (batch, len(self._kinds) * dim)


@keras.saving.register_keras_serializable(package="keras_posenc")
class AfterPrompt(ConfiguredLayer, keras.Layer):
    """`(batch, seq, dim)` without its first `count` tokens, nor their mask.

    For texts, whose padding is at the end.
    """

    def __init__(self, count: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = count
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs[:, self.count :]

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        mask = resolve_mask(previous_mask, inputs)
        return None if mask is None else mask[:, self.count :]

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, seq, dim = input_shape
        return (batch, None if seq is None else max(seq - self.count, 0), dim)
