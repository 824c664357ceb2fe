"""The Transformer encoder, from token ids to contextual embeddings."""

from typing import Any, Unpack

import keras

from keras_posenc.checks import check_index
from keras_posenc.ops.named import checked_arguments
from keras_posenc.positional.position_embedding import (
    CountedPositionEmbedding,
)
from keras_posenc.transformer._embeddings import (
    SecondTextEmbedding,
    check_pad_id,
)
from keras_posenc.transformer._input_position import (
    check_input_position,
    put_in,
)
from keras_posenc.transformer._models import (
    StackModel,
    dropped,
    make_table,
    norm_of,
)
from keras_posenc.transformer._options import (
    ModelOptions,
    StackOptions,
    select,
    with_options,
)
from keras_posenc.transformer._sublayers import make_dense
from keras_posenc.transformer.blocks import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ModelOptions)
class TransformerEncoderModel(StackModel):
    """Embedding, positions, dropout and a `TransformerEncoder`.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.TransformerEncoderModel(
    ...     1000, d_model=64, num_layers=2, num_heads=4, intermediate_dim=128
    ... )
    >>> tuple(model(np.array([[5, 7, 2, 0, 0]])).shape)
    (1, 5, 64)

    A Functional model of one input, `ids` of shape `(batch, seq)`, int32. The
    mask of padding, `pad_id`, reaches every layer. The model takes only ids:
    to give `positions` or `segment_ids`, combine the layers yourself.

    Args:
        vocabulary_size: Number of ids, the padding included.
        input_position: The layer between embedding and dropout that adds
            positions, `"sinusoidal"` for a `PositionalEncoding()`, or None for
            no positions. `PositionalEncoding(scale_inputs=True)` scales the
            embeddings as the paper does.
        use_causal_mask: Whether no token attends to later ones, as in a
            decoder whose vectors are compared.
        share_blocks: As `TransformerEncoder` takes it.
        embedding_dim: Width of the embeddings, if they are projected to
            `d_model` after their dropout; None for `d_model` itself.
        embedding_norm: Whether the embeddings, with their positions, are
            normalized, as BERT's are.
        pad_id: The id of padding; -1 if all ids from 0 on are tokens, and
            shorter texts are padded with -1.
        keep_inner_padding: Whether that id counts as a token between others,
            as where a text spells the token of padding. At both ends of a
            sequence it is padding.
        separator_id: For pairs of texts, the id that ends the first text: one
            learned vector is added to all tokens after it, as BERT does for
            tokens of type 1. None for single texts.
        skip_padding: As `TransformerEncoder` takes it.
        **options: As for `ModelOptions`.

    Returns:
        The model's output is `(batch, seq, d_model)`, wider if
        `input_position` concatenates.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805) (a norm of
          embeddings)
        - [Clark et al., 2020](https://arxiv.org/abs/2003.10555) (narrow
          embeddings)
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        input_position: keras.Layer | str | None = "sinusoidal",
        use_causal_mask: bool = False,
        share_blocks: bool = False,
        embedding_dim: int | None = None,
        embedding_norm: bool = False,
        pad_id: int = 0,
        keep_inner_padding: bool = False,
        separator_id: int | None = None,
        skip_padding: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = checked_arguments({**locals(), "d_model": options["d_model"]})
        check_pad_id("pad_id", pad_id, vocabulary_size)
        if separator_id is not None:
            check_index("separator_id", separator_id, vocabulary_size)
        dtype = options["dtype"]
        position = check_input_position(input_position, dtype)
        encoder = TransformerEncoder(
            options["num_layers"],
            share_blocks=share_blocks,
            skip_padding=skip_padding,
            **select(StackOptions, options),
            dtype=dtype,
            name="encoder",
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        embedding = make_table(
            vocabulary_size,
            embedding_dim or own["d_model"],
            options,
            pad_id=pad_id,
            keep_inner_padding=keep_inner_padding,
        )
        counted = None
        if isinstance(position, CountedPositionEmbedding):
            counted = keras.ops.not_equal(ids, pad_id)
        x = put_in(
            position, embedding(ids), name="input_position", mask=counted
        )
        second_text = None
        if separator_id is not None:
            second_text = SecondTextEmbedding(
                separator_id, dtype=dtype, name="second_text_embedding"
            )
            x = second_text(x, ids)
        if embedding_norm:
            x = norm_of(encoder, "embedding_norm")(x)
        x = dropped(encoder, x, "dropout")
        if embedding_dim is not None:
            projection = "embedding_projection"
            x = make_dense(encoder, own["d_model"], projection)(x)
        causal = {"use_causal_mask": True} if use_causal_mask else {}
        self.connect(
            ids,
            encoder(x, **causal),
            encoder,
            options,
            **own,
            input_position=position,
            encoder=encoder,
            embedding=embedding,
            second_text_embedding=second_text,
            pad_id=pad_id,
            keep_inner_padding=keep_inner_padding,
            separator_id=separator_id,
            share_blocks=share_blocks,
        )

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        # For symbolic inputs; other outputs carry a mask from the blocks. That
        # of a tokenizer is by its id of padding, wherever it is.
        if self.keep_inner_padding:
            return self.embedding.compute_mask(inputs)
        return previous_mask
