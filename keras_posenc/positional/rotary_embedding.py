"""Rotary position embeddings, in attention or as a separate layer."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive
from keras_posenc.ops.arguments import check_position_tensors
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.ops.named import keep_arguments
from keras_posenc.ops.positions import count_positions
from keras_posenc.ops.rotary import (
    BY_LENGTH,
    axis_count,
    check_axes,
    check_pairs,
    check_scaling,
    fits,
    phases_of_axes,
    rotate_pairs,
    scaled_phases,
)
from keras_posenc.positional._merged_encoding import Tokens
from keras_posenc.positional.attention_position import (
    OwnPosition,
    check_position_axes,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class RotaryEmbedding(OwnPosition):
    """Rotates pairs of features by angles that grow with the position.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoder(
    ...     2, num_heads=4, attention=kp.RotaryEmbedding()
    ... )
    >>> tuple(encoder(np.ones((2, 10, 64), "float32")).shape)
    (2, 10, 64)
    >>> yarn = kp.RotaryEmbedding(
    ...     scaling={
    ...         "rope_type": "yarn",
    ...         "factor": 4.0,
    ...         "original_max_position_embeddings": 4096,
    ...     }
    ... )
    >>> tuple(yarn(np.ones((2, 10, 64), "float32"), start_index=5000).shape)
    (2, 10, 64)
    >>> axial = kp.SelfAttention(
    ...     num_heads=4, attention=kp.RotaryEmbedding(axes=2)
    ... )
    >>> cells = np.array([[[0, 0], [0, 1], [1, 0], [1, 1]]])  # row, column
    >>> tuple(axial(np.ones((2, 4, 64), "float32"), positions=cells).shape)
    (2, 4, 64)

    Scores then depend only on differences of positions. Pair `j` of `dim`
    features is rotated by `position * max_wavelength ** (-2 j / dim)`;
    `scaling` changes that for texts longer than those in training. As the
    `attention` of an encoder the layer rotates queries and keys;
    called on a tensor it rotates the tensor.

    Sines and cosines have errors of at most 5.8e-7 up to position 2**24,
    however long the context is; with the scaling `"dynamic"`, in rows longer
    than the original length, frequencies have float32 accuracy.

    Args:
        max_wavelength: The base of the progression of wavelengths, at least 1.
        scaling: How frequencies are scaled for long contexts: None, or a dict
            with the keys of Hugging Face's `rope_scaling`. (Its
            `rope_parameters` have two more keys, which are arguments here:
            `partial_rotary_factor`, except for `"proportional"`, and
            `rope_theta`, here `max_wavelength`.)
            The keys of each `"rope_type"`:

            - `"default"`: none; frequencies are not scaled.
            - `"linear"`: all are divided by `"factor"`, how many times longer
              the context becomes.
            - `"dynamic"`: the base grows with the length of each row beyond
              `"original_max_position_embeddings"`, the length in training;
              `"factor"`.
            - `"yarn"`: low frequencies are divided, high ones kept;
              `"factor"` and `"original_max_position_embeddings"`. Optional:
              `"beta_fast"` (32): a frequency with at least this many turns
              within that length is kept; `"beta_slow"` (1): one with at most
              this many is divided; `"truncate"` (True): whether the ramp
              between them starts and ends at whole pairs, as in yarn's
              published code; `"attention_factor"`, which multiplies the
              result, by default as in the paper; or, instead of it,
              `"mscale"`, its growth with the logarithm of `"factor"` (1 in the
              paper), and `"mscale_all_dim"`, the part of that growth which the
              scores of a model have already (DeepSeek's do).
            - `"longrope"`: each frequency is divided by its own entry of
              `"short_factor"` or, in rows longer than
              `"original_max_position_embeddings"`, of `"long_factor"`; both
              lists have an entry for each pair; `"factor"`. Optional:
              `"attention_factor"`. With a cache the length is its
              `max_length`: in generation, prompt and new tokens together.
            - `"llama3"`: as yarn, between `"low_freq_factor"` and
              `"high_freq_factor"` turns within
              `"original_max_position_embeddings"`; `"factor"`.
            - `"proportional"` (p-RoPE, as in Gemma 4): only the share
              `"partial_rotary_factor"` of the pairs is rotated, those of the
              highest frequencies. The others, whatever the distance, compare
              contents alone. Optional: `"factor"` (1), which divides the
              frequencies.
            - `"clipped"`: the frequencies of the last `"clipped_pairs"` pairs
              (20 of 64 in the paper) fall along half a cosine, from their own
              to 0.
        layout: Which features are pair `j`: `"halves"` (columns `j` and
            `dim / 2 + j`: GPT-NeoX, Llama) or `"interleaved"` (`2 j` and
            `2 j + 1`: the paper, GPT-J).
        partial_rotary_factor: Share of the features to rotate, the first ones;
            in (0, 1].
        axes: How the pairs are shared out among the axes of positions that
            are vectors, such as rows and columns of images (`GridPositions`).
            Not with scalings by length, `"dynamic"` and `"longrope"`.

            - None: positions are numbers.
            - An integer from 2 on, the number of axes: axial positions. Each
              axis has its share of the pairs, with frequencies as of a head
              of that width: those of DINOv3, and of RoPE-ViT, which has the
              column before the row and `layout="interleaved"`.
            - A dict with `"mrope_section"`, a list with the number of pairs of
              each axis, which sum to half the rotated features: M-RoPE. Pair
              `j` keeps its frequency, and follows one axis. With
              `"mrope_interleaved": True`, axes take turns from pair to pair
              until they have their number, and the first one has the rest
              (Qwen3-VL); else they follow one another (Qwen2-VL). Tokens may
              have numbers too, which count as the same on all axes.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, ..., dim)`.
        positions: Integers or floats, `(seq,)` or `(batch, seq)`; with `axes`,
            `(batch, seq, axes)`, where the batch may be 1. A position that is
            NaN or beyond 2**24 in magnitude gives NaN; that of a masked token
            always counts as 0. Not together with `start_index`.
        start_index: Position of the first token, an integer or `(batch,)`.
        segment_ids: Integers `(batch, seq)`. Positions start again at
            `start_index` with each segment of a packed row; they do not change
            `positions` that are given.
        mask: Bool `(batch, seq)`, True for a token; by default the mask that
            the inputs carry. Padding does not count as length; it is rotated
            as any token, and NaN there stays there.

    Returns:
        A tensor like `inputs`, in the compute dtype. The mask passes through.

    Raises:
        ValueError: An invalid argument; a `scaling` that lacks a key of its
            type, or has another one; a number of features to rotate that is
            odd, or cannot be shared out among the axes; positions of another
            rank or width.

    References:
        - [Su et al., 2021](https://arxiv.org/abs/2104.09864)
        - [Chen et al., 2023](https://arxiv.org/abs/2306.15595) (linear)
        - [Peng et al., 2023](https://arxiv.org/abs/2309.00071) (dynamic, yarn)
        - [Ding et al., 2024](https://arxiv.org/abs/2402.13753) (longrope)
        - [Grattafiori et al., 2024](https://arxiv.org/abs/2407.21783) (llama3)
        - [Barbero et al., 2024](https://arxiv.org/abs/2410.06205)
          (proportional)
        - [Li et al., 2026](https://arxiv.org/abs/2602.05258) (clipped)
        - [Heo et al., 2024](https://arxiv.org/abs/2403.13298) (axial)
        - [Wang et al., 2024](https://arxiv.org/abs/2409.12191) (M-RoPE)
        - [Huang et al., 2025](https://arxiv.org/abs/2510.23095) (interleaved)
    """

    def __init__(
        self,
        *,
        max_wavelength: float = 10000,
        scaling: Mapping[str, Any] | None = None,
        layout: str = "halves",
        partial_rotary_factor: float = 1.0,
        axes: int | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        self.partial_rotary_factor = check_positive(
            "partial_rotary_factor", partial_rotary_factor
        )
        if self.partial_rotary_factor > 1:
            raise ValueError(
                "`partial_rotary_factor` must be in (0, 1]. Received: "
                f"partial_rotary_factor={partial_rotary_factor!r}"
            )
        self.scaling = check_scaling(
            scaling, max_wavelength=self.max_wavelength
        )
        self.rope_type = self.scaling["rope_type"]
        if (
            "partial_rotary_factor" in self.scaling
            and partial_rotary_factor < 1
        ):
            raise ValueError(
                "`partial_rotary_factor` is a key of `scaling` for the "
                f"rope_type {self.rope_type!r}: leave the argument out. "
                f"Received: partial_rotary_factor={partial_rotary_factor!r}, "
                f"scaling={self.scaling!r}"
            )
        self.uses_length = self.rope_type in BY_LENGTH
        self.axes = check_axes(axes)
        self.num_axes = axis_count(self.axes)
        self.takes_numbers = not isinstance(self.axes, int)
        if self.uses_length and self.axes is not None:
            raise ValueError(
                f"`scaling` with the rope_type {self.rope_type!r} depends on "
                "the length of a text, which vectors do not have: leave out "
                f"`axes`, or the scaling. Received: axes={self.axes!r}"
            )
        self.supports_masking = True
        # Else Keras would cast float positions to the compute dtype, in which
        # 1001 and 1000 can be the same number.
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        self._check_width(input_shape[-1])

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        def phases() -> Any:
            # (batch, seq, pairs) -> (batch, 1, seq, pairs)
            found = self._phases(x, positions, (known or {}).get("length"))
            return [ops.expand_dims(y, 1) for y in found]

        # Sines take most operators of a block.
        key = x.shape[-1], keras.backend.standardize_dtype(x.dtype)
        return self._turn(x, *self.shared(known, key, phases))

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
        given = Tokens(positions, start_index, segment_ids, mask)
        self._check_call(inputs, given)
        x = ops.cast(inputs, self.compute_dtype)
        padding_matters = positions is not None or self.uses_length
        positions = count_positions(
            positions,
            start_index=start_index,
            segment_ids=segment_ids,
            length=ops.shape(x)[1],
        )
        if padding_matters:
            positions = hide_masked(positions, mask)
        middle = tuple(range(2, len(x.shape) - 1))
        sine, cosine = (
            ops.expand_dims(part, middle) if middle else part
            for part in self._phases(x, positions)
        )
        return ops.cast(self._turn(x, sine, cosine), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def compute_output_spec(self, inputs: Any, **call: Any) -> Any:
        self._check_call(inputs, Tokens(**call))
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def _turn(self, x: Any, sine: Any, cosine: Any) -> Any:
        """Rotates the first features, in the precision of the phases."""
        wide, rest = ops.cast(x, sine.dtype), []
        turning = 2 * sine.shape[-1]
        if turning < x.shape[-1]:
            wide, *rest = ops.split(wide, [turning], axis=-1)
        turned = rotate_pairs(
            wide, sine=sine, cosine=cosine, layout=self.layout
        )
        return ops.concatenate([turned, *rest], axis=-1) if rest else turned

    def _phases(
        self, x: Any, positions: Any, length: Any = None
    ) -> tuple[Any, Any]:
        options: dict[str, Any] = {
            "dim": self._check_width(x.shape[-1]),
            "max_wavelength": self.max_wavelength,
            "scaling": self.scaling,
            "dtype": arithmetic_dtype(x),
        }
        if self.axes is None or check_position_axes([self], positions) is None:
            return scaled_phases(positions, length=length, **options)
        return phases_of_axes(positions, axes=self.axes, **options)

    def _check_width(self, width: Any) -> int:
        """Checks the number of features, and returns how many to rotate."""
        dim = int((width or 0) * self.partial_rotary_factor)
        if not dim or dim % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' rotates features in "
                "pairs: their number must be known, even and above 0. Received:"
                f" width {width} (of one head, in attention), "
                "partial_rotary_factor="
                f"{self.partial_rotary_factor}, which rotates {dim} features"
            )
        if self.axes is not None and not fits(self.axes, dim):
            raise ValueError(
                f"{type(self).__name__} '{self.name}' shares out pairs of "
                f"features among axes={self.axes!r}: "
                + (
                    f"their number must be a multiple of {2 * self.axes}"
                    if isinstance(self.axes, int)
                    else "the sections must sum to half their number"
                )
                + f". Received: {dim} features to rotate"
            )
        blocks = self.axes if isinstance(self.axes, int) else 1
        check_pairs(self.scaling, dim // 2 // blocks)
        return dim

    def _check_call(self, inputs: Any, given: Tokens) -> None:
        shape = tuple(inputs.shape)
        if len(shape) < 3:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' expects inputs of shape "
                f"(batch, seq, ..., dim). Received: inputs of shape {shape}"
            )
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"{type(self).__name__} '{self.name}' expects inputs of a "
                f"float dtype. Received: inputs of dtype {dtype}"
            )
        self._check_width(shape[-1])
        axes = check_position_axes([self], given.positions)
        batch, seq, *_ = shape
        check_position_tensors(batch, seq, *given, axes)
