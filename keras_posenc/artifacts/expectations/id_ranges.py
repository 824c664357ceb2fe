"""Which integers the inputs of a signature take."""

from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np

from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.signatures.lookups import vocabularies
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within


def embedding_sizes(signature: Signature) -> list[int]:
    """How many ids the model's embeddings take, the largest first."""
    return sorted(
        {
            layer.input_dim
            for layer in layers_within(signature.model)
            if isinstance(layer, keras.layers.Embedding)
        },
        reverse=True,
    )


def can_be_asked(signature: Signature) -> bool:
    """Whether the model says which integers the signature takes, if any."""
    sizes = embedding_sizes(signature)
    known = known_integers(signature, sizes)
    return bool(sizes or not unknown_integers(signature, known))


def known_integers(
    signature: Signature, sizes: Sequence[int]
) -> dict[str, np.ndarray]:
    """Values that integer inputs can take, whatever embeddings there are.

    Those of a vocabulary, and all that 8 bits hold where they can be no ids: an
    image has more axes than a sequence, or there is no embedding.
    """
    return {
        **{
            name: np.arange(
                np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max + 1
            ).astype(spec.dtype)
            for name, spec in signature.specs.items()
            if spec.dtype in ("int8", "uint8")
            and (len(spec.shape) > 3 or not (sizes or "mask" in name))
        },
        **vocabularies(signature),
    }


def unknown_integers(
    signature: Signature, known: Mapping[str, np.ndarray]
) -> list[str]:
    """Integer inputs of which no vocabulary says what ids they take."""
    return [
        name
        for name, spec in signature.specs.items()
        if "int" in spec.dtype and name not in known
    ]


def id_limits(
    signature: Signature,
    sizes: Sequence[int],
    known: Mapping[str, np.ndarray],
    max_length: int,
    takes: Callable[[Inputs], bool],
) -> dict[str, int | None]:
    """The number of ids that each integer input takes; None for any number.

    Of those that are not known otherwise.

    The embedding that an input goes to refuses an id too large for it, however
    deep in the model it is; an input that takes one too large for all of them
    goes to none.
    """
    integers = unknown_integers(signature, known)
    if not sizes or not integers:
        return {}
    shapes = signature.shapes(1, max_length)
    lowest = {
        name: (
            np.full(shape, known[name][0], known[name].dtype)
            if name in known
            else np.full(shape, "", dtype=object)
            if (dtype := signature.specs[name].dtype) == "string"
            else np.zeros(shape, dtype)
        )
        for name, shape in shapes.items()
    }

    def accepts(name: str, highest: int) -> bool:
        values = np.full_like(lowest[name], highest)
        return takes({**lowest, name: values})

    limits: dict[str, int | None] = {}
    *larger, smallest = sizes
    for name in integers:
        most = np.iinfo(signature.specs[name].dtype).max + 1
        limits[name] = min(smallest, most)
        if (
            len(integers) + len(known) > 1
            and sizes[0] < most
            and accepts(name, sizes[0])
        ):
            limits[name] = None
            continue
        for size in larger:
            if size <= most and accepts(name, size - 1):
                limits[name] = size
                break
    return limits
