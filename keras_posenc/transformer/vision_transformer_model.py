"""From images to contextual embeddings of their patches."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_positive_int,
    check_rate,
)
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._stack_model import StackModel
from keras_posenc.transformer.patch_embedding import PatchEmbedding
from keras_posenc.transformer.transformer_encoder import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
class VisionTransformerModel(StackModel):
    """`PatchEmbedding`, dropout and a `TransformerEncoder`: ViT.

    A Functional model of one input, `images` of shape `(batch, height, width,
    channels)`, float32. The defaults are those of ViT-Base.

    Args:
        image_size: Height and width of the images, or a pair of them.
        patch_size: That of `PatchEmbedding`.
        num_channels: Number of channels of the images.
        num_class_tokens: That of `PatchEmbedding`.
        d_model: Width of the encoder.
        num_layers: Number of blocks.
        num_heads: Number of heads; divides the encoder's width.
        intermediate_dim: Width of the feed-forward parts.
        dropout: Rate of the dropouts, in [0, 1).
        attention_position: That of `TransformerEncoder`.
        activation: Activation of the feed-forward parts.
        normalize_first: Pre-norm (True) or post-norm (False).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the encoder's projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        embeddings_initializer: Initializer of the table of `PatchEmbedding`.
        embeddings_regularizer: Regularizer of that table.
        dtype: Dtype or dtype policy of every layer; Keras's by default.
        name: Name of the model.
        trainable: Whether its weights train.

    Returns:
        The model's output is `(batch, num_class_tokens + patches, d_model)`.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.VisionTransformerModel(
    ...     32, patch_size=8, d_model=64, num_layers=2, num_heads=4
    ... )
    >>> tuple(model(np.ones((1, 32, 32, 3))).shape)
    (1, 17, 64)

    References:
        - [Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929)
    """

    def __init__(
        self,
        image_size: int | Sequence[int],
        *,
        patch_size: int = 16,
        num_channels: int = 3,
        num_class_tokens: int = 1,
        d_model: int = 768,
        num_layers: int = 12,
        num_heads: int = 12,
        intermediate_dim: int = 3072,
        dropout: float = 0.0,
        attention_position: (
            AttentionPosition
            | str
            | Sequence[AttentionPosition | str | None]
            | None
        ) = None,
        activation: Any = "gelu",
        normalize_first: bool = True,
        norm_epsilon: float = 1e-6,
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
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ) -> None:
        sizes = _pair(image_size)
        check_positive_int("num_channels", num_channels)
        dropout = check_rate("dropout", dropout)
        encoder = TransformerEncoder(
            num_layers,
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
            dropout=dropout,
            attention_position=attention_position,
            activation=activation,
            normalize_first=normalize_first,
            norm_epsilon=norm_epsilon,
            norm=norm,
            use_bias=use_bias,
            use_gate=use_gate,
            num_key_value_heads=num_key_value_heads,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            dtype=dtype,
            name="encoder",
        )
        embedding = PatchEmbedding(
            patch_size,
            d_model=d_model,
            num_class_tokens=num_class_tokens,
            kernel_initializer=initializer_of(
                encoder.kernel_initializer, "patches"
            ),
            bias_initializer=initializer_of(
                encoder.bias_initializer, "patches"
            ),
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            dtype=dtype,
            name="embedding",
        )
        images = keras.Input(
            (*sizes, num_channels), dtype="float32", name="images"
        )
        x = embedding(images)
        x = keras.layers.Dropout(dropout, dtype=dtype, name="dropout")(x)
        super().__init__(
            inputs=images, outputs=encoder(x), name=name, trainable=trainable
        )
        self.image_size = sizes
        self.patch_size = patch_size
        self.num_channels = num_channels
        self.num_class_tokens = num_class_tokens
        self.d_model = d_model
        self.encoder = encoder
        self.embedding = embedding
        self.keep_options(encoder)
        self.embeddings_initializer = embedding.embeddings_initializer
        self.embeddings_regularizer = embedding.embeddings_regularizer

    def get_config(self) -> dict[str, Any]:
        return self.config_with(
            self.encoder,
            image_size=list(self.image_size),
            patch_size=self.patch_size,
            num_channels=self.num_channels,
            num_class_tokens=self.num_class_tokens,
        )


def _pair(image_size: Any) -> tuple[int, int]:
    pair = (
        tuple(image_size)
        if isinstance(image_size, list | tuple)
        else (image_size, image_size)
    )
    if len(pair) != 2:
        raise ValueError(
            "`image_size` must be an integer, or a height and a width. "
            f"Received: image_size={image_size!r}"
        )
    height, width = (check_positive_int("image_size", size) for size in pair)
    return height, width
