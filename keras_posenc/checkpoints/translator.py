"""Encoder-decoders of Hugging Face, as models from sources to targets."""

from collections.abc import Sequence
from typing import Any

from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder, as_read
from keras_posenc.checkpoints.filled import filled
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.model_types import family_of
from keras_posenc.checkpoints.tokenizers import CONFIG
from keras_posenc.text.files import shown
from keras_posenc.transformer._embeddings import NO_ID
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
    return filled(
        family,
        kind,
        folder,
        values,
        ignore_keys=ignore_keys,
        dtype=dtype,
        name=name,
        **({} if from_ids else {"pad_id": NO_ID}),
    )
