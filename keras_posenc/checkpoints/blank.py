"""Models without random weights, which are slow to draw, to be filled."""

from typing import Any

import keras

from keras_posenc.checkpoints.family import Family
from keras_posenc.keras_internals import layers_within

# Those of models, by default.
_INITIALIZERS = {
    "kernel_initializer": "glorot_uniform",
    "embeddings_initializer": "uniform",
}


class _Awaited(keras.initializers.Zeros):
    """Zeros, until the checkpoint's numbers are assigned."""


def blank(family: Family, **options: Any) -> Any:
    """Returns a family's model without random weights.

    Its layers get their usual initializers back, for models that are made from
    their configs.
    """
    awaited = dict.fromkeys(_INITIALIZERS, _Awaited())
    model = family.model(**options, **awaited)
    for layer in layers_within(model):
        for key, usual in _INITIALIZERS.items():
            if isinstance(getattr(layer, key, None), _Awaited):
                setattr(layer, key, keras.initializers.get(usual))
    return model
