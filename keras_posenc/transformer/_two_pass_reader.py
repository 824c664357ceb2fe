"""A Transformer that reads one text twice, as BART does to classify it."""

import types
from typing import Any

import keras
from keras import ops

from keras_posenc.transformer._embeddings import NO_ID, is_token
from keras_posenc.transformer.transformer import Transformer


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="TwoPassReader"
)
class TwoPassReader(keras.Layer):
    """Encodes a text, and decodes the same text from it.

    The target is the source, one token later: its last token, which has seen
    all others, is the only one whose embedding knows the whole text.

    Args:
        vocabulary_size: As for `Transformer`.
        start_id: The first id of the target.
        name: Name of the layer.
        trainable: Whether its weights train.
        **options: As for `Transformer`, whose `target_pad_id` must be -1 and
            whose `embeddings` must be `"shared"`: logits are not computed.

    Call arguments:
        inputs: Integers `(batch, seq)`.

    Returns:
        `(batch, seq, d_model)`, with the mask of the tokens.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        start_id: int,
        name: str | None = None,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            name=name, trainable=trainable, dtype=options.get("dtype")
        )
        self.supports_masking = True
        self.start_id = start_id
        self.transformer = Transformer(
            vocabulary_size, **options, name="transformer"
        )
        for each in ("vocabulary_size", "pad_id", "d_model", "input_position"):
            setattr(self, each, getattr(self.transformer, each))
        # Not as an attribute, whose layers Keras would save twice.
        hidden = keras.Model(
            self.transformer.input, self.transformer.get_layer("decoder").output
        )
        hidden.supports_masking = True  # else Keras warns of ids with a mask
        self._within = types.SimpleNamespace(hidden=hidden)

    def build(self, input_shape: Any) -> None:
        self.built = True  # the Transformer is

    def call(self, inputs: Any, *, training: Any = None) -> Any:
        ids = ops.cast(inputs, "int32")
        start = ops.full_like(ids[:, :1], self.start_id)
        target = ops.concatenate([start, ids[:, :-1]], axis=1)
        # Padding stays padding, so that it is skipped.
        target = ops.where(
            is_token(ids, self.pad_id), target, ops.full_like(target, NO_ID)
        )
        return self._within.hidden(
            {"source": ids, "target": target}, training=training
        )

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return is_token(inputs, self.pad_id)

    def compute_output_spec(
        self, inputs: Any, *, training: Any = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor(
            (*inputs.shape, self.d_model), self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **self.transformer.get_config(),
            "name": self.name,
            "trainable": self.trainable,
            "start_id": self.start_id,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TwoPassReader":
        config = dict(config)
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)
