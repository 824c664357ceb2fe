"""Images as sequences of vectors, one for each patch."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.initializers import add_weight_of
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.transformer._options import (
    WeightOptions,
    for_keras,
    keep_options,
    with_options,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(WeightOptions)
class PatchEmbedding(ConfiguredLayer, keras.Layer):
    """A vector for each patch of an image, after those of class tokens.

    The image is cut into squares, row by row; each is projected, and a learned
    vector for its position is added. All images have the size that the layer
    is built with.

    A row of the table is the vector of a patch's position or, for a class
    token, the sum of its own vector and that of its position. Without
    positions the table has the class tokens alone, and images any size; what
    exceeds a multiple of `patch_size` on the right and below is left out of
    images of dynamic size.

    Args:
        patch_size: Height and width of a patch; divides those of the images.
        d_model: Width of the vectors.
        num_class_tokens: Number of rows before those of the patches: 1 for
            ViT, 2 for DeiT (one for distillation), 1 and those of registers
            for DINOv3, 0 for none.
        use_positions: Whether patches have learned positions.
        embeddings_initializer: Initializer of the table.
        embeddings_regularizer: Regularizer of the table.
        **options: As for `WeightOptions`.

    Call arguments:
        inputs: Numbers of shape `(batch, height, width, channels)`.

    Returns:
        `(batch, num_class_tokens + patches, d_model)` in the compute dtype.

    Raises:
        ValueError: An invalid argument, or images of another rank, that do
            not divide into patches or, with positions, of unknown size.

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
        use_positions: bool = True,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        **options: Unpack[WeightOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_arguments(self, locals())
        self.projection = keras.layers.Conv2D(
            d_model,
            patch_size,
            strides=patch_size,
            data_format="channels_last",
            **keep_options(self, WeightOptions, options),
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape: Any) -> None:
        _, length, width = self.compute_output_shape(input_shape)
        self.projection.build(tuple(input_shape))
        rows = length if self.use_positions else self.num_class_tokens
        self.embeddings = add_weight_of(self, "embeddings", (rows, width))
        self.built = True

    def call(self, inputs: Any) -> Any:
        self.compute_output_shape(inputs.shape)
        x = self.projection(ops.cast(inputs, self.compute_dtype))
        table = ops.cast(self.embeddings, self.compute_dtype)
        if self.use_positions:
            # (batch, rows, columns, dim) -> (batch, patches, dim)
            count = table.shape[0] - self.num_class_tokens
            x = ops.reshape(x, (-1, count, self.d_model))
            x = ops.pad(x, ((0, 0), (self.num_class_tokens, 0), (0, 0)))
            return x + table
        batch, rows, columns, _ = ops.shape(x)
        x = ops.reshape(x, (batch, rows * columns, self.d_model))
        if not self.num_class_tokens:
            return x
        tokens = spread(ops.expand_dims(table, 0), (batch, 1))
        return ops.concatenate([tokens, x], axis=1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, *size = input_shape
        known = size if self.use_positions else size[2:]
        if len(size) != 3 or None in known or 0 in size:
            free = "batch alone" if self.use_positions else "sizes alone"
            raise ValueError(
                f"{type(self).__name__} '{self.name}' takes images of shape "
                f"(batch, height, width, channels), of which the {free} "
                f"may be unknown. Received: {tuple(input_shape)}"
            )
        height, width, _ = size
        if (height or 0) % self.patch_size or (width or 0) % self.patch_size:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `patch_size` must "
                "divide the height and the width of the images. Received: "
                f"patch_size={self.patch_size}, images of {height} x {width}"
            )
        if height is None or width is None:
            return (batch, None, self.d_model)
        patches = (height // self.patch_size) * (width // self.patch_size)
        return (batch, self.num_class_tokens + patches, self.d_model)
