"""The tokens after a prompt, which alone are pooled."""

from typing import Any

import keras

from keras_posenc.ops.masks import resolve_mask
from keras_posenc.ops.named import NamedArguments, config_of


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="AfterPrompt"
)
class AfterPrompt(NamedArguments, keras.Layer):
    """`(batch, seq, dim)` without its first `count` tokens, nor their mask.

    For texts, whose padding is at the end.
    """

    def __init__(self, count: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = count
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs[:, self.count :]

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        mask = resolve_mask(previous_mask, inputs)
        return None if mask is None else mask[:, self.count :]

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, seq, dim = input_shape
        return (batch, None if seq is None else max(seq - self.count, 0), dim)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
