"""Texts to ids and back, as layers of models with two tokenizers."""

from typing import Any

import keras

from keras_posenc.ops.named import NamedArguments


class Tokenizing(keras.layers.Layer):
    """Calls a tokenizer under another name: a model's layers need theirs."""

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


@keras.saving.register_keras_serializable(package="keras_posenc")
class Detokenizing(NamedArguments, keras.layers.Layer):
    """Turns ids `(..., seq)` into strings, up to the first of `end_ids`."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        end_ids: Any = (),
        pad_id: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.end_ids = tuple(end_ids)
        self.pad_id = pad_id
        self.supports_jit = False

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> Any:
        for each in self.end_ids:
            inputs = keras.ops.where(inputs == each, self.pad_id, inputs)
        return self.tokenizer.detokenize(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(inputs.shape[:-1], "string")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "tokenizer": keras.saving.serialize_keras_object(self.tokenizer),
            "end_ids": list(self.end_ids),
            "pad_id": self.pad_id,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Detokenizing":
        config = dict(config)
        tokenizer = config.pop("tokenizer")
        return cls(keras.saving.deserialize_keras_object(tokenizer), **config)
