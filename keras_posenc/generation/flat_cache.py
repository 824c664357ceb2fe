"""A cache as tensors by name, and back."""

from collections.abc import Iterator, Mapping
from typing import Any

from keras import ops

#: Names of tensors: by the part of a cache that lists layers, and by the
#: tensor of a layer.
Names = Mapping[str, Mapping[str, str]]

_TENSORS = ("key", "value", "steps")
OF_APPS: Names = {
    "blocks": {name: f"{name}_{{}}" for name in _TENSORS},
    "memory": {name: f"memory_{name}_{{}}" for name in _TENSORS},
}
OF_ENGINES: Names = {
    "blocks": {"key": "kv_cache_k_{}", "value": "kv_cache_v_{}"}
}


def flat(cache: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Returns the tensors of a cache's layers by name, as float32."""
    return {
        names[part][name].format(i): ops.cast(value, "float32")
        for part in names
        for i, layer in enumerate(cache.get(part, ()))
        for name, value in layer.items()
    }


def nested(
    found: Mapping[str, Any], names: Names, dtype: str
) -> dict[str, Any]:
    """Returns the layers of a cache of such tensors, in this dtype."""
    cache = {part: [*_layers(found, names[part], dtype)] for part in names}
    return {part: layers for part, layers in cache.items() if layers}


def _layers(
    found: Mapping[str, Any], names: Mapping[str, str], dtype: str
) -> Iterator[dict[str, Any]]:
    i = 0
    while names["key"].format(i) in found:
        yield {
            # Steps are never in a low dtype.
            name: value if name == "steps" else ops.cast(value, dtype)
            for name in names
            if (value := found.get(names[name].format(i))) is not None
        }
        i += 1
