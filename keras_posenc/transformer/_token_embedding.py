"""Embeddings of tokens, and logits of ids from vectors."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool
from keras_posenc.transformer._id_embedding import IdEmbedding


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="TokenEmbedding"
)
class TokenEmbedding(IdEmbedding):
    """An `IdEmbedding` that computes logits with `reverse=True`.

    Args:
        input_dim: Number of ids.
        output_dim: Width of the embeddings.
        scale: Whether embeddings, but not logits, are multiplied by
            `sqrt(output_dim)`, as in section 3.4 of the paper.
        **kwargs: As for `IdEmbedding`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        scale: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_dim, output_dim, **kwargs)
        self.scale = check_bool("scale", scale)

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return self._logits(inputs)
        return self._scaled(super().call(inputs))

    def quantized_call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return self._logits(inputs)
        return self._scaled(super().quantized_call(inputs))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        # For vectors, the mask that they carry.
        if keras.backend.is_float_dtype(
            keras.backend.standardize_dtype(inputs.dtype)
        ):
            return mask
        return super().compute_mask(inputs, mask)

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

    def quantize(
        self, mode: str | None = None, type_check: bool = True, **kwargs: Any
    ) -> None:
        if mode != "int8":
            raise NotImplementedError(
                f"{type(self).__name__} quantizes to int8. "
                f"Received: mode={mode!r}"
            )
        super().quantize(mode, type_check, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale}

    def _scaled(self, x: Any) -> Any:
        return x * self.output_dim**0.5 if self.scale else x

    def _logits(self, inputs: Any) -> Any:
        """Computes `(batch, seq, input_dim)` from `(batch, seq, dim)`."""
        x = ops.cast(inputs, self.compute_dtype)
        outer = ops.shape(x)[:-1]
        is_step = x.shape[-2] == 1
        x = ops.reshape(x, (-1, self.output_dim))
        if self.quantization_mode == "int8":
            logits = self._int8_logits(x)
        else:
            table = ops.cast(self.embeddings, self.compute_dtype)
            if x.shape[0] == 1:
                logits = ops.matmul(x, ops.transpose(table))
            else:
                # For 2 to 100 rows, the usual number of a step, TensorFlow's
                # product with a transposed table takes up to ten times as
                # long; for one row, the other order a third longer.
                logits = (
                    ops.einsum("vd,nd->nv", table, x)
                    if is_step
                    else ops.einsum("nd,vd->nv", x, table)
                )
        return ops.reshape(logits, (*outer, self.input_dim))

    def _int8_logits(self, x: Any) -> Any:
        # As Keras's Dense: products of integers, with rows rounded too.
        table = ops.convert_to_tensor(self.table())
        rows, row_scale = keras.quantizers.AbsMaxQuantizer(axis=-1)(x)
        logits = ops.cast(
            ops.matmul(rows, ops.transpose(table)), self.compute_dtype
        )
        scale = ops.expand_dims(self.embeddings_scale, 0)
        logits = logits / ops.cast(row_scale * scale, logits.dtype)
        if self.lora_enabled:
            low = ops.einsum("nd,rd->nr", x, self.lora_embeddings_b)
            low = ops.einsum("nr,vr->nv", low, self.lora_embeddings_a)
            logits += ops.cast(
                low * (self.lora_alpha / self.lora_rank), logits.dtype
            )
        return logits
