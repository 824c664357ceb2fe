"""The first numbers of vectors, as Matryoshka models are trained for."""

from typing import Any

import keras

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.named import NamedArguments, config_of


@keras.saving.register_keras_serializable(package="keras_posenc")
class Truncation(NamedArguments, keras.Layer):
    """Keeps the first `dim` numbers of vectors.

    A Matryoshka model is trained so that these are a good, shorter vector. Cut
    vectors are no longer of length 1: `L2Normalization` may follow.

    Args:
        dim: How many numbers are kept.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Tensor of shape `(..., width)`.

    Returns:
        `(..., dim)`. The mask passes through.

    Raises:
        ValueError: `dim` is not a positive integer, or is above the width.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> print(np.array(kp.Truncation(2)(np.array([[3.0, 4.0, 5.0]]))))
    [[3. 4.]]

    References:
        - [Kusupati et al., 2022](https://arxiv.org/abs/2205.13147)
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = check_positive_int("dim", dim)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        self.compute_output_shape(inputs.shape)
        return inputs[..., : self.dim]

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        *axes, width = input_shape
        if width is None or width < self.dim:
            raise ValueError(
                f"Truncation '{self.name}' keeps {self.dim} numbers, and needs "
                "inputs of a known width of at least as many. Received: inputs "
                f"of shape {tuple(input_shape)}"
            )
        return (*axes, self.dim)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
