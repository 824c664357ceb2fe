"""From images to vectors of their patches."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_positive_int,
)
from keras_posenc.ops.named import NamedArguments
from keras_posenc.transformer._sublayers import PROJECTION_OPTIONS


@keras.saving.register_keras_serializable(package="keras_posenc")
class PatchEmbedding(NamedArguments, keras.Layer):
    """A vector for each patch of an image, behind those of class tokens.

    The image is cut into squares, row by row, each of which is projected, and
    a learned vector for its place is added. Images have one size: that which
    the layer is built with.

    The vector of a class token and that of its place only ever stand together,
    and are one row of the table.

    Args:
        patch_size: Height and width of a patch; divides those of the images.
        d_model: Width of the vectors.
        num_class_tokens: How many rows stand before those of the patches: 1
            for ViT, 2 for DeiT, which has one to distil by, 0 for none.
        kernel_initializer: Initializer of the projection's kernel.
        bias_initializer: Initializer of its bias.
        kernel_regularizer: Regularizer of its kernel.
        bias_regularizer: Regularizer of its bias.
        embeddings_initializer: Initializer of the table.
        embeddings_regularizer: Regularizer of the table.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Numbers of shape `(batch, height, width, channels)`.

    Returns:
        `(batch, num_class_tokens + patches, d_model)` in the compute dtype.

    Raises:
        ValueError: An argument that is none of the above, or images of another
            rank, of unknown size, or that do not divide into patches.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> layer = kp.PatchEmbedding(4, d_model=16)
    >>> tuple(layer(np.ones((2, 8, 12, 3), "float32")).shape)
    (2, 7, 16)

    References:
        - [Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929)
        - [Touvron et al., 2020](https://arxiv.org/abs/2012.12877) (two tokens)
    """

    def __init__(
        self,
        patch_size: int = 16,
        *,
        d_model: int = 768,
        num_class_tokens: int = 1,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = check_positive_int("patch_size", patch_size)
        self.d_model = check_positive_int("d_model", d_model)
        if num_class_tokens != 0:
            check_positive_int("num_class_tokens", num_class_tokens)
        self.num_class_tokens = num_class_tokens
        self.projection = keras.layers.Conv2D(
            d_model,
            patch_size,
            strides=patch_size,
            data_format="channels_last",
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            dtype=self.dtype_policy,
            name="projection",
        )
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )

    def build(self, input_shape: Any) -> None:
        _, length, width = self.compute_output_shape(input_shape)
        self.projection.build(tuple(input_shape))
        self.embeddings = self.add_weight(
            shape=(length, width),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            name="embeddings",
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        count = self.embeddings.shape[0] - self.num_class_tokens
        x = self.projection(ops.cast(inputs, self.compute_dtype))
        # (batch, rows, columns, dim) -> (batch, patches, dim)
        x = ops.reshape(x, (-1, count, self.d_model))
        x = ops.pad(x, ((0, 0), (self.num_class_tokens, 0), (0, 0)))
        return x + ops.cast(self.embeddings, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, *size = input_shape
        if len(size) != 3 or None in size or 0 in size:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' takes images of shape "
                "(batch, height, width, channels), of which the batch alone "
                f"may be unknown. Received: {tuple(input_shape)}"
            )
        height, width, _ = size
        if height % self.patch_size or width % self.patch_size:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `patch_size` must "
                "divide the height and the width of the images. Received: "
                f"patch_size={self.patch_size}, images of {height} x {width}"
            )
        patches = (height // self.patch_size) * (width // self.patch_size)
        return (batch, self.num_class_tokens + patches, self.d_model)

    def get_config(self) -> dict[str, Any]:
        of_projection = self.projection.get_config()
        return {
            **super().get_config(),
            "patch_size": self.patch_size,
            "d_model": self.d_model,
            "num_class_tokens": self.num_class_tokens,
            **{name: of_projection[name] for name in PROJECTION_OPTIONS},
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
            "embeddings_regularizer": keras.regularizers.serialize(
                self.embeddings_regularizer
            ),
        }
