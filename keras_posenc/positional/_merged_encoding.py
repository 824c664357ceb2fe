"""The bases of encodings of inputs: merging both, and positions of tokens."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_input_shape,
    check_inputs,
    check_integers,
    check_position_tensors,
)
from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.ops.positions import counted_positions


class MergedEncoding(ConfiguredLayer, keras.Layer):
    """Base of the layers that merge an encoding with their inputs.

    A subclass calls `keep` in its constructor, names the axes of its inputs in
    `axes`, computes the encoding in `call` and passes it to `merge`. It may
    override `encoding_width`, the width of the encoding, and `input_factor`,
    which multiplies the inputs.
    """

    axes: tuple[str, ...] = ("batch", "seq", "dim")
    encoding_dim: int | None = None

    def keep(self, given: dict[str, Any]) -> None:
        """Checks the arguments of the constructor, and keeps them."""
        keep_arguments(self, given)
        if self.encoding_dim is not None and self.merge_mode != "concat":
            raise ValueError(
                "`encoding_dim` needs merge_mode='concat'. Received: encoding_"
                f"dim={self.encoding_dim!r}, merge_mode={self.merge_mode!r}"
            )
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )
        self.supports_masking = True
        # Else Keras would cast float positions to the compute dtype, in which
        # 1001 and 1000 can be the same number.
        self.autocast = False

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        # Else Keras autocasts weights when a layer is called outside a model,
        # despite `autocast`; frequencies would lose precision.
        return super().add_weight(*args, **{"autocast": False, **kwargs})

    def build(self, input_shape: Any) -> None:
        input_shape = tuple(input_shape)
        check_input_shape(self, input_shape, self.axes)
        self.build_encoding(input_shape)
        self.dropout_layer.build(self.compute_output_shape(input_shape))

    def build_encoding(self, input_shape: tuple[Any, ...]) -> None:
        """Makes the weights, if the layer has any."""

    def encoding_width(self, dim: int) -> int:
        """Returns the width of the encoding for inputs of width `dim`."""
        return dim if self.encoding_dim is None else self.encoding_dim

    def input_factor(self, dim: int) -> float:
        """Returns the factor that multiplies inputs of width `dim`."""
        return 1.0

    def exact_dtype(self) -> str:
        """Returns the dtype of positions and of the arithmetic with them."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def check_inputs(self, inputs: Any) -> None:
        check_inputs(self, inputs, self.axes)

    def merge(self, inputs: Any, encoding: Any, training: bool | None) -> Any:
        """Merges inputs with their encoding, in the compute dtype.

        The encoding has the inputs' shape except for its width; the batch may
        be 1, or missing.
        """
        inputs = ops.cast(inputs, self.compute_dtype)
        encoding = ops.cast(encoding, self.compute_dtype)
        if len(encoding.shape) < len(inputs.shape):
            encoding = ops.expand_dims(encoding, 0)
        factor = self.input_factor(inputs.shape[-1])
        if factor != 1:
            inputs = inputs * factor
        if self.merge_mode == "add":
            outputs = inputs + encoding
        else:
            outputs = spread(encoding, ops.shape(inputs)[:-1])
            if self.merge_mode == "concat":
                outputs = ops.concatenate([inputs, outputs], axis=-1)
        if self.dropout:
            outputs = self.dropout_layer(outputs, training=training)
        return outputs

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        *outer, dim = input_shape
        width = self.encoding_width(dim)
        by_mode = {"add": dim, "concat": dim + width, None: width}
        return (*outer, by_mode[self.merge_mode])


class Tokens(NamedTuple):
    """Where the tokens of a call are, by its arguments."""

    positions: Any = None
    start_index: Any = 0
    segment_ids: Any = None
    mask: Any = None


class TokenEncoding(MergedEncoding):
    """Base of the encodings of `(batch, seq, dim)` by position.

    Each token is merged with its own encoding only. So values of padding stay
    in padding, and reach no gradient of a weight.

    A subclass defines `encode`, which gets what `place` returns.
    """

    # (inputs, tokens) -> the encoding, (seq, width) or (batch, seq, width).
    encode: Callable[[Any, Tokens], Any]
    # Whether positions may be floats, not only integers.
    REAL_POSITIONS: ClassVar[bool] = True

    def call(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        given = Tokens(positions, start_index, segment_ids, mask)
        encoding = self.encode(inputs, self.place(inputs, given))
        return self.merge(inputs, encoding, training)

    def compute_output_spec(
        self, inputs: Any, *, training: bool | None = None, **call: Any
    ) -> Any:
        self.check_call(inputs, Tokens(**call))
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def place(self, inputs: Any, given: Tokens) -> Tokens:
        """Checks a call; returns its tokens, with the mask resolved.

        Positions are None where all are counted from `start_index`.
        """
        mask = resolve_mask(given.mask, inputs)
        given = given._replace(mask=mask)
        self.check_call(inputs, given)
        if given.positions is not None:
            positions = hide_masked(given.positions, mask)
        else:
            positions = counted_positions(
                given.start_index,
                segment_ids=given.segment_ids,
                mask=mask if self.skip_masked else None,
            )
        return given._replace(positions=positions)

    def check_call(self, inputs: Any, given: Tokens) -> None:
        """Raises `ValueError` for call arguments that exclude each other."""
        self.check_inputs(inputs)
        batch, seq, _ = inputs.shape
        check_position_tensors(batch, seq, *given)
        if given.segment_ids is not None and self.skip_masked:
            raise ValueError(
                "`segment_ids` cannot be used with skip_masked=True, which "
                "counts positions in another way"
            )
        if given.positions is None:
            return
        if not self.REAL_POSITIONS:
            check_integers("positions", given.positions)
        if self.skip_masked:
            raise ValueError(
                "`positions` gives the position of every token, and cannot be "
                "used with skip_masked=True"
            )
