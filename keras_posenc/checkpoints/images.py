"""What is in front of a model of images."""

from typing import Any

import keras

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import Folder

PREPROCESSOR = "preprocessor_config.json"


def preprocessing(folder: Folder) -> list[Any]:
    """The layer that brings pixels to the range that a model was trained on.

    Nothing where the checkpoint does not say which. Sizes are left alone.
    """
    if not folder.has(PREPROCESSOR):
        return []
    config = Config(folder.mapping(PREPROCESSOR), folder.path / PREPROCESSOR)
    scale, offset = [1.0], [0.0]
    if config.expect("do_rescale", True, False):
        scale = [config.positive("rescale_factor", 1 / 255)]
    if config.expect("do_normalize", True, False):
        mean, deviation = (config.take(f"image_{of}") for of in ("mean", "std"))
        offset = [-m / d for m, d in zip(mean, deviation, strict=True)]
        scale = [scale[0] / d for d in deviation]
    return [keras.layers.Rescaling(scale, offset, name="preprocessing")]
