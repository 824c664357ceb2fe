"""The base of the models of a stack of blocks: call and config."""

from collections.abc import Mapping
from typing import Any, Self

import keras

from keras_posenc.ops.named import NamedArguments, config_of
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    quantize_again,
    quantized_policies,
)
from keras_posenc.transformer._embeddings import TokenEmbedding
from keras_posenc.transformer._options import StackOptions, names_in
from keras_posenc.transformer._sublayers import make_norm


class StackModel(NamedArguments, keras.Model):
    """Base of the Functional models that are made from their config.

    A concrete class is completed by `with_options`, and keeps each constructor
    argument as an attribute, by `connect`.
    """

    def connect(
        self,
        inputs: Any,
        outputs: Any,
        stack: AttentionLayer,
        options: Mapping[str, Any],
        **kept: Any,
    ) -> None:
        """Makes the Functional model, and keeps its arguments as attributes.

        Args:
            inputs: Its symbolic inputs.
            outputs: Its symbolic outputs.
            stack: The stack of blocks that has its options.
            options: The other options of the model.
            **kept: Its own arguments, checked, and its layers.
        """
        super().__init__(
            inputs=inputs,
            outputs=outputs,
            name=options["name"],
            trainable=options["trainable"],
        )
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        names = ("num_layers", *names_in(StackOptions))
        kept = {**{name: getattr(stack, name) for name in names}, **kept}
        for name, value in kept.items():
            setattr(self, name, value)
        for name in ("embeddings_initializer", "embeddings_regularizer"):
            if name not in kept:
                setattr(self, name, getattr(kept["embedding"], name))
        # Decoding calls the layers within without calling the model.
        self.take_layers_within()

    def call(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        # A Functional model would accept, and ignore, any other argument.
        return super().call(inputs, training=training, mask=mask)

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


def make_table(
    size: int,
    width: int,
    options: Mapping[str, Any],
    name: str = "embedding",
    **own: Any,
) -> TokenEmbedding:
    """Makes a table of embeddings with the options of its model."""
    return TokenEmbedding(
        size,
        width,
        embeddings_initializer=options["embeddings_initializer"],
        embeddings_regularizer=options["embeddings_regularizer"],
        dtype=options["dtype"],
        name=name,
        **own,
    )


def norm_of(stack: AttentionLayer, name: str) -> keras.Layer:
    """Makes a norm of embeddings, of the kind of a stack's."""
    return make_norm(stack.norm, stack.norm_epsilon, stack.dtype_policy, name)


def dropped(stack: AttentionLayer, x: Any, name: str) -> Any:
    """Applies the dropout before a stack, at its rate."""
    return keras.layers.Dropout(
        stack.dropout, dtype=stack.dtype_policy, name=name
    )(x)
