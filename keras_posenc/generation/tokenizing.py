"""A tokenizer under another name, for models with two of them."""

from typing import Any

import keras


class Tokenizing(keras.layers.Layer):
    """Calls a tokenizer, under a name of its own.

    Two tokenizers may have the same name, but two layers of one model must
    not. It is used in graphs that are built when needed, and in no file.

    Args:
        tokenizer: The layer from strings to ids.
        **kwargs: Keras's `name` and the like.

    Call arguments:
        inputs: Strings `(batch,)`.

    Returns:
        Integers `(batch, seq)`.
    """

    def __init__(self, tokenizer: keras.Layer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.supports_jit = False

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self.tokenizer(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        return self.tokenizer.compute_output_spec(inputs)
