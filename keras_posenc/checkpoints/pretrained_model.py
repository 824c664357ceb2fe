"""A model from a checkpoint, with its labels and origin."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.named import NamedArguments


class TakesTexts(NamedArguments):
    """Base of models from checkpoints, before Keras's: inputs may be texts."""

    takes_vectors = False
    name: str
    inputs: list[Any]
    origin: Mapping[str, Any]
    _traced_with = -1  # how many weights `predict` was traced with

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        texts = self._texts_of(inputs)
        inputs = inputs if texts is None else ops.convert_to_tensor(texts)
        return super().__call__(inputs, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        texts = self._texts_of(x)
        if texts is None:
            return super().predict(  # type: ignore[misc]
                x, *args, **kwargs
            )
        if not len(texts):  # Keras does not take an empty array
            model: Any = self
            is_sequential = isinstance(self, keras.Sequential)
            return keras.tree.map_structure(
                lambda x: np.zeros([size or 0 for size in x.shape], x.dtype),
                model.outputs[0] if is_sequential else model.output,
            )
        # Keras takes arrays of strings only if they have one axis.
        return super().predict(  # type: ignore[misc]
            ops.convert_to_tensor(texts), *args, **kwargs
        )

    def make_predict_function(self, force: bool = False) -> Any:
        # A traced function lacks weights that were added later, as LoRA's are.
        count = len(self.weights)  # type: ignore[attr-defined]
        force = force or count != self._traced_with
        self._traced_with = count
        return super().make_predict_function(force)  # type: ignore[misc]

    def _texts_of(self, inputs: Any) -> np.ndarray | None:
        """Returns an array of texts; None for other inputs, such as tensors."""
        expected = (getattr(self, "inputs", None) or [None])[0]
        if getattr(expected, "dtype", None) != "string":
            return None
        if hasattr(inputs, "to_numpy"):  # a column of a table
            inputs = inputs.to_numpy()
        kinds = str | bytes | list | tuple | np.ndarray | None
        if not isinstance(inputs, kinds):
            return None
        shape = expected.shape
        what = "texts" if len(shape) == 1 else "pairs of texts"
        try:
            texts = np.array(inputs, "object")
        except ValueError:  # rows of several lengths
            texts = np.array(None)
        if not texts.size:
            return texts.reshape(0, *shape[1:])
        wrong = [x for x in texts.flat if not isinstance(x, str | bytes)]
        if not texts.ndim or texts.shape[1:] != shape[1:] or wrong:
            among = f"{wrong[0]!r:.60} among " if wrong else ""
            raise ValueError(
                f"Model '{self.name}' takes a list or an array of {what}. "
                f"Received: {among}{inputs!r:.60}"
            )
        return texts

    @property
    def encoder(self) -> Any:
        """The `TransformerEncoderModel` or `VisionTransformerModel`."""
        model: Any = self
        return model.get_layer("encoder")

    @property
    def card(self) -> dict[str, Any]:
        """What the model card of an export says of the checkpoint."""
        origin = dict(self.origin)
        files = origin.pop("sha256", {})
        parts = [f"{key} {value}" for key, value in origin.items() if value]
        parts += [
            f"{name} of SHA-256 {digest}" for name, digest in files.items()
        ]
        if not parts:  # made in Python, not loaded
            return {}
        return {"signature": f"From a checkpoint: {', '.join(parts)}."}


@keras.saving.register_keras_serializable(package="keras_posenc")
class PretrainedModel(TakesTexts, keras.Sequential):
    """A `Sequential` that keeps its labels and its origin.

    `load_hugging_face` makes it from a tokenizer, unless the model takes ids,
    or from what normalises images; `encoder`, a `TransformerEncoderModel` or
    `VisionTransformerModel`; and the layers after it.

    A model of texts takes a list or an array of strings, called or by
    `predict`; a model of pairs, a list of pairs.

    Args:
        layers: The layers, as for a `Sequential`.
        labels: The names of the classes, in the order of the scores, or None.
        origin: The checkpoint: its `model_type`, its `revision` where known,
            and the SHA-256 of each file of weights.
        **kwargs: As for `keras.Sequential`: `name`, `trainable`.
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
