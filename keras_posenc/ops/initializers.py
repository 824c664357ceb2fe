"""Initializers of several weights, no two of which come out equal."""

import zlib
from typing import Any


def initializer_of(initializer: Any, name: str) -> Any:
    """The initializer of one of the weights that share `initializer`.

    An initializer gives the same numbers whenever it is asked, and so do its
    clones if it has a seed. What comes back has a seed of its own, made of the
    given one and the name, so that one seed gives one layer.

    Args:
        initializer: A Keras initializer, or any callable.
        name: What tells the weight from the others.

    Returns:
        A new initializer. Callables without a config come back as they are,
        and so do those that a `SeedGenerator` moves on.
    """
    if not hasattr(initializer, "get_config"):
        return initializer
    config = initializer.get_config()
    seed = config.get("seed")
    if isinstance(seed, dict):  # a SeedGenerator
        return initializer
    if seed is not None:
        # Of 31 bits, which every backend takes.
        config["seed"] = zlib.crc32(f"{seed}/{name}".encode()) >> 1
    return type(initializer).from_config(config)


def is_seeded(initializer: Any) -> bool:
    """Whether there is a seed that clones of an initializer would share."""
    return (
        hasattr(initializer, "get_config")
        and initializer.get_config().get("seed") is not None
    )
