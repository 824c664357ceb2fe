"""Saves which layers within another one are quantized.

Keras loads weights into layers that are made from their config, and `quantize`
changes the weights of a layer. Keras's configs do not record that for layers
that another layer makes: it is recorded here, and they are quantized again
before their weights are loaded.
"""

from collections.abc import Iterator
from typing import Any

import keras

from keras_posenc.keras_internals import layers_within


class QuantizedWithin:
    """Base of layers, before Keras's own, that make the layers within them."""

    def get_build_config(self) -> dict[str, Any] | None:
        config = super().get_build_config()  # type: ignore[misc]
        policies = quantized_policies(self)
        return {**config, "quantized": policies} if policies else config

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)  # type: ignore[misc]
        quantize_again(self, config.get("quantized", {}))


def quantized_policies(layer: Any) -> dict[str, Any]:
    """Lists the dtype policies of the quantized layers within, by paths."""
    return {
        path: keras.dtype_policies.serialize(each.dtype_policy)
        for path, each in _within(layer)
        if each.quantization_mode
    }


def quantize_again(layer: Any, policies: dict[str, Any]) -> None:
    """Quantizes the layers within that were, by the policies of the config."""
    for path, each in list(_within(layer)):
        if path in policies and not each.quantization_mode:
            each.dtype_policy = keras.dtype_policies.deserialize(policies[path])


def _within(layer: Any) -> Iterator[tuple[str, keras.Layer]]:
    """Yields all built layers within, by paths that begin at the layer itself.

    Keras's paths begin where the layer was built, which changes when loaded.
    """
    tops = layer.layers if isinstance(layer, keras.Model) else [layer]
    for top in tops:
        for each in layers_within(top):
            if each.path and top.path:
                yield top.name + each.path.removeprefix(top.path), each
