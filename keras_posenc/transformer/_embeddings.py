"""Embeddings of ids, of which one may be padding, and logits of ids."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import as_integer, check_bool
from keras_posenc.ops.named import ConfiguredLayer

# As `pad_id`: no id of the vocabulary is padding.
NO_ID = -1


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="TokenEmbedding"
)
class TokenEmbedding(keras.layers.Embedding):
    """Keras's embedding with `mask_zero=True`, for any id of padding.

    With `reverse=True` it computes logits of ids from vectors.

    Args:
        input_dim: Number of ids.
        output_dim: Width of the embeddings.
        pad_id: The id of padding, which is masked; -1 if all ids from 0 on are
            tokens, and -1 is padding. None leaves the mask that ids carry.
        keep_inner_padding: Whether that id counts as a token between others,
            as in a text that spells the token of padding.
        scale: Whether embeddings, but not logits, are multiplied by
            `sqrt(output_dim)`, as in section 3.4 of the paper.
        **kwargs: As for `keras.layers.Embedding`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        pad_id: int | None = 0,
        keep_inner_padding: bool = False,
        scale: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("mask_zero", None)
        super().__init__(input_dim, output_dim, mask_zero=True, **kwargs)
        self.pad_id = (
            None
            if pad_id is None
            else check_pad_id("pad_id", pad_id, input_dim)
        )
        self.keep_inner_padding = check_bool(
            "keep_inner_padding", keep_inner_padding
        )
        self.scale = check_bool("scale", scale)

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return self._logits(inputs)
        ids = inputs
        if self.pad_id == NO_ID:
            ids = without_padding(ids, NO_ID)
        x = super().call(ids)
        return x * self.output_dim**0.5 if self.scale else x

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        # For vectors, the mask that they carry.
        if self.pad_id is None or keras.backend.is_float_dtype(dtype):
            return mask
        tokens = is_token(inputs, self.pad_id)
        if not self.keep_inner_padding:
            return tokens
        counted = ops.cast(tokens, "int32")
        so_far = ops.cumsum(counted, axis=-1)
        left = ops.sum(counted, axis=-1, keepdims=True) - so_far + counted
        return ops.logical_and(so_far > 0, left > 0)

    def compute_output_shape(
        self, input_shape: Any, reverse: bool = False
    ) -> tuple[Any, ...]:
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> Any:
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape, reverse),
            dtype=self.compute_dtype,
        )

    def get_config(self) -> dict[str, Any]:
        names = ("pad_id", "keep_inner_padding", "scale")
        own = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **own}

    def _logits(self, inputs: Any) -> Any:
        """Computes `(batch, seq, input_dim)` from `(batch, seq, dim)`."""
        x = ops.cast(inputs, self.compute_dtype)
        outer = ops.shape(x)[:-1]
        is_step = x.shape[-2] == 1
        x = ops.reshape(x, (-1, self.output_dim))
        table = ops.cast(self.embeddings, self.compute_dtype)
        if x.shape[0] == 1:
            logits = ops.matmul(x, ops.transpose(table))
        else:
            # For 2 to 100 rows, the usual number of a step, TensorFlow's
            # product with a transposed table takes up to ten times as long;
            # for one row, the other order a third longer.
            logits = (
                ops.einsum("vd,nd->nv", table, x)
                if is_step
                else ops.einsum("nd,vd->nv", x, table)
            )
        return ops.reshape(logits, (*outer, self.input_dim))


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="PaddedIds"
)
class PaddedIds(ConfiguredLayer, keras.Layer):
    """Gives ids the mask of an id of padding of their own.

    For two inputs that share an `TokenEmbedding(pad_id=None)`.

    Args:
        pad_id: The id of padding, which becomes 0.
        **kwargs: As for `keras.Layer`.
    """

    def __init__(self, pad_id: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pad_id = pad_id
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        # A new tensor: the caller's may carry a mask already.
        return without_padding(inputs, self.pad_id)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return is_token(inputs, self.pad_id)


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="SecondTextEmbedding"
)
class SecondTextEmbedding(ConfiguredLayer, keras.Layer):
    """Adds a vector to all tokens after the first separator of their row.

    BERT has a vector for each type of tokens, 0 and 1. The vector here is
    their difference: that of type 0 can be added to all embeddings.

    Args:
        separator_id: The id after which the second text begins.
        **kwargs: As for `keras.Layer`.

    Call arguments:
        inputs: Embeddings, `(batch, seq, dim)`.
        ids: Their ids, integers of shape `(batch, seq)`.
    """

    def __init__(self, separator_id: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.separator_id = separator_id
        self.supports_masking = True

    def build(self, inputs_shape: Any, ids_shape: Any = None) -> None:
        self.embedding = self.add_weight(
            name="embedding",
            shape=(inputs_shape[-1],),
            initializer="zeros",
        )

    def call(self, inputs: Any, ids: Any) -> Any:
        separators = ops.cast(ops.equal(ids, self.separator_id), "int32")
        is_second = ops.cumsum(separators, axis=1) > separators
        is_second = ops.expand_dims(ops.cast(is_second, inputs.dtype), -1)
        # (batch, seq, 1) * (dim,)
        return inputs + is_second * ops.cast(self.embedding, inputs.dtype)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return mask

    def compute_output_shape(
        self, inputs_shape: Any, ids_shape: Any = None
    ) -> tuple[Any, ...]:
        return tuple(inputs_shape)


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="LogitsBias"
)
class LogitsBias(keras.Layer):
    """Adds a learned number to the logits of each id.

    A table of embeddings that also computes logits has no biases.

    Call arguments:
        inputs: Logits, `(..., vocabulary)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight(
            shape=(input_shape[-1],), initializer="zeros", name="bias"
        )

    def call(self, inputs: Any) -> Any:
        return inputs + ops.cast(self.bias, inputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="LogitsCap"
)
class LogitsCap(ConfiguredLayer, keras.Layer):
    """Keeps logits within a cap, by a hyperbolic tangent.

    Args:
        logits_cap: What no logit exceeds in magnitude.
        **kwargs: As for `keras.Layer`.

    Call arguments:
        inputs: Logits, `(..., vocabulary)`.
    """

    def __init__(self, logits_cap: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logits_cap = logits_cap
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return self.logits_cap * ops.tanh(inputs / self.logits_cap)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)


def check_pad_id(name: str, value: Any, vocabulary: int) -> int:
    """Returns an id of padding: of the vocabulary, or -1 for none of it."""
    number = as_integer(value)
    if number is None or not NO_ID <= number < vocabulary:
        raise ValueError(
            f"`{name}` must be an integer in [0, {vocabulary}), or -1 if no "
            f"id is padding. Received: {name}={value!r}"
        )
    return number


def embedded(embedding: TokenEmbedding, ids: Any, pad_id: int) -> Any:
    """Looks ids up, also where padding is not the embedding's own."""
    if embedding.pad_id != pad_id:
        ids = without_padding(ids, pad_id)
    return embedding(ids)


def is_token(ids: Any, pad_id: int) -> Any:
    """Returns bool of the shape of ids: which are not padding."""
    return ops.not_equal(ids, pad_id)


def without_padding(ids: Any, pad_id: int) -> Any:
    """Returns ids with 0, which any table has, in place of padding."""
    return ops.where(ops.equal(ids, pad_id), ops.zeros_like(ids), ids)
