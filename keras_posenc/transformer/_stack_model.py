"""The base of the models of a stack of blocks: call and config."""

from typing import Any, Self

import keras

from keras_posenc.ops.named import NamedArguments, config_of
from keras_posenc.transformer._options import (
    StackOptions,
    names_in,
)
from keras_posenc.transformer._quantized import (
    quantize_again,
    quantized_policies,
)
from keras_posenc.transformer._stack import Stack


class StackModel(NamedArguments, keras.Model):
    """Base of the Functional models that are made from their config.

    A concrete class is completed by `with_options`, and keeps each constructor
    argument as an attribute: those of its stack of blocks by `keep_options_of`.
    """

    def call(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        # A Functional model would accept, and ignore, any other argument.
        return super().call(inputs, training=training, mask=mask)

    def keep_options_of(self, stack: Stack, embedding: keras.Layer) -> None:
        """Keeps the options of a stack and an embedding as attributes."""
        for name in ("num_layers", *names_in(StackOptions)):
            setattr(self, name, getattr(stack, name))
        self.embeddings_initializer = embedding.embeddings_initializer
        self.embeddings_regularizer = embedding.embeddings_regularizer
        # Decoding calls the layers within without calling the model.
        self.take_layers_within()

    def get_config(self) -> dict[str, Any]:
        stack = self.encoder if hasattr(self, "encoder") else self.decoder
        quantized = quantized_policies(self)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": stack.get_config()["dtype"],
            **config_of(self),
            **({"quantized": quantized} if quantized else {}),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        config = dict(config)
        quantized = config.pop("quantized", {})
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        with keras.saving.custom_object_scope(custom_objects or {}):
            model = cls(**config)
        quantize_again(model, quantized)
        return model
