"""The id of padding: that of the config, or that of the tokenizer.

A model here masks ids that are padding; transformers masks the positions that
the tokenizer has padded. The two agree if the id is the tokenizer's. Some
configs have another one: multilingual E5 has BERT's 0 with XLM-R's tokenizer.
"""

from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints.folder import (
    CONFIG,
    SETTINGS,
    SPECIAL,
    WHOLE,
    Folder,
)
from keras_posenc.checkpoints.tokenizers import (
    check_size,
    complete,
    opened,
    text_of,
    text_padding,
    vocabulary_of,
)
from keras_posenc.checks import check_index

# Special tokens around a text, by their names in the files.
_FRAME = ("bos", "cls", "eos", "sep")
_USUAL = ("[PAD]", "<pad>")


def padding_of_ids(
    folder: Folder,
    options: Mapping[str, Any],
    values: Mapping[str, Any],
    given: int | None,
) -> int:
    """Returns the id of padding of a model that takes ids."""
    stated = options["pad_id"]
    counts_tokens = getattr(options["input_position"], "skip_masked", False)
    path = folder.path / CONFIG
    if given is not None:
        check_index("pad_id", given, options["vocabulary_size"])
        if counts_tokens and given != stated:
            raise ValueError(
                f"`pad_id` must be {stated}, the pad_token_id of '{path}', for "
                "this model counts positions from it. "
                f"Received: pad_id={given}"
            )
        return given
    ids = vocabulary_of(folder)
    token = padding_token(folder, ids)
    found = stated if token is None else ids.get(token)
    if found is None:
        raise ValueError(
            f"'{folder.path}': the tokenizer pads with {token!r}, which is in "
            "none of its files. Give the id that your ids are padded with as "
            "`pad_id`"
        )
    if counts_tokens and found != stated:
        raise ValueError(
            f"'{path}' says pad_token_id={stated}, which this model counts "
            f"positions from, and the folder's tokenizer pads with {token!r}, "
            f"id {found}. Correct the one that is wrong; or pad your ids with "
            f"{stated}, and give that as `pad_id`"
        )
    if found >= options["vocabulary_size"]:
        raise ValueError(
            f"'{folder.path}': the tokenizer pads with {token!r}, id {found}, "
            f"and config.json says vocab_size={options['vocabulary_size']}"
        )
    if _is_around_texts(folder, ids, values, found):
        other = _reserved(folder, found)
        raise ValueError(
            f"'{folder.path}' pads with id {found}, which also starts or ends "
            "each text, and there it would be masked as padding. Pad your ids "
            f"with another one, and give that as `pad_id`{other}"
        )
    return found


def padding_of_texts(folder: Folder, options: Mapping[str, Any]) -> int:
    """Returns the id that the model's own tokenizer layer pads with.

    Any token that no text has would do. It is the tokenizer's, or, where the
    model counts positions from it, that of the config.
    """
    complete(folder)
    pad_id = options["pad_id"]
    ids = vocabulary_of(folder)
    check_size(folder, options["vocabulary_size"])
    if getattr(options["input_position"], "skip_masked", False):
        return pad_id
    found = ids.get(padding_token(folder, ids) or "", pad_id)
    if found >= options["vocabulary_size"]:
        found = pad_id
    return text_padding(folder, found)


def padding_token(folder: Folder, ids: Mapping[str, int]) -> str | None:
    """Returns the token that the tokenizer pads with, or None if unknown."""
    said = [
        opened(folder, name).get("pad_token") for name in (SETTINGS, SPECIAL)
    ]
    padding = opened(folder, WHOLE).get("padding")
    said.append(padding.get("pad_token") if isinstance(padding, dict) else None)
    found = [text for each in said if isinstance(text := text_of(each), str)]
    return next(iter(found + [token for token in _USUAL if token in ids]), None)


def _is_around_texts(
    folder: Folder,
    ids: Mapping[str, int],
    values: Mapping[str, Any],
    pad_id: int,
) -> bool:
    """Returns whether texts start or end with that id, by any of the files."""
    if not ids:
        return pad_id in [values.get(f"{name}_token_id") for name in _FRAME]
    tokens = [
        text_of(opened(folder, file).get(f"{name}_token"))
        for file in (SETTINGS, SPECIAL)
        for name in _FRAME
    ]
    match opened(folder, WHOLE).get("post_processor"):
        case {"special_tokens": dict(special)}:
            tokens += special
    return pad_id in [ids.get(x) for x in tokens if isinstance(x, str)]


def _reserved(folder: Folder, pad_id: int) -> str:
    """Returns words that name another reserved id to pad with, or ""."""
    try:
        found = text_padding(folder, pad_id)
    except ValueError:
        return ""
    return "" if found == pad_id else f", such as {found}"
