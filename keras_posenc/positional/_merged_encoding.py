"""The base of all encodings of inputs, which merges both."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_choice, check_positive_int, check_rate
from keras_posenc.ops.arguments import check_input_shape, check_inputs
from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.named import NamedArguments, config_of

MERGE_MODES = ("add", "concat", None)


class MergedEncoding(NamedArguments, keras.Layer):
    """Base of the layers that merge an encoding with their inputs.

    A subclass names the axes of its inputs in `axes`, computes the encoding in
    `call` and passes it to `merge`. It may override `encoding_width`, the width
    of the encoding, and `input_factor`, which multiplies the inputs.

    Args:
        merge_mode: `"add"` to the inputs, `"concat"` after them, or None for
            the encoding alone.
        dropout: Rate of the dropout after the merge, in [0, 1).
        **kwargs: As for `keras.Layer`.
    """

    axes: tuple[str, ...] = ("batch", "seq", "dim")
    # Width of a concatenated encoding, if not the inputs' own: set by layers
    # with such an argument, with `check_encoding_dim`.
    encoding_dim: int | None = None

    def __init__(
        self,
        *,
        merge_mode: str | None = "add",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.merge_mode = check_choice("merge_mode", merge_mode, MERGE_MODES)
        self.dropout = check_rate("dropout", dropout)
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
        self.built = True

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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}


def check_encoding_dim(value: Any, merge_mode: str | None) -> int | None:
    """Returns a positive integer or None, as which `"add"` takes it only."""
    if value is None:
        return None
    if merge_mode != "concat":
        raise ValueError(
            "`encoding_dim` needs merge_mode='concat'. Received: "
            f"encoding_dim={value!r}, merge_mode={merge_mode!r}"
        )
    return check_positive_int("encoding_dim", value)
