"""A tokenizer under another name, for models with two of them."""

from typing import Any

import keras


class Tokenizing(keras.layers.Layer):
    """Calls a tokenizer, from strings `(batch,)` to ids, under its own name.

    Two tokenizers may have the same name, but two layers of one model must
    not. It is used in graphs that are built when needed, and in no file.
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
