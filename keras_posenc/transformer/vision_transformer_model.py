"""The vision Transformer, from images to embeddings of their patches."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.checks import check_choice, check_positive_int
from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.initializers import add_weight_of
from keras_posenc.ops.named import (
    ConfiguredLayer,
    checked_arguments,
    keep_arguments,
)
from keras_posenc.positional.grids import GridPositions
from keras_posenc.transformer._models import StackModel, dropped
from keras_posenc.transformer._options import (
    ModelOptions,
    StackOptions,
    WeightOptions,
    check_options,
    for_keras,
    for_sublayer,
    keep_options,
    select,
    with_options,
)
from keras_posenc.transformer.blocks import TransformerEncoder
from keras_posenc.transformer.specs import Norm


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(WeightOptions)
class PatchEmbedding(ConfiguredLayer, keras.Layer):
    """A vector for each patch of an image, after those of class tokens.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> layer = kp.PatchEmbedding(4, d_model=16)
    >>> tuple(layer(np.ones((2, 8, 12, 3), "float32")).shape)
    (2, 7, 16)

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

    def call(self, inputs: Any) -> Any:
        if not self.use_positions:
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


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(
    ModelOptions,
    d_model=768,
    num_layers=12,
    num_heads=12,
    intermediate_dim=3072,
    dropout=0.0,
    activation="gelu",
    norm=Norm(at="before", epsilon=1e-6),
)
class VisionTransformerModel(StackModel):
    """`PatchEmbedding`, dropout and a `TransformerEncoder`: ViT.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> model = kp.VisionTransformerModel(
    ...     32, patch_size=8, d_model=64, num_layers=2, num_heads=4
    ... )
    >>> tuple(model(np.ones((1, 32, 32, 3))).shape)
    (1, 17, 64)
    >>> model = kp.VisionTransformerModel(
    ...     None, input_position=None,
    ...     attention=kp.RotaryEmbedding(axes=2, max_wavelength=100),
    ...     patch_size=8, d_model=64, num_layers=2, num_heads=4
    ... )
    >>> tuple(model(np.ones((1, 32, 48, 3))).shape)
    (1, 25, 64)

    A Functional model of one input, `images` of shape `(batch, height, width,
    channels)`, float32. The defaults are those of ViT-Base.

    With a position in `attention` that takes rows and columns, such as
    `RotaryEmbedding(axes=2)`, patches need no learned positions, and images
    may have any size. The name `"rotary"` is `RotaryEmbedding()`, whose one
    axis is the order of the patches, row by row: for rows and columns give
    `RotaryEmbedding(axes=2)`.

    Args:
        image_size: Height and width of the images, or a pair of them; None for
            images of any size, without learned positions.
        patch_size: That of `PatchEmbedding`.
        num_channels: Number of channels of the images.
        num_class_tokens: That of `PatchEmbedding`.
        input_position: `"learned"` for a table of positions, which is added to
            the patches, or None.
        grid_positions: The `GridPositions` layer, for a position in
            `attention` that takes rows and columns; by default one of whole
            numbers, with `patch_size` and `num_class_tokens` as here. Else
            None.
        **options: As for `ModelOptions`.

    Returns:
        The model's output is `(batch, num_class_tokens + patches, d_model)`.

    References:
        - [Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929)
        - [Heo et al., 2024](https://arxiv.org/abs/2403.13298) (rotary)
    """

    def __init__(
        self,
        image_size: int | Sequence[int] | None,
        *,
        patch_size: int = 16,
        num_channels: int = 3,
        num_class_tokens: int = 1,
        input_position: str | None = "learned",
        grid_positions: GridPositions | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = checked_arguments({**locals(), "d_model": options["d_model"]})
        sizes = _pair(image_size)
        check_choice("input_position", input_position, ("learned", None))
        if image_size is None and input_position is not None:
            raise ValueError(
                "`image_size` must be given with input_position='learned', "
                "whose table has a row for each patch. Received: "
                "image_size=None. Give a size, or input_position=None"
            )
        encoder = TransformerEncoder(
            options["num_layers"],
            **select(StackOptions, options),
            dtype=options["dtype"],
            name="encoder",
        )
        embedding = PatchEmbedding(
            patch_size,
            d_model=own["d_model"],
            num_class_tokens=num_class_tokens,
            use_positions=input_position is not None,
            **for_sublayer(check_options(WeightOptions, options), "patches"),
            embeddings_initializer=options["embeddings_initializer"],
            embeddings_regularizer=options["embeddings_regularizer"],
            dtype=options["dtype"],
            name="embedding",
        )
        images = keras.Input(
            (*sizes, num_channels), dtype="float32", name="images"
        )
        x = dropped(encoder, embedding(images), "dropout")
        grid = _grid_positions(
            grid_positions,
            encoder,
            patch_size=patch_size,
            num_class_tokens=num_class_tokens,
        )
        at = {} if grid is None else {"positions": grid(images)}
        self.connect(
            images,
            encoder(x, **at),
            encoder,
            options,
            **own,
            image_size=None if image_size is None else sizes,
            input_position=input_position,
            grid_positions=grid,
            encoder=encoder,
            embedding=embedding,
        )


def _grid_positions(
    value: Any, encoder: TransformerEncoder, **wanted: int
) -> GridPositions | None:
    axes = {each.num_axes for each in encoder.positions_within()}
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if axes != {2}:
        if value is not None:
            raise ValueError(
                "`grid_positions` is for positions in attention that take rows "
                "and columns, such as RotaryEmbedding(axes=2), in each block "
                f"that has one. Received: attention={encoder.attention!r}"
            )
        return None
    if value is None:
        return GridPositions(**wanted, name="grid_positions")
    if not isinstance(value, GridPositions):
        raise ValueError(
            "`grid_positions` must be a GridPositions layer or None. "
            f"Received: grid_positions={value!r}"
        )
    found = {name: getattr(value, name) for name in wanted}
    if found != wanted:
        raise ValueError(
            f"`grid_positions` must have the patches of the model, {wanted}. "
            f"Received: GridPositions with {found}"
        )
    return value


def _pair(image_size: Any) -> tuple[int | None, int | None]:
    if image_size is None:
        return None, None
    pair = (
        tuple(image_size)
        if isinstance(image_size, list | tuple)
        else (image_size, image_size)
    )
    if len(pair) != 2:
        raise ValueError(
            "`image_size` must be an integer, a height and a width, or None. "
            f"Received: image_size={image_size!r}"
        )
    height, width = (check_positive_int("image_size", size) for size in pair)
    return height, width
