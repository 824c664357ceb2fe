"""From token ids to contextual embeddings."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_bool,
    check_index,
    check_positive_int,
    check_rate,
)
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._id_embedding import IdEmbedding
from keras_posenc.transformer._id_model import IdModel
from keras_posenc.transformer._input_position import (
    check_input_position,
    put_in,
)
from keras_posenc.transformer._second_text_embedding import (
    SecondTextEmbedding,
)
from keras_posenc.transformer._sublayers import make_dense, make_norm
from keras_posenc.transformer.transformer_encoder import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerEncoderModel(IdModel):
    """Embedding, positions, dropout and a `TransformerEncoder`.

    A Functional model of one input, `ids` of shape `(batch, seq)`, int32. The
    mask of padding, `pad_id`, reaches every layer. It takes ids alone: for
    `positions` or `segment_ids` of your own, put the layers together yourself.

    Args:
        vocabulary_size: Number of ids, the padding included.
        d_model: Width of the encoder.
        num_layers: Number of blocks.
        num_heads: Number of heads; divides the encoder's width.
        intermediate_dim: Width of the feed-forward parts.
        dropout: Rate of the dropouts, in [0, 1).
        input_position: The layer between embedding and dropout that puts
            positions in, `"sinusoidal"` for a `PositionalEncoding()`, or None
            for no positions. `PositionalEncoding(scale_inputs=True)` scales
            the embeddings as the paper does.
        attention_position: That of `TransformerEncoder`.
        attention_window: That of `TransformerEncoder`.
        use_first_norm: That of `TransformerEncoder`.
        share_blocks: That of `TransformerEncoder`.
        embedding_dim: Width of the embeddings, which are projected to
            `d_model` behind their dropout; None for `d_model` itself.
        embedding_norm: Whether the embeddings, with their positions, are
            normalised, as BERT's are.
        pad_id: The id of padding.
        separator_id: Where rows are pairs of texts, the id that ends the first
            one: a vector is learned that all tokens behind it have in common,
            as BERT's of type 1 have. None for single texts.
        activation: Activation of the feed-forward parts.
        normalize_first: Pre-norm (True) or post-norm (False, the paper).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
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
        The model's output is `(batch, seq, d_model)`, wider if
        `input_position` concatenates.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.TransformerEncoderModel(
    ...     1000, d_model=64, num_layers=2, num_heads=4, intermediate_dim=128
    ... )
    >>> tuple(model(np.array([[5, 7, 2, 0, 0]])).shape)
    (1, 5, 64)

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
        attention_window: int | Sequence[int | None] | None = None,
        use_first_norm: bool = True,
        share_blocks: bool = False,
        embedding_dim: int | None = None,
        embedding_norm: bool = False,
        pad_id: int = 0,
        separator_id: int | None = None,
        activation: Any = "relu",
        normalize_first: bool = False,
        norm_epsilon: float = 1e-5,
        norm: str = "layer",
        use_bias: bool = True,
        use_gate: bool = False,
        num_key_value_heads: int | None = None,
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
        if embedding_dim is not None:
            check_positive_int("embedding_dim", embedding_dim)
        check_bool("embedding_norm", embedding_norm)
        check_index("pad_id", pad_id, vocabulary_size)
        if separator_id is not None:
            check_index("separator_id", separator_id, vocabulary_size)
        dropout = check_rate("dropout", dropout)
        position = check_input_position(input_position, dtype)
        encoder = TransformerEncoder(
            num_layers,
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            norm_epsilon=norm_epsilon,
            norm=norm,
            use_bias=use_bias,
            use_gate=use_gate,
            num_key_value_heads=num_key_value_heads,
            attention_position=attention_position,
            attention_window=attention_window,
            use_first_norm=use_first_norm,
            share_blocks=share_blocks,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            skip_padding=skip_padding,
            dtype=dtype,
            name="encoder",
        )
        ids = keras.Input((None,), dtype="int32", name="ids")
        embedding = IdEmbedding(
            vocabulary_size,
            embedding_dim or d_model,
            pad_id=pad_id,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            dtype=dtype,
            name="embedding",
        )
        x = put_in(position, embedding(ids), name="input_position")
        second_text = None
        if separator_id is not None:
            second_text = SecondTextEmbedding(
                separator_id, dtype=dtype, name="second_text_embedding"
            )
            x = second_text(x, ids)
        if embedding_norm:
            norm_layer = make_norm(
                norm, norm_epsilon, encoder.dtype_policy, "embedding_norm"
            )
            x = norm_layer(x)
        x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
        if embedding_dim is not None:
            x = make_dense(encoder, d_model, "embedding_projection")(x)
        super().__init__(
            inputs=ids, outputs=encoder(x), name=name, trainable=trainable
        )
        # Else Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.input_position = position
        self.encoder = encoder
        self.embedding = embedding
        self.second_text_embedding = second_text
        self.vocabulary_size = vocabulary_size
        self.d_model = d_model
        self.embedding_dim = embedding_dim
        self.embedding_norm = embedding_norm
        self.pad_id = pad_id
        self.separator_id = separator_id
        self.keep_options(encoder)
        self.attention_window = encoder.attention_window
        self.use_first_norm = encoder.use_first_norm
        self.share_blocks = encoder.share_blocks
        self.embeddings_initializer = embedding.embeddings_initializer
        self.embeddings_regularizer = embedding.embeddings_regularizer
        self.skip_padding = encoder.skip_padding

    def get_config(self) -> dict[str, Any]:
        return self.config_with(
            self.encoder,
            attention_window=self.attention_window,
            use_first_norm=self.use_first_norm,
            share_blocks=self.share_blocks,
            embedding_dim=self.embedding_dim,
            embedding_norm=self.embedding_norm,
            pad_id=self.pad_id,
            separator_id=self.separator_id,
            skip_padding=self.skip_padding,
        )
