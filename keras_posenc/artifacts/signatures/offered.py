"""What a model offers besides its own answer."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_posenc.artifacts.signatures.signature import DEFAULT


def offered(model: keras.Model) -> dict[str, keras.Model]:
    """The signatures that a model says it has, by name.

    A model of several uses, such as one that makes texts of texts and of ids,
    has a method `offered_signatures` that returns a dict of models by name, one
    of them `serving_default`. Other models have none.

    Raises:
        ValueError: What it returns is no such dict.
    """
    offer = getattr(model, "offered_signatures", None)
    if offer is None:
        return {}
    found: Any = offer()
    if not isinstance(found, Mapping) or DEFAULT not in found:
        raise ValueError(
            f"`offered_signatures` of model '{model.name}' must return a dict "
            f"of models by name, with '{DEFAULT}'. Received: {found!r}"
        )
    return dict(found)


def offered_in_numbers(model: keras.Model) -> dict[str, keras.Model]:
    """The first of these without strings, for runtimes that have none."""
    for each in offered(model).values():
        tensors = [*each.inputs, *keras.tree.flatten(each.output)]
        if all(tensor.dtype != "string" for tensor in tensors):
            return {DEFAULT: each}
    return {}
