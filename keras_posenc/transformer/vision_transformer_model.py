"""The vision Transformer, from images to embeddings of their patches."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_posenc.checks import check_choice, check_positive_int
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.named import checked_arguments
from keras_posenc.positional.grid_positions import GridPositions
from keras_posenc.transformer._attention_layer import listed
from keras_posenc.transformer._options import (
    ModelOptions,
    StackOptions,
    select,
    with_options,
)
from keras_posenc.transformer._stack_model import StackModel, dropped
from keras_posenc.transformer.patch_embedding import PatchEmbedding
from keras_posenc.transformer.stacks import TransformerEncoder


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(
    ModelOptions,
    d_model=768,
    num_layers=12,
    num_heads=12,
    intermediate_dim=3072,
    dropout=0.0,
    activation="gelu",
    norm_at="before",
    norm_epsilon=1e-6,
)
class VisionTransformerModel(StackModel):
    """`PatchEmbedding`, dropout and a `TransformerEncoder`: ViT.

    A Functional model of one input, `images` of shape `(batch, height, width,
    channels)`, float32. The defaults are those of ViT-Base.

    With an `attention_position` that takes rows and columns, such as
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
        grid_positions: The `GridPositions` layer, for an `attention_position`
            that takes rows and columns; by default one of whole numbers, with
            `patch_size` and `num_class_tokens` as here. Else None.
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
    >>> model = kp.VisionTransformerModel(
    ...     None, input_position=None,
    ...     attention_position=kp.RotaryEmbedding(axes=2, max_wavelength=100),
    ...     patch_size=8, d_model=64, num_layers=2, num_heads=4
    ... )
    >>> tuple(model(np.ones((1, 32, 48, 3))).shape)
    (1, 25, 64)

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
        kernel, bias = (
            initializer_of(initializer, "patches")
            for initializer in (
                encoder.kernel_initializer,
                encoder.bias_initializer,
            )
        )
        embedding = PatchEmbedding(
            patch_size,
            d_model=own["d_model"],
            num_class_tokens=num_class_tokens,
            use_positions=input_position is not None,
            kernel_initializer=kernel,
            bias_initializer=bias,
            kernel_regularizer=encoder.kernel_regularizer,
            bias_regularizer=encoder.bias_regularizer,
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
    """Returns the layer that gives an encoder positions, or None.

    Raises:
        ValueError: It is none, or one for other patches; the encoder uses
            positions of another kind.
    """
    axes = {each.num_axes for each in listed(encoder.attention_position)}
    if isinstance(value, dict):
        value = keras.saving.deserialize_keras_object(value)
    if axes != {2}:
        if value is not None:
            raise ValueError(
                "`grid_positions` is for an attention_position that takes rows "
                "and columns, such as RotaryEmbedding(axes=2), in each block "
                "that has one. Received: attention_position="
                f"{encoder.attention_position!r}"
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
