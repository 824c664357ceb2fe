"""Rotary position embeddings, in attention or as a layer of their own."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_choice,
    check_max_wavelength,
    check_position_tensors,
    check_positive,
)
from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.ops.positional_encoding import LAYOUTS
from keras_posenc.ops.positions import count_positions
from keras_posenc.ops.rotary import rotate_pairs
from keras_posenc.ops.rotary_scaling import (
    BY_LENGTH,
    ROPE_TYPES,
    check_pairs,
    check_scaling,
    scaled_phases,
)
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class RotaryEmbedding(AttentionPosition):
    """Turns pairs of features by angles that grow with the position.

    Scores then depend on differences of positions alone. Pair `j` of `dim`
    features turns by `position * max_wavelength ** (-2 j / dim)`; `rope_type`
    says how that changes for texts longer than those trained on. As
    `attention_position` of an encoder it turns queries and keys; called on a
    tensor it turns that.

    Angles are never rounded: sines and cosines are exact to 5.8e-7 up to
    position 2**24, however long the context. `"dynamic"` alone, in rows longer
    than the original length, has frequencies of float32 accuracy.

    Args:
        max_wavelength: The base of the progression of wavelengths, at least 1.
        rope_type: How frequencies are scaled for long contexts, one of the
            following; "needs" names the arguments that belong to it.

            - `"default"`: not at all.
            - `"linear"`: all divided by `scaling_factor`, which it needs.
            - `"dynamic"`: the base grows with the length of each row beyond
              `original_max_position_embeddings`; needs `scaling_factor` too.
            - `"yarn"`: slow pairs are divided, fast ones kept; needs
              `scaling_factor`, `original_max_position_embeddings`.
            - `"longrope"`: each pair is divided by its own entry of
              `short_factor`, or, in rows longer than
              `original_max_position_embeddings`, of `long_factor`; needs all
              three and `scaling_factor`.
            - `"llama3"`: as yarn, between `low_freq_factor` and
              `high_freq_factor` turns within
              `original_max_position_embeddings`; needs all three and
              `scaling_factor`.
        scaling_factor: How many times longer the context is to become.
        layout: Which features are pair `j`: `"halves"` (columns `j` and
            `dim / 2 + j`: GPT-NeoX, Llama) or `"interleaved"` (`2 j` and
            `2 j + 1`: the paper, GPT-J).
        partial_rotary_factor: Share of the features that turn, the first ones;
            in (0, 1].
        original_max_position_embeddings: The length trained on.
        beta_fast: yarn's turns within that length from which on a pair is
            kept; 32 by default.
        beta_slow: yarn's turns up to which a pair is divided; 1 by default.
        low_freq_factor: llama3's turns up to which a pair is divided.
        high_freq_factor: llama3's turns from which on a pair is kept.
        short_factor: longrope's divisors, one for each pair.
        long_factor: longrope's divisors for long rows.
        attention_factor: What yarn and longrope multiply the result by; by
            default what their papers say of `scaling_factor`.
        mscale: yarn's growth of that factor with the logarithm of
            `scaling_factor`, 1 in the paper. Only with `mscale_all_dim`, and
            without `attention_factor`.
        mscale_all_dim: yarn's share of that growth which a model has in its
            scores already (DeepSeek's do), and which is therefore divided by.
        truncate: Whether yarn's ramp begins and ends at whole pairs, as in its
            published code; True by default.
        sequence_axis: The axis of the tokens, where called on a tensor.
        feature_axis: The axis of the features, where called on a tensor.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of rank 3 or more; the first axis is the batch.
        positions: Integers or reals, `(seq,)` or `(batch, seq)`. A position
            that is NaN or beyond 2**24 in magnitude gives NaN, but that of a
            masked token counts as 0, whatever it is. Not together with
            `start_index`.
        start_index: Position of the first token, an integer or `(batch,)`.
        segment_ids: Integers `(batch, seq)`. Positions start again at
            `start_index` with each segment of a packed row; given
            `positions` stay as they are.
        mask: Bool `(batch, seq)`, True for a token; by default the mask that
            the inputs carry. Padding does not count as length; it turns as
            any token, and NaN there stays there.

    Returns:
        A tensor like `inputs`, in the compute dtype. The mask passes through.

    Raises:
        ValueError: An argument that is none of the above, or that the
            `rope_type` needs or does not have; a number of turning features
            that is odd.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoder(
    ...     2, num_heads=4, attention_position=kp.RotaryEmbedding()
    ... )
    >>> tuple(encoder(np.ones((2, 10, 64), "float32")).shape)
    (2, 10, 64)
    >>> yarn = kp.RotaryEmbedding(
    ...     rope_type="yarn",
    ...     scaling_factor=4,
    ...     original_max_position_embeddings=4096,
    ... )
    >>> tuple(yarn(np.ones((2, 10, 64), "float32"), start_index=5000).shape)
    (2, 10, 64)

    References:
        - [Su et al., 2021](https://arxiv.org/abs/2104.09864)
        - [Chen et al., 2023](https://arxiv.org/abs/2306.15595) (linear)
        - [Peng et al., 2023](https://arxiv.org/abs/2309.00071) (dynamic, yarn)
        - [Ding et al., 2024](https://arxiv.org/abs/2402.13753) (longrope)
        - [Grattafiori et al., 2024](https://arxiv.org/abs/2407.21783) (llama3)
    """

    def __init__(
        self,
        *,
        max_wavelength: float = 10000,
        rope_type: str = "default",
        scaling_factor: float | None = None,
        layout: str = "halves",
        partial_rotary_factor: float = 1.0,
        original_max_position_embeddings: int | None = None,
        beta_fast: float | None = None,
        beta_slow: float | None = None,
        low_freq_factor: float | None = None,
        high_freq_factor: float | None = None,
        short_factor: Sequence[float] | None = None,
        long_factor: Sequence[float] | None = None,
        attention_factor: float | None = None,
        mscale: float | None = None,
        mscale_all_dim: float | None = None,
        truncate: bool | None = None,
        sequence_axis: int = 1,
        feature_axis: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_wavelength = check_max_wavelength(max_wavelength)
        self.rope_type = check_choice("rope_type", rope_type, ROPE_TYPES)
        self.layout = check_choice("layout", layout, LAYOUTS)
        self.partial_rotary_factor = check_positive(
            "partial_rotary_factor", partial_rotary_factor
        )
        if self.partial_rotary_factor > 1:
            raise ValueError(
                "`partial_rotary_factor` must be in (0, 1]. Received: "
                f"partial_rotary_factor={partial_rotary_factor!r}"
            )
        self._scaling = check_scaling(
            rope_type,
            max_wavelength=self.max_wavelength,
            parameters={
                "scaling_factor": scaling_factor,
                "original_max_position_embeddings": (
                    original_max_position_embeddings
                ),
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "short_factor": short_factor,
                "long_factor": long_factor,
                "attention_factor": attention_factor,
                "mscale": mscale,
                "mscale_all_dim": mscale_all_dim,
                "truncate": truncate,
            },
        )
        for name, value in self._scaling.items():
            setattr(self, name, value)
        self.sequence_axis = _check_axis("sequence_axis", sequence_axis)
        self.feature_axis = _check_axis("feature_axis", feature_axis)
        # Where the length of a row counts, its padding must not.
        self.uses_length = rope_type in BY_LENGTH
        self.supports_masking = True
        # Keras would cast real positions to the compute dtype, in which 1001
        # and 1000 can be the same number.
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        if self.feature_axis == -1:  # true in attention as well
            self._check_width(input_shape[-1])
        self.built = True

    def rotate(self, x: Any, positions: Any) -> Any:
        sine, cosine = self._phases(x, positions)
        # (batch, seq, pairs) -> (batch, 1, seq, pairs)
        return self._turn(
            x, ops.expand_dims(sine, 1), ops.expand_dims(cosine, 1)
        )

    def call(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
    ) -> Any:
        mask = resolve_mask(mask, inputs)
        self._check_call(inputs, positions, start_index, segment_ids, mask)
        axes = (self.sequence_axis, self.feature_axis)
        # (batch, ..., seq, dim)
        x = ops.moveaxis(ops.cast(inputs, self.compute_dtype), axes, (-2, -1))
        padding_matters = positions is not None or self.uses_length
        positions = count_positions(
            positions,
            start_index=start_index,
            segment_ids=segment_ids,
            length=ops.shape(x)[-2],
        )
        if padding_matters:
            positions = hide_masked(positions, mask)
        middle = tuple(range(1, len(x.shape) - 2))
        sine, cosine = (
            ops.expand_dims(part, middle) if middle else part
            for part in self._phases(x, positions)
        )
        outputs = ops.cast(self._turn(x, sine, cosine), self.compute_dtype)
        return ops.moveaxis(outputs, (-2, -1), axes)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
    ) -> Any:
        self._check_call(inputs, positions, start_index, segment_ids, mask)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "rope_type": self.rope_type,
            "layout": self.layout,
            "partial_rotary_factor": self.partial_rotary_factor,
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self._scaling.items()
            },
            "sequence_axis": self.sequence_axis,
            "feature_axis": self.feature_axis,
        }

    def _turn(self, x: Any, sine: Any, cosine: Any) -> Any:
        """Turns the features that turn, in the precision of the phases."""
        wide = ops.cast(x, sine.dtype)
        turning = 2 * sine.shape[-1]
        if turning == x.shape[-1]:
            return rotate_pairs(
                wide, sine=sine, cosine=cosine, layout=self.layout
            )
        wide, rest = ops.split(wide, [turning], axis=-1)
        turned = rotate_pairs(
            wide, sine=sine, cosine=cosine, layout=self.layout
        )
        return ops.concatenate([turned, rest], axis=-1)

    def _phases(self, x: Any, positions: Any) -> tuple[Any, Any]:
        dtype = keras.backend.standardize_dtype(x.dtype)
        return scaled_phases(
            positions,
            dim=self._check_width(x.shape[-1]),
            max_wavelength=self.max_wavelength,
            rope_type=self.rope_type,
            parameters=self._scaling,
            dtype="float64" if dtype == "float64" else "float32",
        )

    def _check_width(self, width: Any) -> int:
        """How many of the features turn."""
        dim = int((width or 0) * self.partial_rotary_factor)
        if not dim or dim % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' turns features in pairs: "
                "their number must be known, even and above 0. Received: "
                f"width {width} (of one head, in attention), "
                "partial_rotary_factor="
                f"{self.partial_rotary_factor}, which turns {dim} features"
            )
        check_pairs(self._scaling, dim // 2)
        return dim

    def _check_call(
        self,
        inputs: Any,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        mask: Any,
    ) -> None:
        shape, rank = tuple(inputs.shape), len(inputs.shape)
        axes = (self.sequence_axis, self.feature_axis)
        inside = [axis % rank for axis in axes if -rank <= axis < rank]
        if rank < 3 or len({0, *inside}) < 3:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' expects inputs of rank 3 "
                "or more, with the batch first and two other axes for "
                f"sequence_axis={axes[0]} and feature_axis={axes[1]}. "
                f"Received: inputs of shape {shape}"
            )
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"{type(self).__name__} '{self.name}' expects inputs of a "
                f"float dtype. Received: inputs of dtype {dtype}"
            )
        self._check_width(shape[self.feature_axis])
        check_position_tensors(
            shape[0],
            shape[self.sequence_axis],
            positions,
            start_index,
            segment_ids,
            mask,
        )


def _check_axis(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r}")
