"""Writes the weights of a model as the tensors of a checkpoint."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.family import Family, Parts, sizes_of


class WrittenParts(Parts):
    """The reverse of `Parts`: each method writes the tensors that it reads.

    Args:
        family: Has the names of the parts.
        prefix: What the names of the encoder's tensors start with.

    Attributes:
        tensors: All tensors, by name.

    Raises:
        ValueError: From every method: a layer is quantized, or has an offset
            that the family has no tensor for.
    """

    def __init__(self, family: Family, prefix: str) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        super().__init__(family, self.tensors, prefix)

    def first_type(self, width: int, second: Any) -> Any:
        """Writes token types, with zeros for type 0; returns 0.

        The positions (or ids) of a model include its type 0 already.
        """
        if "token_type" in self._family.names:
            name = f"{self.name('token_type')}.weight"
            rows = np.zeros((self.types or 1, width), "float32")
            if second is not None:
                rows[1] = _array(second.embedding)
            self.tensors[name] = rows
        return 0.0

    def table(self, layer: Any, part: str, **how: Any) -> None:
        """Writes a table; families that scale theirs are not supported."""
        self._put(layer, part, f"{self.name(part)}.weight", layer.embeddings)

    def dense(
        self,
        layer: Any,
        parts: Sequence[str],
        number: int | None = None,
        heads: tuple[int, int] | None = None,
        factors: Any = None,
    ) -> None:
        """Writes a projection; families that scale theirs are not supported."""
        ends = np.cumsum(sizes_of(layer, len(parts), heads))[:-1]
        weights = {"weight": np.split(_array(layer.kernel).T, ends)}
        if layer.bias is not None:
            weights["bias"] = np.split(_array(layer.bias), ends)
        for kind, values in weights.items():
            for part, value in zip(parts, values, strict=True):
                name = f"{self.name(part, number)}.{kind}"
                self._put(layer, part, name, value)

    def halves(self, layers: Sequence[Any], part: str, number: int) -> None:
        """Writes two projections as one tensor."""
        name = self.name(part, number)
        weights = {"weight": [_array(layer.kernel).T for layer in layers]}
        if layers[0].bias is not None:
            weights["bias"] = [_array(layer.bias) for layer in layers]
        for kind, values in weights.items():
            both = np.concatenate(values)
            for layer in layers:
                self._put(layer, part, f"{name}.{kind}", both)

    def norm(
        self, layer: Any, part: str, number: int | None = None, **how: Any
    ) -> None:
        """Writes a norm with an offset."""
        name = self.name(part, number)
        self._put(layer, part, f"{name}.weight", layer.gamma)
        self._put(layer, part, f"{name}.bias", layer.beta)

    def norm_called(self, layer: Any, name: str) -> None:
        """Writes a norm after the encoder, under this name."""
        self._put(layer, name, f"{name}.weight", layer.gamma)
        self._put(layer, name, f"{name}.bias", layer.beta)

    def projection(self, layer: keras.layers.Dense, name: str) -> None:
        """Writes a projection after the encoder, under this name."""
        self._put(layer, name, f"{name}.weight", _array(layer.kernel).T)
        if layer.bias is not None:
            self._put(layer, name, f"{name}.bias", layer.bias)

    def _put(self, layer: Any, part: str, name: str, values: Any) -> None:
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(
                f"Layer '{layer.path}' is quantized ({mode}), and a checkpoint "
                "holds floats: save the model that it was quantized from"
            )
        values = _array(values)
        if name.endswith(".bias") and part in self._family.without_bias:
            if np.any(values):
                raise ValueError(
                    f"The offsets of layer '{layer.path}' must be 0, for "
                    f"there is no tensor '{name}'. Received: up to "
                    f"{np.abs(values).max():g}"
                )
            return
        # safetensors writes arrays in memory order: transposed ones wrongly.
        self.tensors[name] = np.ascontiguousarray(values)


def _array(values: Any) -> np.ndarray:
    """Returns an array of floats of at least 32 bits."""
    array = keras.ops.convert_to_numpy(values)
    return array if array.dtype == "float64" else array.astype("float32")
