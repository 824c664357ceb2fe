"""Encoder-decoders of Hugging Face, as models from sources to targets."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checkpoints.blank import blank
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder, as_read
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.model_types import family_of
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.checkpoints.tokenizers import CONFIG
from keras_posenc.text.files import shown
from keras_posenc.transformer._id_embedding import NO_ID
from keras_posenc.transformer.transformer import Transformer


def translator_of(
    folder: Folder,
    *,
    from_ids: bool = True,
    ignore_keys: Sequence[str] = (),
    dtype: Any = None,
    name: str = "model",
) -> tuple[Transformer, dict[str, Any]]:
    """Returns the encoder-decoder of a checkpoint, and where it is from.

    Targets are padded with -1, and sources with the id that the config says.

    Args:
        folder: The checkpoint.
        from_ids: Whether sources are ids. Those of texts are padded with -1
            too, for a text may spell the token of padding.
        ignore_keys: As for `load_hugging_face`.
        dtype: As for `load_hugging_face`.
        name: Name of the model.

    Returns:
        The model, and the `origin` of a `PretrainedModel`: `model_type`,
        `revision` and `sha256`.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: The library `safetensors` is missing.
        ValueError: It is no encoder-decoder that is supported; a key or a
            tensor is not supported; or a file is damaged.

    Warns:
        UserWarning: Weights are not finite; names their tensors.
    """
    values, path = folder.mapping(CONFIG), folder.path / CONFIG
    kind, family = family_of(values, folder)
    family = as_read(family, values, encoder_only=False)
    if not isinstance(family, EncoderDecoder) or (
        family.model is not Transformer
    ):
        raise ValueError(
            f"'{path}' is of no model that writes texts: model_type '{kind}', "
            f"architectures {shown(values.get('architectures'))}"
        )
    tensors = Tensors(folder)
    config = Config(values, path, 4 * len(tensors.names))
    config.refuse_features()
    options = family.options(config)
    if not from_ids:
        options["pad_id"] = NO_ID
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
