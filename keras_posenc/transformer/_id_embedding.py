"""Embeddings of ids, of which one may be padding."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import as_integer, check_bool

# As `pad_id`: no id of the vocabulary is padding.
NO_ID = -1


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="IdEmbedding"
)
class IdEmbedding(keras.layers.Embedding):
    """Keras's embedding with `mask_zero=True`, for any id of padding.

    Args:
        input_dim: Number of ids.
        output_dim: Width of the embeddings.
        pad_id: The id of padding, which is masked; -1 if all ids from 0 on are
            tokens, and -1 is padding. None leaves the mask that ids carry.
        keep_inner_padding: Whether that id counts as a token between others,
            as in a text that spells the token of padding.
        **kwargs: As for `keras.layers.Embedding`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        pad_id: int | None = 0,
        keep_inner_padding: bool = False,
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

    def call(self, inputs: Any) -> Any:
        inputs = self._found(inputs)
        try:
            return super().call(inputs)
        except Exception as error:
            # TensorFlow, outside graphs: its message names no argument.
            raised: Any = error
            message = str(getattr(raised, "message", ""))
            if " is not in [0, " not in message:
                raise
            message += (
                f". Ids must be from 0 to {self.input_dim - 1}: layer "
                f"'{self.name}' has input_dim={self.input_dim}, which is a "
                "model's `vocabulary_size`"
            )
            raise type(raised)(raised.node_def, raised.op, message) from None

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        if self.pad_id is None:
            return mask
        tokens = is_token(inputs, self.pad_id)
        if not self.keep_inner_padding:
            return tokens
        counted = ops.cast(tokens, "int32")
        so_far = ops.cumsum(counted, axis=-1)
        left = ops.sum(counted, axis=-1, keepdims=True) - so_far + counted
        return ops.logical_and(so_far > 0, left > 0)

    def _found(self, ids: Any) -> Any:
        """Returns ids that are all in the table."""
        return without_padding(ids, NO_ID) if self.pad_id == NO_ID else ids

    def quantized_call(self, inputs: Any) -> Any:
        return super().quantized_call(self._found(inputs))

    def quantize(
        self, mode: str | None = None, type_check: bool = True, **kwargs: Any
    ) -> None:
        # Keras allows no subclass, which might use the table in other ways.
        super().quantize(mode, type_check=False, **kwargs)

    def table(self) -> Any:
        """Returns the table as it is stored, without LoRA's part.

        It holds integers if the layer was quantized.
        """
        (table,) = (w for w in self.weights if w.name == "embeddings")
        return table

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "pad_id": self.pad_id,
            "keep_inner_padding": self.keep_inner_padding,
        }


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="PaddedIds"
)
class PaddedIds(keras.Layer):
    """Gives ids the mask of an id of padding of their own.

    For two inputs that share an `IdEmbedding(pad_id=None)`.

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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pad_id": self.pad_id}


def check_pad_id(name: str, value: Any, vocabulary: int) -> int:
    """Returns an id of padding: of the vocabulary, or -1 for none of it."""
    number = as_integer(value)
    if number is None or not NO_ID <= number < vocabulary:
        raise ValueError(
            f"`{name}` must be an integer in [0, {vocabulary}), or -1 if no "
            f"id is padding. Received: {name}={value!r}"
        )
    return number


def embedded(embedding: IdEmbedding, ids: Any, pad_id: int) -> Any:
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
