"""The decoder-only Transformer, from token ids to logits of the next token."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_posenc.checks import check_bool, check_count, check_positive_int
from keras_posenc.transformer._decoding_model import (
    DecodingModel,
    check_embeddings,
    check_size,
    check_width,
    make_head,
)
from keras_posenc.transformer._id_embedding import check_pad_id
from keras_posenc.transformer._input_position import (
    check_input_position,
    put_in,
)
from keras_posenc.transformer._options import (
    ModelOptions,
    StackOptions,
    select,
    with_options,
)
from keras_posenc.transformer._token_embedding import TokenEmbedding
from keras_posenc.transformer.transformer_decoder import TransformerDecoder


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ModelOptions)
class TransformerDecoderModel(DecodingModel):
    """A decoder-only model: embedding, positions, decoder, logits.

    A Functional model of one input, `ids` of shape `(batch, seq)`, int32. The
    mask of padding, `pad_id`, reaches every layer and the loss. No token
    attends to later ones.

    `build_cache` and `call_with_cache` compute the same logits token by token,
    at the cost of one token each.

    Args:
        vocabulary_size: Number of ids, the padding included.
        input_position: The layer between embedding and dropout that adds
            positions, `"sinusoidal"` for a `PositionalEncoding()`, or None for
            no positions.
        attention_window: As `TransformerDecoder` takes it.
        pad_id: The id of padding; -1 if all ids from 0 on are tokens, and
            shorter texts are padded with -1.
        embeddings: `"tied"`: the logits are products with the embeddings; or
            `"separate"`: with a kernel of its own.
        scale_inputs: Whether the embeddings are multiplied by `sqrt(d_model)`,
            as in the paper.
        skip_padding: As `TransformerEncoder` takes it.
        **options: As for `ModelOptions`.

    Returns:
        The model's output is `(batch, seq, vocabulary_size)`.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.TransformerDecoderModel(
    ...     1000, d_model=64, num_layers=2, num_heads=4, intermediate_dim=128
    ... )
    >>> tuple(model(np.array([[5, 7, 2, 0, 0]])).shape)
    (1, 5, 1000)
    >>> cache = model.build_cache(1, 20)
    >>> logits, cache = model.call_with_cache(np.array([[5, 7, 2]]), cache)
    >>> logits, cache = model.call_with_cache(np.array([[9]]), cache)
    >>> tuple(logits.shape)
    (1, 1, 1000)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Liu et al., 2018](https://arxiv.org/abs/1801.10198) (decoder-only)
        - [Press and Wolf, 2016](https://arxiv.org/abs/1608.05859) (tied)
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        input_position: keras.Layer | str | None = "sinusoidal",
        attention_window: int | Sequence[int | None] | None = None,
        pad_id: int = 0,
        embeddings: str = "tied",
        scale_inputs: bool = True,
        skip_padding: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        check_positive_int("vocabulary_size", vocabulary_size)
        d_model = check_positive_int("d_model", options["d_model"])
        dtype = options["dtype"]
        check_embeddings(embeddings, ("tied", "separate"))
        check_bool("scale_inputs", scale_inputs)
        check_pad_id("pad_id", pad_id, vocabulary_size)
        position = check_input_position(
            input_position, dtype, scaled=scale_inputs
        )
        decoder = TransformerDecoder(
            options["num_layers"],
            use_cross_attention=False,
            attention_window=attention_window,
            skip_padding=skip_padding,
            **select(StackOptions, options),
            dtype=dtype,
            name="decoder",
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        embedding = TokenEmbedding(
            vocabulary_size,
            d_model,
            scale=scale_inputs,
            pad_id=pad_id,
            embeddings_initializer=options["embeddings_initializer"],
            embeddings_regularizer=options["embeddings_regularizer"],
            dtype=dtype,
            name="embedding",
        )
        x = put_in(
            position, embedding(ids), name="input_position", as_cached=True
        )
        dropout_layer = keras.layers.Dropout(
            decoder.dropout, dtype=dtype, name="dropout"
        )
        x = dropout_layer(x)
        x = decoder(x)
        head = None
        if embeddings == "separate":
            head = make_head(decoder, vocabulary_size)
            logits = head(x)
        else:
            check_width(x, d_model, embeddings)
            logits = embedding(x, reverse=True)
        super().__init__(
            inputs=ids,
            outputs=logits,
            name=options["name"],
            trainable=options["trainable"],
        )
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.input_position = self.target_input_position = position
        self.target_embedding_norm = self.logits_bias = None
        self.decoder = decoder
        self.embedding = self.target_embedding = embedding
        self.head = head
        self.vocabulary_size = vocabulary_size
        self.pad_id = self.target_pad_id = pad_id
        self.attention_window = decoder.attention_window
        self.d_model = d_model
        self.embeddings = embeddings
        self.scale_inputs = scale_inputs
        self.skip_padding = decoder.skip_padding
        self.keep_options_of(decoder, embedding)

    def build_cache(
        self, batch_size: Any, max_length: Any, *, max_tokens: Any = None
    ) -> dict[str, Any]:
        """Makes an empty cache, for `call_with_cache`.

        Args:
            batch_size: Number of rows: an integer, or a scalar tensor.
            max_length: Maximum number of tokens of a row, its prompt and
                padding included: an integer, or a scalar tensor.
            max_tokens: Maximum number without padding, which takes no
                positions; by default `max_length`.

        Returns:
            A nested dict of tensors, whose shapes a loop does not change.

        Raises:
            ValueError: A position that needs the whole sequence; a
                `batch_size` below 0 or a `max_length` below 1; more tokens
                than a table has positions.
        """
        return self._empty_cache(
            check_size("batch_size", batch_size, check_count),
            max_length,
            max_tokens,
        )
