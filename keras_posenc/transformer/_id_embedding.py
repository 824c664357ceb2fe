"""Embeddings of ids, one of which is padding."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_index


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="IdEmbedding"
)
class IdEmbedding(keras.layers.Embedding):
    """Keras's embedding with `mask_zero=True`, for any id of padding.

    Args:
        input_dim: Number of ids.
        output_dim: Width of the embeddings.
        pad_id: The id of padding, which is masked.
        keep_inner_padding: Whether that id counts as a token between others,
            as in a text that spells the token of padding.
        **kwargs: As for `keras.layers.Embedding`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        pad_id: int = 0,
        keep_inner_padding: bool = False,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("mask_zero", None)
        super().__init__(input_dim, output_dim, mask_zero=True, **kwargs)
        self.pad_id = check_index("pad_id", pad_id, input_dim)
        self.keep_inner_padding = check_bool(
            "keep_inner_padding", keep_inner_padding
        )

    def call(self, inputs: Any) -> Any:
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
        is_token = ops.not_equal(inputs, self.pad_id)
        if not self.keep_inner_padding:
            return is_token
        counted = ops.cast(is_token, "int32")
        so_far = ops.cumsum(counted, axis=-1)
        left = ops.sum(counted, axis=-1, keepdims=True) - so_far + counted
        return ops.logical_and(so_far > 0, left > 0)

    def int8_in_floats(self, inputs: Any, training: Any = None) -> Any:
        """Computes `quantized_call` with integers in float dtypes."""
        ids = ops.cast(inputs, "int32")
        rows = ops.take(self.table(), ids, axis=0)
        scale = ops.take(self.embeddings_scale, ids, axis=0)
        rows = ops.cast(rows, self.compute_dtype) / ops.expand_dims(scale, -1)
        if self.lora_enabled:
            low = ops.take(self.lora_embeddings_a, ids, axis=0)
            low = ops.matmul(low, self.lora_embeddings_b)
            rows += low * (self.lora_alpha / self.lora_rank)
        return rows

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
