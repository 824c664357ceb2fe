"""Reads an encoder-decoder with its logits from a folder."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checkpoints.blank import blank_model
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.model_types import family_of
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.tokenizers import CONFIG
from keras_posenc.transformer.transformer import Transformer


def translator_of(
    folder: Folder,
    *,
    ignore_keys: Sequence[str] = (),
    dtype: Any = None,
    name: str | None = None,
) -> tuple[Transformer, Tensors]:
    """Returns the `Transformer` of a checkpoint, and the tensors it was in.

    Args:
        folder: The checkpoint, of a family of encoder-decoders.
        ignore_keys: As in `load_hugging_face`.
        dtype: As in `load_hugging_face`.
        name: Name of the model.

    Raises:
        ValueError: As in `load_hugging_face`.
    """
    values, path = folder.mapping(CONFIG), folder.path / CONFIG
    _, family = family_of(values, folder)
    tensors = Tensors(folder)
    config = Config(values, path, 4 * len(tensors.names))
    config.refuse_features()
    options = family.options(config)
    config.finish(ignore_keys)
    family.check(options, tensors, path)
    options = family.settle(options, tensors)
    model = blank_model(family, **options, dtype=dtype, name=name)
    family.fill(model, tensors)
    tensors.finish(family.unused)
    return model, tensors
