"""Positions of the patches of images, volumes and videos, as vectors."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import check_positive
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments, or_none
from keras_posenc.ops.plain_export import kept_table, rows_of


@keras.saving.register_keras_serializable(package="keras_posenc")
class GridPositions(ConfiguredLayer, keras.Layer):
    """Positions of patches: their row and column, for images of any size.

    Give the result as `positions` to layers with an `attention_position` that
    takes vectors, such as `RotaryEmbedding(axes=2)`. Patches are in the order
    of `PatchEmbedding`, row by row, after the class tokens, whose positions
    are 0: they are not rotated.

    By default positions are whole numbers, 0, 1, 2 ... on each axis. With
    `extent` they are the centres of the patches on an image that reaches from
    `-extent` to `extent` on each axis, whatever its size: those of DINOv3 with
    `extent=2 * math.pi`. In training these can be changed at random: one draw
    for each call, common to all images.

    Args:
        patch_size: Height and width of a patch, in cells of the inputs; 1 for
            inputs that are a grid of vectors.
        num_class_tokens: Number of tokens before the patches, registers
            included.
        extent: None, or half the size of an image, above 0.
        shift: In training, a number in `[-shift, shift] * extent` is added, on
            each axis another one; None for 0.
        jitter: In training, positions are then multiplied by a log-uniform
            number in `[1 / jitter, jitter]`, on each axis another one; at
            least 1, None for 1.
        rescale: In training, positions are then multiplied by such a number in
            `[1 / rescale, rescale]`, common to all axes.
        seed: Seed of the draws, an integer; random by default.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Tensor `(batch, height, width, channels)`, or with any other
            number of axes between the first and the last one. Only its sizes
            are used, which may be dynamic; patches that do not fit are left
            out.
        training: Whether to draw.

    Returns:
        `(1, num_class_tokens + patches, axes)`, the same for all images: int32
        or, with `extent`, float32, in any compute dtype.

    Raises:
        ValueError: An invalid argument; a draw without `extent`; inputs
            without an axis between the first and the last.

    Example:
    >>> import numpy as np
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> positions = kp.GridPositions(8, num_class_tokens=1)
    >>> ops.convert_to_numpy(positions(np.ones((2, 16, 24, 3))))[0].tolist()
    [[0, 0], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]

    References:
        - [Siméoni et al., 2025](https://arxiv.org/abs/2508.10104) (DINOv3)
    """

    def __init__(
        self,
        patch_size: int = 1,
        *,
        num_class_tokens: int = 0,
        extent: float | None = None,
        shift: float | None = None,
        jitter: float | None = None,
        rescale: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        self.extent = or_none(check_positive)("extent", extent)
        self.shift = or_none(check_positive)("shift", shift)
        self.jitter = or_none(_check_factor)("jitter", jitter)
        self.rescale = or_none(_check_factor)("rescale", rescale)
        self.seed = seed
        self.draws = {
            name: value
            for name in ("shift", "jitter", "rescale")
            if (value := getattr(self, name)) is not None
        }
        if self.draws and self.extent is None:
            raise ValueError(
                "`shift`, `jitter` and `rescale` change positions that are not "
                "whole numbers: give `extent` too, such as extent=1.0. "
                f"Received: extent=None, {self.draws}"
            )
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.autocast = False  # the inputs are not used

    def build(self, input_shape: Any) -> None:
        self.compute_output_shape(input_shape)
        self.built = True

    def call(self, inputs: Any, *, training: bool | None = None) -> Any:
        *_, axes = self.compute_output_shape(inputs.shape)
        sizes = [
            size // self.patch_size for size in ops.shape(inputs)[1 : axes + 1]
        ]
        draws = self._drawn(axes) if training and self.draws else None
        columns = []
        for axis, size in enumerate(sizes):
            place = self._places(size)
            if draws is not None:
                place = (place + draws[0][axis]) * draws[1][axis]
            others = [other for other in range(axes) if other != axis]
            # (size,) -> (1, ..., size, ..., 1) -> (patches,)
            place = ops.expand_dims(place, others) if others else place
            place = place + ops.zeros(sizes, place.dtype)
            columns.append(ops.reshape(place, (-1,)))
        positions = ops.stack(columns, axis=-1)
        if self.num_class_tokens:
            positions = ops.pad(positions, ((self.num_class_tokens, 0), (0, 0)))
        return ops.expand_dims(positions, 0)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        sizes = tuple(input_shape)[1:-1]
        if not sizes:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' takes images of shape "
                "(batch, height, width, channels), or another number of axes "
                "between the first and the last. "
                f"Received: inputs of shape {tuple(input_shape)}"
            )
        count = None
        if None not in sizes:
            count = self.num_class_tokens + math.prod(
                size // self.patch_size for size in sizes
            )
        return (1, count, len(sizes))

    def compute_output_spec(
        self, inputs: Any, *, training: bool | None = None
    ) -> Any:
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape),
            dtype="int32" if self.extent is None else "float32",
        )

    def _places(self, size: Any) -> Any:
        """Returns the positions on an axis of so many patches: `(size,)`."""
        index = ops.arange(size, dtype="int32")
        if self.extent is None:
            return index
        # As bits: converters to float16 would round a constant.
        table = ops.convert_to_tensor(
            kept_table(np.array([[self.extent]], "float32"))
        )
        # (size, 1) -> (size,)
        extent = ops.squeeze(rows_of(table, ops.minimum(index, 0)), -1)
        # In integers as long as possible: from -1 + 1 / size to 1 - 1 / size.
        centre = ops.cast(2 * index + 1 - size, "float32")
        return centre / ops.cast(size, "float32") * extent

    def _drawn(self, axes: int) -> tuple[list[Any], list[Any]]:
        """Draws what is added, and what is multiplied by, for each axis."""

        def uniform(bound: float | None, count: int) -> Any:
            if bound is None:
                return ops.zeros(count)
            return keras.random.uniform(
                (count,), -bound, bound, "float32", seed=self.seed_generator
            )

        def log(factor: float | None) -> float | None:
            return None if factor is None else math.log(factor)

        added = uniform(self.shift, axes) * self.extent
        factor = ops.exp(
            uniform(log(self.jitter), axes) + uniform(log(self.rescale), 1)
        )
        return [added[i] for i in range(axes)], [factor[i] for i in range(axes)]


def _check_factor(name: str, value: Any) -> float:
    factor = check_positive(name, value)
    if factor < 1:
        raise ValueError(
            f"`{name}` must be at least 1. Received: {name}={value!r}"
        )
    return factor
