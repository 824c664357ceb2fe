"""Decoders of Hugging Face, as models from ids to logits of the next token."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.filled import filled
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.model_types import family_of
from keras_posenc.checkpoints.tokenizers import CONFIG
from keras_posenc.text.files import shown
from keras_posenc.transformer.transformer_decoder_model import (
    TransformerDecoderModel,
)

_HEADS = ("ForCausalLM", "LMHeadModel", "Model")


def decoder_of(
    folder: Folder,
    *,
    ignore_keys: Sequence[str] = (),
    dtype: Any = None,
    name: str = "model",
) -> tuple[TransformerDecoderModel, dict[str, Any]]:
    """Returns the decoder of a checkpoint, and where it is from.

    Every id is a token, and ids are padded with -1.

    Args:
        folder: The checkpoint.
        ignore_keys: As for `load_hugging_face`.
        dtype: As for `load_hugging_face`.
        name: Name of the model.

    Returns:
        The model, and the `origin` of a `PretrainedModel`: `model_type`,
        `revision` and `sha256`.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: The library `safetensors` is missing.
        ValueError: It is no decoder that is supported; a key or a tensor is
            not supported; or a file is damaged.

    Warns:
        UserWarning: Weights are not finite; names their tensors.
    """
    values, path = folder.mapping(CONFIG), folder.path / CONFIG
    kind, family = family_of(values, folder)
    if not isinstance(family, DecoderFamily):
        raise ValueError(
            f"'{path}', key 'model_type': '{kind}' is an encoder, which "
            "generates no text"
        )
    names = values.get("architectures") or [_HEADS[0]]
    if not isinstance(names, list) or not str(names[0]).endswith(_HEADS):
        raise ValueError(
            f"'{path}', key 'architectures': {shown(names)} is not supported: "
            "a decoder must be one that generates text, such as "
            '["LlamaForCausalLM"]'
        )
    return filled(
        family,
        kind,
        folder,
        values,
        ignore_keys=ignore_keys,
        dtype=dtype,
        name=name,
    )
