"""A model from a checkpoint, which knows where it is from."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras


@keras.saving.register_keras_serializable(package="keras_posenc")
class PretrainedModel(keras.Sequential):
    """A `Sequential` that keeps its labels and its origin.

    `load_hugging_face` makes it: of a tokenizer, unless the model begins with
    ids, or of what normalises images; `encoder`, a `TransformerEncoderModel`
    or `VisionTransformerModel`; and what is behind it.

    Args:
        layers: Those of a `Sequential`.
        labels: The names of the classes, in the order of the scores, or None.
        origin: What the checkpoint was: its `model_type`, its `revision` where
            that is known, and the SHA-256 of each file of weights.
        **kwargs: Those of `keras.Sequential`: `name`, `trainable`.
    """

    def __init__(
        self,
        layers: Sequence[Any] | None = None,
        *,
        labels: Sequence[str] | None = None,
        origin: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(layers, **kwargs)
        self.labels = None if labels is None else tuple(labels)
        self.origin = dict(origin or {})

    @property
    def encoder(self) -> Any:
        """The `TransformerEncoderModel` or `VisionTransformerModel`."""
        return self.get_layer("encoder")

    @property
    def card(self) -> dict[str, Any]:
        """What the page beside an export says of it."""
        origin = dict(self.origin)
        files = origin.pop("sha256", {})
        told = [f"{key} {value}" for key, value in origin.items() if value]
        told += [
            f"{name} of SHA-256 {digest}" for name, digest in files.items()
        ]
        return {"signature": f"From a checkpoint: {', '.join(told)}."}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "labels": None if self.labels is None else list(self.labels),
            "origin": self.origin,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        config = dict(config)
        labels = config.pop("labels", None)
        origin = config.pop("origin", None)
        model = super().from_config(config, custom_objects)
        model.labels = None if labels is None else tuple(labels)
        model.origin = dict(origin or {})
        return model
