"""A model of tokens as the generator that its folder describes."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_posenc.checkpoints.decoder_family import DecoderFamily
from keras_posenc.checkpoints.decoders import decoder_of
from keras_posenc.checkpoints.family import Family
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.generation_config import generation_of
from keras_posenc.checkpoints.pretrained_generator import PretrainedGenerator
from keras_posenc.checkpoints.tokenizers import CONFIG, MODULES, tokenizer_of
from keras_posenc.generation.search import vocabulary_of
from keras_posenc.text.files import read_text

_TOKENIZER, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_SPECIAL = "special_tokens_map.json"
# The names that configs have for the number of positions.
_POSITIONS = ("max_position_embeddings", "n_positions")


def generates(family: Family, folder: Folder) -> bool:
    """Returns whether a checkpoint generates text."""
    return isinstance(family, DecoderFamily) and not folder.has(MODULES)


def language_model(
    folder: Folder,
    *,
    from_ids: bool,
    ignore_keys: Sequence[str],
    dtype: Any,
    name: str,
) -> PretrainedGenerator:
    """Returns the generator of a folder of which `generates` is true.

    Args:
        folder: As for `load_hugging_face`, and the following ones too.
        from_ids: As for `load_hugging_face`.
        ignore_keys: As for `load_hugging_face`.
        dtype: As for `load_hugging_face`.
        name: As for `load_hugging_face`.
    """
    model, origin = decoder_of(folder, ignore_keys=ignore_keys, dtype=dtype)
    tokenizer = None
    if not from_ids:
        tokenizer = tokenizer_of(folder, model, generates=True)
    return generator_of(
        folder,
        folder.mapping(CONFIG),
        model,
        tokenizer,
        origin=origin,
        name=name,
    )


def generator_of(
    folder: Folder,
    values: Mapping[str, Any],
    model: keras.Model,
    tokenizer: Any,
    **named: Any,
) -> PretrainedGenerator:
    """Returns the generator of a checkpoint.

    Args:
        folder: The checkpoint.
        values: Its config.json.
        model: Its `Transformer` or `TransformerDecoderModel`.
        tokenizer: Its tokenizer; for an encoder and a decoder a pair of them;
            None for a generator of ids.
        **named: `origin` and `name`.

    Raises:
        ValueError: `generation_config.json` or the chat template is not
            supported; the tokenizer has more ids than the model.
    """
    has_encoder = hasattr(model, "encode")
    positions = [values[key] for key in _POSITIONS if key in values]
    source, target = (
        tokenizer if has_encoder and tokenizer else (tokenizer,) * 2
    )
    options = generation_of(
        folder,
        values,
        vocabulary=vocabulary_of(model),
        has_encoder=has_encoder,
        max_positions=None if has_encoder else next(iter(positions), None),
    )
    return PretrainedGenerator(
        model,
        source_tokenizer=source,
        target_tokenizer=target,
        chat_template=template_of(folder),
        special_tokens=special_tokens_of(folder),
        **options,
        **named,
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
