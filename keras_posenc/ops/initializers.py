"""Weights by the initializers and regularizers of their layer."""

import zlib
from typing import Any


def add_weight_of(layer: Any, name: str, shape: tuple[Any, ...]) -> Any:
    """Adds a weight by the options of the kind that its name ends with.

    `key_embeddings` has `layer.embeddings_initializer`, with a seed of its own,
    and `layer.embeddings_regularizer`.
    """
    kind = name.rpartition("_")[2]
    initializer = getattr(layer, f"{kind}_initializer")
    if name != kind:
        initializer = initializer_of(initializer, name)
    return layer.add_weight(
        shape=shape,
        initializer=initializer,
        regularizer=getattr(layer, f"{kind}_regularizer"),
        name=name,
    )


def initializer_of(initializer: Any, name: str) -> Any:
    """Returns an initializer for one of the weights that share `initializer`.

    An initializer gives the same numbers each time it is called, and so do
    clones with its seed. The returned one has its own seed, made from the
    given one and the name: the same seed makes the same layer. Callables
    without a config are returned unchanged, and so are those with a
    `SeedGenerator`, which changes by itself.
    """
    if not hasattr(initializer, "get_config"):
        return initializer
    config = initializer.get_config()
    seed = config.get("seed")
    if isinstance(seed, dict):  # a SeedGenerator
        return initializer
    if seed is not None:
        # 31 bits, which every backend accepts.
        config["seed"] = zlib.crc32(f"{seed}/{name}".encode()) >> 1
    return type(initializer).from_config(config)


def is_seeded(initializer: Any) -> bool:
    """Returns whether clones of an initializer would share a seed."""
    return (
        hasattr(initializer, "get_config")
        and initializer.get_config().get("seed") is not None
    )
