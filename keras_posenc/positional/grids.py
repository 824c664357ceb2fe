"""Images and other grids: their encodings, and positions of patches."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import (
    as_integer,
    check_each,
    check_positive,
    check_positive_int,
)
from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.distances import rows_at
from keras_posenc.ops.initializers import add_weight_of
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments, or_none
from keras_posenc.ops.sinusoids import Sinusoids
from keras_posenc.ops.tables import kept_table, rows_of
from keras_posenc.positional._merged_encoding import MergedEncoding

GRIDS = {
    1: ("batch", "length", "dim"),
    2: ("batch", "height", "width", "dim"),
    3: ("batch", "height", "width", "depth", "dim"),
}


@keras.saving.register_keras_serializable(package="keras_posenc")
class AxialPositionalEncoding(MergedEncoding):
    """Adds an encoding of each cell's position in a grid to the inputs.

    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None, None, 3)),
    ...     keras.layers.Conv2D(64, 16, strides=16),
    ...     kp.AxialPositionalEncoding(2),
    ...     keras.layers.Reshape((-1, 64)),
    ...     kp.TransformerEncoder(2, num_heads=4, intermediate_dim=128),
    ... ])
    >>> model.output_shape
    (None, None, 64)

    The columns are split evenly among the axes, an even number for each (the
    last axis has the rest). Each axis fills its columns with the encoding of
    its coordinate: the sinusoid, exact as in `PositionalEncoding`, for grids
    of any size; or learned rows, for grids up to `grid_shape`.

    With the defaults this equals tatp22's `PositionalEncoding1D`, `2D` and
    `3D`. With `layout="halves"` and a width divisible by 4 it is the table of
    MoCo v3 and MAE; these have the columns for the width of the image first:
    `last_axis_first=True`. For the table of Big Vision's ViT
    (`posemb_sincos_2d`), whose exponents run from 0 to 1 *inclusive* over
    `n = dim / 4` frequencies, also give `max_wavelength = 10000 ** (n / (n -
    1))`.

    Args:
        num_axes: 1 (sequences), 2 (images) or 3 (volumes).
        grid_shape: None for the sinusoid; for learned tables, the largest
            size of each axis, `num_axes` integers.
        max_wavelength: The base of the geometric progression of wavelengths;
            a finite number of at least 1. Not with `grid_shape`.
        layout: `"interleaved"` or `"halves"`, within each axis's columns. Not
            with `grid_shape`.
        last_axis_first: Whether the columns of the last axis come first.
        merge_mode: `"add"` to the inputs, `"concat"` after them, or None for
            the encoding alone.
        encoding_dim: Width of a concatenated encoding; by default the inputs'
            own. Only with `merge_mode="concat"`.
        dropout: Rate of the dropout after the merge, in [0, 1).
        embeddings_initializer: Initializer of learned tables.
        embeddings_regularizer: Regularizer of the tables, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, height, width, dim)` for two
            axes, `(batch, height, width, depth, dim)` for three, `(batch,
            length, dim)` for one. Sizes may be dynamic, and differ between
            calls.
        training: Whether dropout is active.

    Returns:
        The inputs' shape, in the layer's compute dtype; wider by
        `encoding_dim` with `merge_mode="concat"`. A mask passes through. Cells
        beyond a learned table raise `ValueError` if the sizes are static, and
        are NaN if they are dynamic.

    Raises:
        ValueError: An invalid argument; inputs of another rank, not of a float
            dtype, or of unknown width; a width that leaves no column for the
            last axis.

    References:
        - [Dosovitskiy et al., 2021](https://arxiv.org/abs/2010.11929),
          appendix D.4 (learned, the axes' halves concatenated)
        - [He et al., 2021](https://arxiv.org/abs/2111.06377) (MAE)
        - [Wang and Liu, 2019](https://arxiv.org/abs/1908.11415)
        - [positional-encodings](https://github.com/tatp22/multidim-positional-encoding)
    """

    def __init__(
        self,
        num_axes: int = 2,
        *,
        grid_shape: Sequence[int] | None = None,
        max_wavelength: float = 10000,
        layout: str = "interleaved",
        last_axis_first: bool = False,
        merge_mode: str | None = "add",
        encoding_dim: int | None = None,
        dropout: float = 0.0,
        embeddings_initializer: Any = "glorot_uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())
        if as_integer(num_axes) not in GRIDS:
            raise ValueError(
                f"`num_axes` must be 1, 2 or 3. Received: num_axes={num_axes!r}"
            )
        self.num_axes = int(num_axes)
        self.axes = GRIDS[self.num_axes]
        self.grid_shape = check_each(
            "grid_shape",
            grid_shape,
            check_positive_int,
            f"{num_axes} positive integers, one for each axis",
            count=self.num_axes,
        )
        if self.grid_shape is not None:
            for name, value, default in (
                ("max_wavelength", self.max_wavelength, 10000),
                ("layout", layout, "interleaved"),
            ):
                if value != default:
                    raise ValueError(
                        f"`{name}` is an option of the sinusoid, and cannot be "
                        f"used with grid_shape. Received: {name}={value!r}, "
                        f"grid_shape={self.grid_shape}"
                    )

    def build_encoding(self, input_shape: tuple[Any, ...]) -> None:
        widths = self._widths(input_shape[-1])
        self.embeddings = []
        if self.grid_shape is None:
            return
        for axis, size in enumerate(self.grid_shape):
            name = f"{self.axes[axis + 1]}_embeddings"
            table = add_weight_of(self, name, (size, widths[axis]))
            self.embeddings.append(table)

    def call(self, inputs: Any, *, training: bool | None = None) -> Any:
        self.check_inputs(inputs)
        self._check_sizes(inputs.shape)
        sizes = ops.shape(inputs)[1:-1]
        if self.grid_shape is None:
            dim = inputs.shape[-1]
            sinusoids = Sinusoids(
                _axis_width(self.encoding_width(dim), self.num_axes),
                max_wavelength=self.max_wavelength,
                layout=self.layout,
                dtype=self.exact_dtype(),
            )
            encodings = [
                sinusoids.range(0, size)[:, :width]
                for size, width in zip(sizes, self._widths(dim), strict=True)
            ]
        else:
            encodings = [
                rows_at(
                    ops.convert_to_tensor(table),
                    ops.arange(size, dtype="int32"),
                )
                for table, size in zip(self.embeddings, sizes, strict=True)
            ]
        encoding = _joined(encodings, self.last_axis_first)
        return self.merge(inputs, encoding, training)

    def compute_output_spec(
        self, inputs: Any, *, training: bool | None = None
    ) -> Any:
        self.check_inputs(inputs)
        self._check_sizes(inputs.shape)
        self._widths(inputs.shape[-1])
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def _widths(self, dim: int) -> list[int]:
        """Returns the columns of each axis, in the order of the axes."""
        dim = self.encoding_width(dim)
        width = _axis_width(dim, self.num_axes)
        left = dim - (self.num_axes - 1) * width
        if left <= 0:
            raise ValueError(
                f"A width of {dim} leaves no column for the last of "
                f"{self.num_axes} axes, since each of the others takes {width}."
                f" Give a multiple of {2 * self.num_axes}. "
                f"Received: width {dim}"
            )
        widths = [width] * (self.num_axes - 1) + [left]
        return widths[::-1] if self.last_axis_first else widths

    def _check_sizes(self, shape: Any) -> None:
        if self.grid_shape is None:
            return
        sizes = tuple(shape)[1:-1]
        for size, largest in zip(sizes, self.grid_shape, strict=True):
            if size is not None and size > largest:
                raise ValueError(
                    f"{type(self).__name__} '{self.name}' learned only grids "
                    f"up to grid_shape={self.grid_shape}. "
                    f"Received: inputs with a grid of {sizes}"
                )


def _axis_width(dim: int, num_axes: int) -> int:
    """Returns the columns of each axis: even, for pairs of sine and cosine."""
    return 2 * -(-dim // (2 * num_axes))


def _joined(encodings: Sequence[Any], reverse: bool) -> Any:
    """Joins `(size, width)` of each axis to `(*sizes, sum of the widths)`.

    Cell `(i, j, ...)` holds row `i` of the first encoding, row `j` of the
    second, and so on; in reverse the columns of the last axis come first.
    """
    sizes = [ops.shape(encoding)[0] for encoding in encodings]
    planes = []
    for axis, encoding in enumerate(encodings):
        others = [other for other in range(len(sizes)) if other != axis]
        # (size, width) -> (1, ..., size, ..., 1, width)
        plane = ops.expand_dims(encoding, others) if others else encoding
        planes.append(spread(plane, sizes))
    return ops.concatenate(planes[::-1] if reverse else planes, axis=-1)


@keras.saving.register_keras_serializable(package="keras_posenc")
class GridPositions(ConfiguredLayer, keras.Layer):
    """Positions of patches: their row and column, for images of any size.

    >>> import numpy as np
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> positions = kp.GridPositions(8, num_class_tokens=1)
    >>> ops.convert_to_numpy(positions(np.ones((2, 16, 24, 3))))[0].tolist()
    [[0, 0], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]

    Give the result as `positions` to layers with a position in attention that
    takes vectors, such as `RotaryEmbedding(axes=2)`. Patches are in the order
    of `PatchEmbedding`, row by row, after the class tokens, whose positions
    are 0: they are not rotated.

    By default positions are whole numbers, 0, 1, 2 ... on each axis. With
    `extent` they are the centers of the patches on an image that reaches from
    `-extent` to `extent` on each axis, whatever its size: those of DINOv3 with
    `extent=2 * math.pi`, without its random changes in training.

    Args:
        patch_size: Height and width of a patch, in cells of the inputs; 1 for
            inputs that are a grid of vectors.
        num_class_tokens: Number of tokens before the patches, registers
            included.
        extent: None, or half the size of an image, above 0.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Tensor `(batch, height, width, channels)`, or with any other
            number of axes between the first and the last one. Only its sizes
            are used, which may be dynamic; patches that do not fit are left
            out.

    Returns:
        `(1, num_class_tokens + patches, axes)`, the same for all images: int32
        or, with `extent`, float32, in any compute dtype.

    Raises:
        ValueError: An invalid argument; inputs without an axis between the
            first and the last.

    References:
        - [Siméoni et al., 2025](https://arxiv.org/abs/2508.10104) (DINOv3)
    """

    def __init__(
        self,
        patch_size: int = 1,
        *,
        num_class_tokens: int = 0,
        extent: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        self.extent = or_none(check_positive)("extent", extent)
        self.autocast = False  # the inputs are not used

    def build(self, input_shape: Any) -> None:
        self.compute_output_shape(input_shape)

    def call(self, inputs: Any) -> Any:
        *_, axes = self.compute_output_shape(inputs.shape)
        sizes = [
            size // self.patch_size for size in ops.shape(inputs)[1 : axes + 1]
        ]
        columns = []
        for axis, size in enumerate(sizes):
            place = self._places(size)
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

    def compute_output_spec(self, inputs: Any) -> Any:
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
        center = ops.cast(2 * index + 1 - size, "float32")
        return center / ops.cast(size, "float32") * extent
