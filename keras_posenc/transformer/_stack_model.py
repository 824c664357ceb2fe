"""What the models of a stack of blocks have in common: call and config."""

from typing import Any, Self

import keras

from keras_posenc.ops.named import NamedArguments
from keras_posenc.transformer._quantized import (
    quantize_again,
    quantized_policies,
)
from keras_posenc.transformer._sublayers import PROJECTION_OPTIONS

# What a stack of blocks is told, and keeps under the same name.
STACK_OPTIONS = (
    "num_layers",
    "num_heads",
    "intermediate_dim",
    "dropout",
    "attention_position",
    "activation",
    "normalize_first",
    "norm_epsilon",
    "norm",
    "use_bias",
    "use_gate",
    "num_key_value_heads",
    *PROJECTION_OPTIONS,
)


class StackModel(NamedArguments, keras.Model):
    """Base of the Functional models that are made anew from their config.

    A subclass sets `d_model`, `embeddings_initializer` and
    `embeddings_regularizer`, and takes the rest from its stack of blocks.
    """

    d_model: int
    embeddings_initializer: Any
    embeddings_regularizer: Any

    def call(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        # A Functional model takes any other argument too, and ignores it.
        return super().call(inputs, training=training, mask=mask)

    def keep_options(self, stack: Any) -> None:
        """Keeps the options of a stack as attributes of the model."""
        for name in STACK_OPTIONS:
            setattr(self, name, getattr(stack, name))
        # Now that all are there: decoding calls them without a call of this.
        self.take_layers_within()

    def config_with(self, stack: Any, **others: Any) -> dict[str, Any]:
        """The config of a model: its own entries, and those of its stack.

        Args:
            stack: The layer whose options the model was told.
            **others: Further entries, which go before all of these.
        """
        of_stack = stack.get_config()
        quantized = quantized_policies(self)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "d_model": self.d_model,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
            "embeddings_regularizer": keras.regularizers.serialize(
                self.embeddings_regularizer
            ),
            **{name: of_stack[name] for name in (*STACK_OPTIONS, "dtype")},
            **others,
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
