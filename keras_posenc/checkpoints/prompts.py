"""The prompts of a sentence encoder, by name: "query", "document", ..."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.heads import PROMPTS

# sentence-transformers gives these to every model, without a text.
_USUAL = ("query", "document")


@dataclasses.dataclass(frozen=True)
class Prompts:
    """What a folder says of prompts.

    Attributes:
        texts: The prompts by name.
        default: The name of the one that texts get by default, or None.
        truncate_dim: How many numbers of each vector are kept; None for all.
    """

    texts: Mapping[str, str]
    default: str | None
    truncate_dim: int | None


def prompts_of(folder: Folder, given: Any = None) -> Prompts:
    """Reads `config_sentence_transformers.json`, where there is one.

    Args:
        folder: The checkpoint.
        given: Prompts by name that come before those of the folder, or None.

    Raises:
        ValueError: Prompts are not strings by name, or the default one is
            missing.
    """
    values = folder.mapping(PROMPTS) if folder.has(PROMPTS) else {}
    config = Config(values, folder.path / PROMPTS)
    found = config.take("prompts", {}, dict, type(None)) or {}
    texts = {name: text for name, text in found.items() if text is not None}
    if not all(isinstance(text, str) for text in texts.values()):
        raise config.wrong("prompts", "it must have a string for each name")
    texts |= check_prompts(given)
    default = config.take("default_prompt_name", None, str, type(None))
    if default is not None and default not in {*texts, *_USUAL}:
        raise config.wrong(
            "default_prompt_name",
            f"there is no prompt '{default}'. Prompts are: "
            f"{', '.join(texts) or 'none'}",
        )
    dim = None
    if config.values.get("truncate_dim") is not None:
        dim = config.size("truncate_dim")
    return Prompts(texts, default, dim)


def check_prompts(prompts: Any) -> dict[str, str]:
    """Returns prompts by name; none for None.

    Raises:
        ValueError: They are not strings by name.
    """
    if prompts is None:
        return {}
    if not isinstance(prompts, Mapping) or not all(
        isinstance(each, str) for pair in prompts.items() for each in pair
    ):
        raise ValueError(
            "`prompts` must be a dict of texts by name, such as "
            "{'query': 'query: ', 'document': 'passage: '}. Received: "
            f"prompts={prompts!r}"
        )
    return dict(prompts)
