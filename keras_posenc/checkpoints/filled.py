"""Models that generate, filled with the tensors of a checkpoint."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.checkpoints.blank import blank
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import Family
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.tokenizers import CONFIG


def filled(
    family: Family,
    kind: str,
    folder: Folder,
    values: Mapping[str, Any],
    *,
    ignore_keys: Sequence[str],
    dtype: Any,
    name: str,
    **others: Any,
) -> tuple[Any, dict[str, Any]]:
    """Returns the model of a checkpoint, and where it is from.

    Args:
        family: Of the checkpoint.
        kind: Its `model_type`.
        folder: The checkpoint.
        values: Its config.json.
        ignore_keys: As for `load_hugging_face`.
        dtype: As for `load_hugging_face`.
        name: Name of the model.
        **others: Options of the model, instead of the checkpoint's.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: The library `safetensors` is missing.
        ValueError: A key or a tensor is not supported; or a file is damaged.

    Warns:
        UserWarning: Weights are not finite; names their tensors.
    """
    path = folder.path / CONFIG
    tensors = Tensors(folder)
    config = Config(values, path, 4 * len(tensors.names))
    config.refuse_features()
    options = {**family.options(config), **others}
    config.finish(ignore_keys)
    family.check(options, tensors, path)
    options = family.settle(options, tensors)
    position = options["input_position"]
    if position is not None and dtype is not None:
        of_dtype = position.get_config() | {"dtype": dtype}
        options["input_position"] = type(position).from_config(of_dtype)
    try:
        model = blank(family, **options, dtype=dtype, name=name)
    except ValueError as error:
        raise ValueError(f"'{path}' makes no model: {error}") from error
    family.fill(model, tensors)
    tensors.finish(family.unused)
    origin = {
        "model_type": kind,
        "revision": folder.revision,
        "sha256": tensors.digests(),
    }
    return model, origin
