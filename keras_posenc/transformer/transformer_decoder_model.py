"""From token ids to the logits of what follows each."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_bool,
    check_count,
    check_positive_int,
    check_rate,
)
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._decoding_model import (
    DecodingModel,
    check_embeddings,
    check_size,
    check_width,
    make_head,
)
from keras_posenc.transformer._input_position import (
    check_input_position,
    put_in,
)
from keras_posenc.transformer._token_embedding import TokenEmbedding
from keras_posenc.transformer.transformer_decoder import TransformerDecoder


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerDecoderModel(DecodingModel):
    """A decoder-only model: embedding, positions, decoder, logits.

    A Functional model of one input, `ids` of shape `(batch, seq)`, int32. Id 0
    is padding, and its mask reaches every layer and the loss. No token sees
    what is behind it.

    Token by token, `build_cache` and `call_with_cache` give the same logits,
    at the cost of one token each.

    Args:
        vocabulary_size: Number of ids, the padding included.
        d_model: Width of the embeddings.
        num_layers: Number of blocks.
        num_heads: Number of heads; divides the decoder's width.
        intermediate_dim: Width of the feed-forward parts.
        dropout: Rate of the dropouts, in [0, 1).
        input_position: The layer between embedding and dropout that puts
            positions in, `"sinusoidal"` for a `PositionalEncoding()`, or None
            for no positions.
        attention_position: That of `TransformerDecoder`.
        activation: Activation of the feed-forward parts.
        normalize_first: Pre-norm (True) or post-norm (False, the paper).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        embeddings: `"tied"`: the logits are products with the embeddings; or
            `"separate"`: with a kernel of their own.
        scale_inputs: Whether the embeddings are multiplied by `sqrt(d_model)`,
            as in the paper.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        embeddings_initializer: Initializer of the embeddings of the ids.
        embeddings_regularizer: Regularizer of the embeddings of the ids.
        skip_padding: That of `TransformerEncoder`.
        dtype: Dtype or dtype policy of every layer; Keras's by default.
        name: Name of the model.
        trainable: Whether its weights train.

    Returns:
        The model's output is `(batch, seq, vocabulary_size)`.

    Raises:
        ValueError: An argument that is none of the above.

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
        d_model: int = 512,
        num_layers: int = 6,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        input_position: keras.Layer | str | None = "sinusoidal",
        attention_position: (
            AttentionPosition
            | str
            | Sequence[AttentionPosition | str | None]
            | None
        ) = None,
        activation: Any = "relu",
        normalize_first: bool = False,
        norm_epsilon: float = 1e-5,
        norm: str = "layer",
        use_bias: bool = True,
        use_gate: bool = False,
        num_key_value_heads: int | None = None,
        embeddings: str = "tied",
        scale_inputs: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        skip_padding: bool = True,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ) -> None:
        check_positive_int("vocabulary_size", vocabulary_size)
        check_positive_int("d_model", d_model)
        dropout = check_rate("dropout", dropout)
        check_embeddings(embeddings, ("tied", "separate"))
        check_bool("scale_inputs", scale_inputs)
        position = check_input_position(
            input_position, dtype, scaled=scale_inputs
        )
        decoder = TransformerDecoder(
            num_layers,
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
            use_cross_attention=False,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            norm_epsilon=norm_epsilon,
            norm=norm,
            use_bias=use_bias,
            use_gate=use_gate,
            num_key_value_heads=num_key_value_heads,
            attention_position=attention_position,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            skip_padding=skip_padding,
            dtype=dtype,
            name="decoder",
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        embedding = TokenEmbedding(
            vocabulary_size,
            d_model,
            scale=scale_inputs,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            dtype=dtype,
            name="embedding",
        )
        x = put_in(position, embedding(ids), name="input_position")
        x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
        x = decoder(x)
        head = None
        if embeddings == "separate":
            head = make_head(decoder, vocabulary_size)
            logits = head(x)
        else:
            check_width(x, d_model, embeddings)
            logits = embedding(x, reverse=True)
        super().__init__(
            inputs=ids, outputs=logits, name=name, trainable=trainable
        )
        # Else Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.input_position = self.target_input_position = position
        self.decoder = decoder
        self.embedding = self.target_embedding = embedding
        self.head = head
        self.vocabulary_size = vocabulary_size
        self.d_model = d_model
        self.embeddings = embeddings
        self.scale_inputs = scale_inputs
        self.keep_options(decoder)
        self.embeddings_initializer = embedding.embeddings_initializer
        self.embeddings_regularizer = embedding.embeddings_regularizer
        self.skip_padding = decoder.skip_padding

    def build_cache(
        self, batch_size: Any, max_length: Any, *, max_tokens: Any = None
    ) -> dict[str, Any]:
        """An empty cache, for `call_with_cache`.

        Args:
            batch_size: Number of rows: an integer, or a scalar tensor.
            max_length: Number of tokens that each row may get to, those of its
                prompt and its padding included: an integer, or a scalar
                tensor.
            max_tokens: The same without padding, which takes no positions; by
                default as many.

        Returns:
            A dict of tensors, nested. Its shapes never change, so that a loop
            can carry it.

        Raises:
            ValueError: A position that tokens cannot be given one after
                another, by its name; a `batch_size` below 0 or a `max_length`
                below 1; more tokens than a table has positions.
        """
        return self._empty_cache(
            check_size("batch_size", batch_size, check_count),
            max_length,
            max_tokens,
        )

    def get_config(self) -> dict[str, Any]:
        return self.config_with(
            self.decoder,
            embeddings=self.embeddings,
            scale_inputs=self.scale_inputs,
            skip_padding=self.skip_padding,
        )
