"""Initializers for several weights of a layer, with different numbers."""

import zlib
from typing import Any


def initializer_of(initializer: Any, name: str) -> Any:
    """Returns an initializer for one of the weights that share `initializer`.

    An initializer gives the same numbers each time it is called, and so do
    clones with its seed. The returned one has its own seed, made from the
    given one and the name: the same seed makes the same layer.

    Args:
        initializer: A Keras initializer, or any callable.
        name: A name that differs from that of the other weights.

    Returns:
        A new initializer. Callables without a config are returned unchanged,
        and so are those with a `SeedGenerator`, which changes by itself.
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
