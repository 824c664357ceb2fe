"""A model of tokens as the generator that its folder describes."""

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.decoders import decoder_of
from keras_posenc.checkpoints.encoder_decoder import EncoderDecoder
from keras_posenc.checkpoints.family import Family
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.generation_config import generation_of
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.tokenizers import CONFIG, MODULES, tokenizer_of
from keras_posenc.checkpoints.translator import translator_of
from keras_posenc.generation.search import vocabulary_of
from keras_posenc.text.files import read_text
from keras_posenc.transformer.transformer import Transformer

_TOKENIZER, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_SPECIAL = "special_tokens_map.json"
# The names that configs have for the number of positions.
_POSITIONS = ("max_position_embeddings", "n_positions")


def generates(family: Family, folder: Folder) -> bool:
    """Returns whether a checkpoint generates text."""
    if isinstance(family, EncoderDecoder):
        return family.model is Transformer
    return isinstance(family, DecoderFamily) and not folder.has(MODULES)


def language_model(
    family: Family,
    folder: Folder,
    *,
    from_ids: bool,
    ignore_keys: Sequence[str],
    dtype: Any,
    name: str,
) -> PretrainedGenerator:
    """Returns the generator of a folder of which `generates` is true.

    Args:
        family: Of the checkpoint.
        folder: As for `load_hugging_face`, and the following ones too.
        from_ids: As for `load_hugging_face`.
        ignore_keys: As for `load_hugging_face`.
        dtype: As for `load_hugging_face`.
        name: As for `load_hugging_face`.

    Raises:
        ValueError: As `load_hugging_face`; or `generation_config.json` or the
            chat template is not supported.
    """
    read: Any = decoder_of
    if isinstance(family, EncoderDecoder):
        read = functools.partial(translator_of, from_ids=from_ids)
    model, origin = read(folder, ignore_keys=ignore_keys, dtype=dtype)
    source = target = None
    if not from_ids:
        source = target = tokenizer_of(folder, model, generates=True)
        if isinstance(family, EncoderDecoder):
            # Targets may have their own tokens.
            of_targets = SimpleNamespace(
                pad_id=model.target_pad_id,
                vocabulary_size=vocabulary_of(model),
                input_position=model.target_input_position,
            )
            target = tokenizer_of(
                folder, of_targets, generates=True, of_targets=True
            )
    values = folder.mapping(CONFIG)
    has_encoder = hasattr(model, "encode")
    config = Config(values, folder.path / CONFIG)
    positions = [
        config.size(key) for key in _POSITIONS if values.get(key) is not None
    ]
    # An encoder and a decoder have limits only where they have tables.
    most = model.max_positions if has_encoder else next(iter(positions), None)
    options = generation_of(
        folder,
        values,
        vocabulary=vocabulary_of(model),
        has_encoder=has_encoder,
        max_positions=most,
    )
    return PretrainedGenerator(
        model,
        source_tokenizer=source,
        target_tokenizer=target,
        chat_template=template_of(folder),
        special_tokens=special_tokens_of(folder),
        origin=origin,
        name=name,
        **options,
    )


def template_of(folder: Folder) -> str | None:
    """Returns the template of chats, or None.

    Raises:
        ValueError: It is not text, or there are several and none is the
            default.
    """
    if folder.has(_TEMPLATE):
        return read_text(folder.file(_TEMPLATE))
    found: Any = None
    if folder.has(_TOKENIZER):
        found = folder.mapping(_TOKENIZER).get("chat_template")
    if isinstance(found, list):  # by name
        by_name = {
            each.get("name"): each.get("template")
            for each in found
            if isinstance(each, dict)
        }
        found = by_name.get("default", found)
    if found is None or isinstance(found, str):
        return found
    raise ValueError(
        f"'{folder.path / _TOKENIZER}', key 'chat_template': it must be a "
        "string, or a list with one of the name 'default'. Write the template "
        f"into a file '{_TEMPLATE}'"
    )


def special_tokens_of(folder: Folder) -> dict[str, str]:
    """Returns special tokens, by the names that templates have for them."""
    found: dict[str, str] = {}
    for file in (_SPECIAL, _TOKENIZER):
        values = folder.mapping(file) if folder.has(file) else {}
        for name, value in values.items():
            token = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(token, str):
                found[name] = token
    return found
