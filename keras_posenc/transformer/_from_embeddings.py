"""An encoder that begins after its table of tokens."""

from typing import Any

import keras
from keras import ops

from keras_posenc.positional.position_embedding import (
    CountedPositionEmbedding,
)
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)


class TokensAlone(keras.Layer):
    """Gives embeddings a mask that is a tensor, and zeros where it is 0.

    Whatever a caller has in padded positions, NaN included, is dropped.

    Call arguments:
        inputs: Embeddings, `(batch, seq, dim)`, and bool `(batch, seq)`, True
            for a token.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        embeddings, mask = inputs
        is_token = ops.expand_dims(mask, -1)
        return ops.where(is_token, embeddings, ops.zeros_like(embeddings))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return inputs[1]

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape[0])


def looked_up(model: TransformerEncoderModel, ids: Any) -> Any:
    """Returns what `encoded_from_embeddings` takes of ids, `(batch, seq)`.

    The rows of the encoder's table of tokens. Where it matters that a text
    spells the token of padding, one more column is 1 for all other ids.
    """
    rows = model.embedding(ids)
    if not _tells_padding(model):
        return rows
    others = ops.cast(ops.not_equal(ids, model.pad_id), rows.dtype)
    return ops.concatenate([rows, ops.expand_dims(others, -1)], axis=-1)


def _tells_padding(model: TransformerEncoderModel) -> bool:
    """Returns whether an encoder reads spelled padding as no token."""
    return model.pad_id >= 0 and (
        isinstance(model.input_position, CountedPositionEmbedding)
        or not model.keep_inner_padding
    )


def encoded_from_embeddings(
    model: TransformerEncoderModel, embeddings: Any, mask: Any
) -> Any:
    """Returns what an encoder makes of the embeddings of tokens.

    The layers, and so the weights, are the encoder's own, which is one of
    single texts. Embeddings are symbolic, `(batch, seq, any)`, as `looked_up`
    makes them; the mask, `(batch, seq)`, is 0 for padding, at the end.
    """
    width = model.embedding.output_dim
    counted = mask > 0.5
    if _tells_padding(model):
        counted = ops.logical_and(counted, embeddings[..., width] > 0.5)
    seen = mask > 0.5 if model.keep_inner_padding else counted
    x = TokensAlone(name="tokens")([embeddings[..., :width], seen])
    position = model.input_position
    if isinstance(position, CountedPositionEmbedding):
        x = position(x, mask=counted)
    elif position is not None:
        x = position(x)
    if model.embedding_norm:
        x = model.get_layer("embedding_norm")(x)
    if model.embedding_dim is not None:
        x = model.get_layer("embedding_projection")(x)
    causal = {"use_causal_mask": True} if model.use_causal_mask else {}
    return model.encoder(x, **causal)
