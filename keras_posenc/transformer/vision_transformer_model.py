"""The vision Transformer, from images to embeddings of their patches."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.transformer._options import (
    ModelOptions,
    StackOptions,
    select,
    with_options,
)
from keras_posenc.transformer._stack_model import StackModel
from keras_posenc.transformer.patch_embedding import PatchEmbedding
from keras_posenc.transformer.transformer_encoder import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(
    ModelOptions,
    d_model=768,
    num_layers=12,
    num_heads=12,
    intermediate_dim=3072,
    dropout=0.0,
    activation="gelu",
    normalize_first=True,
    norm_epsilon=1e-6,
)
class VisionTransformerModel(StackModel):
    """`PatchEmbedding`, dropout and a `TransformerEncoder`: ViT.

    A Functional model of one input, `images` of shape `(batch, height, width,
    channels)`, float32. The defaults are those of ViT-Base.

    Args:
        image_size: Height and width of the images, or a pair of them.
        patch_size: That of `PatchEmbedding`.
        num_channels: Number of channels of the images.
        num_class_tokens: That of `PatchEmbedding`.
        **options: As for `ModelOptions`.

    Returns:
        The model's output is `(batch, num_class_tokens + patches, d_model)`.

    Raises:
        ValueError: An invalid argument.

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
        **options: Unpack[ModelOptions],
    ) -> None:
        sizes = _pair(image_size)
        check_positive_int("num_channels", num_channels)
        d_model = check_positive_int("d_model", options["d_model"])
        dtype = options["dtype"]
        encoder = TransformerEncoder(
            options["num_layers"],
            **select(StackOptions, options),
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
            kernel_regularizer=encoder.kernel_regularizer,
            bias_regularizer=encoder.bias_regularizer,
            embeddings_initializer=options["embeddings_initializer"],
            embeddings_regularizer=options["embeddings_regularizer"],
            dtype=dtype,
            name="embedding",
        )
        images = keras.Input(
            (*sizes, num_channels), dtype="float32", name="images"
        )
        x = embedding(images)
        dropout_layer = keras.layers.Dropout(
            encoder.dropout, dtype=dtype, name="dropout"
        )
        x = dropout_layer(x)
        super().__init__(
            inputs=images,
            outputs=encoder(x),
            name=options["name"],
            trainable=options["trainable"],
        )
        self.image_size = sizes
        self.patch_size = patch_size
        self.num_channels = num_channels
        self.num_class_tokens = num_class_tokens
        self.d_model = d_model
        self.encoder = encoder
        self.embedding = embedding
        self.keep_options_of(encoder, embedding)


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
