"""Layers that pool a sequence into one vector."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import (
    check_inputs,
    check_sequence_shape,
    check_shape,
)
from keras_posenc.ops.masks import hide_padding, resolve_mask
from keras_posenc.ops.named import NamedArguments, config_of
from keras_posenc.ops.reductions import largest, smallest


class Pooling1D(NamedArguments, keras.Layer):
    """Base of `(batch, seq, dim)` -> `(batch, dim)`.

    A subclass defines `pool(x, mask)`, whose mask is bool `(batch, seq)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        self.built = True

    def pool(self, x: Any, mask: Any) -> Any:
        raise NotImplementedError

    def call(self, inputs: Any, *, mask: Any = None) -> Any:
        mask = resolve_mask(mask, inputs)
        self._check_call(inputs, mask)
        if mask is None:
            mask = ops.ones(ops.shape(inputs)[:2], dtype="bool")
        return ops.cast(self.pool(inputs, mask), self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None

    def compute_output_spec(self, inputs: Any, *, mask: Any = None) -> Any:
        self._check_call(inputs, mask)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, _, dim = input_shape
        return (batch, dim)

    def _check_call(self, inputs: Any, mask: Any) -> None:
        check_inputs(self, inputs)
        batch, seq, _ = inputs.shape
        sizes = {"batch": batch, "seq": seq}
        check_shape("mask", mask, ("batch", "seq"), sizes=sizes)


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


@keras.saving.register_keras_serializable(package="keras_posenc")
class MaskedAveragePooling1D(Pooling1D):
    """Averages the unmasked tokens of each row; zeros if there are none.

    Keras's `GlobalAveragePooling1D` divides 0 by 0 if a row is all padding.
    Sums are computed in float32 or higher.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry; without one every token counts.

    Returns:
        `(batch, dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: Inputs are not of rank 3, or the mask does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> pooling = kp.MaskedAveragePooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    2.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        total, count = _sums(x, mask)
        return total / count


@keras.saving.register_keras_serializable(package="keras_posenc")
class SqrtLengthPooling1D(Pooling1D):
    """Divides the sum of the unmasked tokens by the root of their number.

    Zeros if a row has no token. Sums are computed in float32 or higher.
    sentence-transformers calls this `mean_sqrt_len_tokens`.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments, outputs and errors: those of `MaskedAveragePooling1D`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.ones((1, 9, 1), "float32")
    >>> float(kp.SqrtLengthPooling1D()(tokens)[0, 0])
    3.0

    References:
        - [Cer et al., 2018](https://arxiv.org/abs/1803.11175)
    """

    def pool(self, x: Any, mask: Any) -> Any:
        total, count = _sums(x, mask)
        return total / ops.sqrt(count)


@keras.saving.register_keras_serializable(package="keras_posenc")
class WeightedAveragePooling1D(Pooling1D):
    """Averages the unmasked tokens of each row with weights 1, 2, 3, ...

    Weights are counted from the first unmasked token, so padding may be on
    either side; a masked token between others keeps its number. Zeros if a row
    has no token. Sums are computed in float32 or higher. In models that attend
    only to earlier tokens, later ones know more of the text.

    Args:
        start: The weight of the first unmasked token.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments, outputs and errors: those of `MaskedAveragePooling1D`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [4.0], [100.0]]], "float32")
    >>> pooling = kp.WeightedAveragePooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    3.0

    References:
        - [Muennighoff, 2022](https://arxiv.org/abs/2202.08904), equation 2
    """

    def __init__(self, *, start: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start = check_positive_int("start", start)

    def pool(self, x: Any, mask: Any) -> Any:
        length = ops.shape(x)[1]
        places = ops.arange(length, dtype="int32")
        found = ops.where(mask, places, ops.full_like(places, length))
        places = places - smallest(found, axis=1, keepdims=True) + self.start
        weights = ops.where(mask, places, ops.zeros_like(places))
        total, count = _sums(x, mask, weights)
        return total / count

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}


@keras.saving.register_keras_serializable(package="keras_posenc")
class MaskedMaxPooling1D(Pooling1D):
    """Takes the maximum of each feature over the unmasked tokens of a row.

    Zeros if a row has none. Keras's `GlobalMaxPooling1D` includes padding.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments, outputs and errors: those of `MaskedAveragePooling1D`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> pooling = kp.MaskedMaxPooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    3.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        lowest = ops.full_like(x, float("-inf"))
        found = largest(ops.where(ops.expand_dims(mask, -1), x, lowest), axis=1)
        has_tokens = ops.any(mask, axis=1, keepdims=True)
        return ops.where(has_tokens, found, ops.zeros_like(found))


@keras.saving.register_keras_serializable(package="keras_posenc")
class FirstTokenPooling1D(Pooling1D):
    """The vector of the first token of each row, `[CLS]` in BERT.

    Expects padding at the end: the first token is taken, masked or not. If the
    sequence is empty, returns zeros. The mask has no effect.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments, outputs and errors: those of `MaskedAveragePooling1D`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> float(kp.FirstTokenPooling1D()(tokens)[0, 0])
    1.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        # Equal to `x[:, 0]`, which fails where there is no token.
        return ops.sum(x[:, :1], axis=1)


@keras.saving.register_keras_serializable(package="keras_posenc")
class LastTokenPooling1D(Pooling1D):
    """The vector of the last unmasked token of each row; zeros without any.

    Padding may be on either side. Models that attend only to earlier tokens,
    as decoders do, know the whole text at its last token alone.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments, outputs and errors: those of `MaskedAveragePooling1D`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> pooling = kp.LastTokenPooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    3.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        # A sum with all other tokens hidden: exact, and unlike a gather its
        # operators are in every runtime.
        places = ops.arange(ops.shape(x)[1], dtype="int32") + 1
        places = ops.where(mask, places, ops.zeros_like(places))
        last = ops.equal(places, largest(places, axis=1, keepdims=True))
        return ops.sum(hide_padding(x, ops.logical_and(mask, last)), axis=1)


@keras.saving.register_keras_serializable(package="keras_posenc")
class FirstAndAveragePooling1D(Pooling1D):
    """`(batch, 1 + patches, dim)` -> `(batch, 2 * dim)`, without a mask."""

    def pool(self, x: Any, mask: Any) -> Any:
        return ops.concatenate([x[:, 0], ops.mean(x[:, 1:], axis=1)], axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, _, dim = input_shape
        return (batch, 2 * dim)


@keras.saving.register_keras_serializable(package="keras_posenc")
class ConcatenatedPooling1D(Pooling1D):
    """Pools a sequence in several ways, and concatenates the vectors.

    Args:
        poolings: Layers of this package that pool a sequence, such as
            `MaskedAveragePooling1D`; at least one.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `MaskedAveragePooling1D`.

    Returns:
        `(batch, poolings * dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: There is no pooling, or something else among them; inputs
            are not of rank 3, or the mask does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0]]], "float32")
    >>> poolings = [kp.MaskedAveragePooling1D(), kp.MaskedMaxPooling1D()]
    >>> print(np.array(kp.ConcatenatedPooling1D(poolings)(tokens)))
    [[2. 3.]]
    """

    def __init__(self, poolings: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        are_several = isinstance(poolings, list | tuple) and bool(poolings)
        self.poolings = [
            keras.saving.deserialize_keras_object(each)
            if isinstance(each, dict)
            else each
            for each in (poolings if are_several else [])
        ]
        if not are_several or not all(
            isinstance(each, Pooling1D) for each in self.poolings
        ):
            raise ValueError(
                "`poolings` must be a list of pooling layers of keras_posenc, "
                "such as [kp.FirstTokenPooling1D(), "
                "kp.MaskedAveragePooling1D()]. Received: "
                f"poolings={poolings!r}"
            )

    def pool(self, x: Any, mask: Any) -> Any:
        found = [each.pool(x, mask) for each in self.poolings]
        # Means are float32 where a maximum has the dtype of the inputs.
        return ops.concatenate(
            [ops.cast(each, self.compute_dtype) for each in found], axis=-1
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        shapes = [
            each.compute_output_shape(input_shape) for each in self.poolings
        ]
        return (shapes[0][0], sum(width for _, width in shapes))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}


@keras.saving.register_keras_serializable(package="keras_posenc")
class AfterPrompt(NamedArguments, keras.Layer):
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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
