"""The layer before a model of images."""

from typing import Any

import keras

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checks import is_number

PREPROCESSOR = "preprocessor_config.json"


def preprocessing(folder: Folder) -> list[Any]:
    """Returns the layer that normalises pixels, in a list.

    The list is empty where the checkpoint does not say how. Sizes stay.
    """
    if not folder.has(PREPROCESSOR):
        return []
    config = Config(folder.mapping(PREPROCESSOR), folder.path / PREPROCESSOR)
    scale, offset = [1.0], [0.0]
    if config.expect("do_rescale", True, False):
        scale = [config.positive("rescale_factor", 1 / 255)]
    if config.expect("do_normalize", True, False):
        mean, deviation = (
            config.take(f"image_{of}", REQUIRED, list) for of in ("mean", "std")
        )
        for each in (*mean, *deviation):
            if not is_number(each):
                raise config.wrong("image_mean", "it must be of numbers")
        if len(mean) != len(deviation) or 0 in deviation:
            raise config.wrong(
                "image_std", "it must have a number above 0 for each channel"
            )
        offset = [-m / d for m, d in zip(mean, deviation, strict=True)]
        scale = [scale[0] / d for d in deviation]
    config.expect("do_flip_channel_order", False)
    return [keras.layers.Rescaling(scale, offset, name="preprocessing")]
