"""A search cut into steps from text to text, for servers that stream."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.detokenizing import Detokenizing
from keras_posenc.generation.search import Search
from keras_posenc.generation.token_steps import step_models
from keras_posenc.ops.named import NamedArguments


class Splitting(NamedArguments, keras.layers.Layer):
    """Turns texts into ids, without a start or an end symbol.

    Args:
        tokenizer: A tokenizer of this package.
        **kwargs: Keras's `name` and the like.

    Call arguments:
        inputs: Strings `(batch,)`.

    Returns:
        int32 `(batch, seq)`, padded at the end.
    """

    def __init__(self, tokenizer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.supports_jit = False

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> Any:
        pieces = self.tokenizer.split(inputs)
        return ops.cast(pieces.to_tensor(self.tokenizer.pad_id), "int32")

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor((inputs.shape[0], None), "int32")


class Ending(keras.layers.Layer):
    """Returns whether there is an end symbol among ids, bool `(batch,)`.

    Args:
        end_ids: End symbols.
        **kwargs: Keras's `name` and the like.
    """

    def __init__(self, end_ids: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.end_ids = tuple(end_ids)

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> Any:
        found = ops.zeros_like(inputs, "bool")
        for each in self.end_ids:
            found = ops.logical_or(found, inputs == each)
        return ops.any(found, axis=-1)

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(inputs.shape[:-1], "bool")


def text_step_models(
    search: Search, name: str, tokenizer: Any
) -> dict[str, keras.Model]:
    """Returns `prompt`, `decode` and `detokenize`, Functional models."""
    steps = step_models(search, name)
    text = keras.Input((), dtype="string", name="text")
    state = steps["encode"](Splitting(tokenizer, name="split")(text))
    prompt = keras.Model(text, state, name=f"{name}_prompt")
    prompt.supports_masking = True
    prompt.output_scales = steps["encode"].output_scales
    prompt.card = {
        "signature": "A text that is to be continued, as it is read before the "
        "first step. No start symbol is added.",
        "outputs": dict.fromkeys(state, "for `decode`"),
    }
    steps["decode"].card = {
        "signature": "One step: from the token that was chosen last, and the "
        "outputs of `prompt` or of the step before, to the logits of the next "
        f"token. There is room for {search.max_length} tokens; after them, "
        "logits are NaN.",
        "inputs": {
            **dict.fromkeys(state, "as it was returned last"),
            "token": "at first as `prompt` returns it, then the one chosen",
        },
        "outputs": {
            **dict.fromkeys(state, "for the next step"),
            "logits": "of the next token",
        },
    }
    ids = keras.Input((None,), dtype="int32", name="ids")
    back = Detokenizing(
        tokenizer,
        end_ids=search.end_ids,
        pad_id=search.pad_id,
        name="detokenize",
    )
    found = {"text": back(ids), "ended": Ending(search.end_ids)(ids)}
    detokenize = keras.Model(ids, found, name=f"{name}_detokenize")
    known = np.arange(tokenizer.vocabulary_size(), dtype="int32")
    detokenize.card = {
        "signature": "The text of generated tokens, up to an end id.",
        "outputs": {"ended": "whether there is an end id"},
    }
    detokenize.known_values = {"ids": known}
    return {
        "prompt": prompt,
        "decode": steps["decode"],
        "detokenize": detokenize,
    }
