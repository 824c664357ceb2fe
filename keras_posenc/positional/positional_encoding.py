"""The sinusoidal encoding as a layer."""

import math
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_bool,
    check_choice,
    check_inputs,
    check_integers,
    check_max_wavelength,
    check_positive_int,
    check_rate,
    check_real,
    check_sequence_shape,
    check_shape,
)
from keras_posenc.ops.masks import resolve_mask
from keras_posenc.ops.positional_encoding import LAYOUTS
from keras_posenc.ops.positions import (
    positions_from_mask,
    positions_from_segments,
)
from keras_posenc.ops.sinusoids import Sinusoids

MERGE_MODES = ("add", "concat", None)


@keras.saving.register_keras_serializable(package="keras_posenc")
class PositionalEncoding(keras.Layer):
    """Adds the sinusoidal encoding of each position to the inputs.

    Column `2 j` of the encoding of position `p` is `sin(p w_j)` and column
    `2 j + 1` is `cos(p w_j)`, with `w_j = max_wavelength ** (-2 j / dim)`. The
    layer has no weights and no longest length: any length, any position up to
    2**24 is exact to 5.8e-7 in float32 (2.1e-7 below position 4 096; a real
    position that is not whole adds at most 3e-7), and to the rounding of that
    in float16 and bfloat16.

    Args:
        max_wavelength: The base of the geometric progression of wavelengths;
            a finite number of at least 1.
        layout: `"interleaved"` (the paper) or `"halves"` (all the sines, then
            all the cosines). An odd width has one more sine than cosines.
        merge_mode: `"add"` to the inputs, `"concat"` behind them, or None for
            the encoding alone.
        encoding_dim: Width of the encoding where it is concatenated; by
            default the inputs' own. Only with `merge_mode="concat"`.
        scale_inputs: Whether to multiply the inputs by `sqrt(dim)` first, as
            the paper does with its embeddings.
        skip_masked: Whether only unmasked tokens count, so that left padding
            changes nothing. A masked token takes the position of the last
            unmasked one before it. Without a mask it changes nothing.
        dropout: Rate of the dropout behind the sum, in [0, 1).
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        positions: Integers or reals, `(seq,)` or `(batch, seq)`. A position
            that is NaN or beyond 2**24 in magnitude is encoded as NaN. Not
            together with `start_index`, `segment_ids` or `skip_masked`.
        start_index: Position of the first token: an integer or `(batch,)`
            integers, negative ones too. Counting that leaves the range of
            +-2**24 gives NaN, from 2**24 + 128 on at the latest.
        segment_ids: Integers of shape `(batch, seq)`. Positions start again
            at `start_index` with each segment of a packed row; segments are
            contiguous. Not together with `skip_masked`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the layer's compute dtype; `(batch, seq, dim +
        encoding_dim)` with `merge_mode="concat"`. The mask passes through.

    Raises:
        ValueError: An argument that is none of the above; inputs that are not
            of rank 3, not of a float dtype, or of unknown or zero width.

    Example:
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(1000, 64, mask_zero=True),
    ...     kp.PositionalEncoding(dropout=0.1),
    ... ])
    >>> model.output_shape
    (None, None, 64)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        *,
        max_wavelength: float = 10000,
        layout: str = "interleaved",
        merge_mode: str | None = "add",
        encoding_dim: int | None = None,
        scale_inputs: bool = False,
        skip_masked: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_wavelength = check_max_wavelength(max_wavelength)
        self.layout = check_choice("layout", layout, LAYOUTS)
        self.merge_mode = check_choice("merge_mode", merge_mode, MERGE_MODES)
        if encoding_dim is not None:
            if merge_mode != "concat":
                raise ValueError(
                    "`encoding_dim` needs merge_mode='concat'. Received: "
                    f"encoding_dim={encoding_dim!r}, merge_mode={merge_mode!r}"
                )
            encoding_dim = check_positive_int("encoding_dim", encoding_dim)
        self.encoding_dim = encoding_dim
        self.scale_inputs = check_bool("scale_inputs", scale_inputs)
        self.skip_masked = check_bool("skip_masked", skip_masked)
        self.dropout = check_rate("dropout", dropout)
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )
        self.supports_masking = True
        # Keras would cast real positions to the compute dtype, in which 1001
        # and 1000 can be the same number.
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        input_shape = tuple(input_shape)
        check_sequence_shape(self, input_shape)
        self.dropout_layer.build(self.compute_output_shape(input_shape))
        self.built = True

    def call(
        self,
        inputs: Any,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        mask = resolve_mask(mask, inputs)
        self._check_call(inputs, positions, start_index, segment_ids, mask)
        inputs = ops.cast(inputs, self.compute_dtype)
        encoding = ops.cast(
            self._encode(inputs, positions, start_index, segment_ids, mask),
            self.compute_dtype,
        )
        if len(encoding.shape) == 2:
            encoding = ops.expand_dims(encoding, 0)
        if self.scale_inputs:
            inputs = inputs * math.sqrt(inputs.shape[-1])
        if self.merge_mode == "add":
            outputs = inputs + encoding
        else:
            batch, seq = ops.shape(inputs)[:2]
            outputs = ops.broadcast_to(
                encoding, (batch, seq, encoding.shape[-1])
            )
            if self.merge_mode == "concat":
                outputs = ops.concatenate([inputs, outputs], axis=-1)
        if self.dropout:
            outputs = self.dropout_layer(outputs, training=training)
        return outputs

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        *outer, dim = input_shape
        if self.merge_mode == "concat":
            dim = dim + self._encoding_dim(dim)
        return (*outer, dim)

    def compute_output_spec(
        self,
        inputs: Any,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        self._check_call(inputs, positions, start_index, segment_ids, mask)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
            "merge_mode": self.merge_mode,
            "encoding_dim": self.encoding_dim,
            "scale_inputs": self.scale_inputs,
            "skip_masked": self.skip_masked,
            "dropout": self.dropout,
        }

    def _encoding_dim(self, dim: int) -> int:
        return dim if self.encoding_dim is None else self.encoding_dim

    def _encode(
        self,
        inputs: Any,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        mask: Any,
    ) -> Any:
        sinusoids = Sinusoids(
            self._encoding_dim(inputs.shape[-1]),
            self.max_wavelength,
            self.layout,
            "float64" if self.compute_dtype == "float64" else "float32",
        )
        if positions is None:
            if segment_ids is not None:
                positions = positions_from_segments(segment_ids)
            elif self.skip_masked and mask is not None:
                positions = positions_from_mask(mask)
            else:
                return sinusoids.range(start_index, ops.shape(inputs)[1])
            start_index = ops.convert_to_tensor(start_index)
            if len(start_index.shape) == 1:
                start_index = ops.expand_dims(start_index, 1)
            positions = ops.add(positions, start_index)
        return sinusoids.at(positions)

    def _check_call(
        self,
        inputs: Any,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        mask: Any,
    ) -> None:
        check_inputs(self, inputs)
        sizes = {"batch": inputs.shape[0], "seq": inputs.shape[1]}
        row = ("batch", "seq")
        check_shape("mask", mask, row, sizes=sizes)
        check_shape("positions", positions, ("seq",), row, sizes=sizes)
        check_shape("segment_ids", segment_ids, row, sizes=sizes)
        check_shape("start_index", start_index, (), ("batch",), sizes=sizes)
        check_integers("start_index", start_index)
        check_real("positions", positions)
        if segment_ids is not None:
            check_integers("segment_ids", segment_ids)
            if self.skip_masked:
                raise ValueError(
                    "`segment_ids` cannot be used with skip_masked=True, which "
                    "counts positions another way"
                )
        if positions is None:
            return
        for name, is_given in {
            "start_index": not isinstance(start_index, int) or start_index,
            "segment_ids": segment_ids is not None,
            "skip_masked=True": self.skip_masked,
        }.items():
            if is_given:
                raise ValueError(
                    "`positions` says where every token stands, and cannot be "
                    f"used with {name}"
                )
