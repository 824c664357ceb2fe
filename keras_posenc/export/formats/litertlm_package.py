"""Writes `.litertlm` packages: models, a tokenizer and metadata in one file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.publish import working_folder, writing_to

# The extra that installs what writes and runs packages.
MISSING = "LiteRT-LM packages need {}: pip install 'keras-posenc[litertlm]'"


def require_builder() -> Any:
    """Returns LiteRT-LM's module that builds packages."""
    try:
        from litert_lm_builder import litertlm_builder
    except ImportError as error:
        raise ImportError(MISSING.format("litert-lm-builder")) from error
    return litertlm_builder


def plain_tokenizer(
    values: Mapping[str, Any], vocabulary: int
) -> dict[str, Any]:
    """Returns a `tokenizer.json` by which the engine neither cuts nor pads."""
    added = values.get("added_tokens") or []
    return {
        **values,
        "truncation": None,
        "padding": None,
        "added_tokens": [each for each in added if each["id"] < vocabulary],
    }


def write_package(
    path: Path,
    metadata: Any,
    tokenizer: Mapping[str, Any],
    models: Mapping[str, Path],
) -> None:
    """Writes a package; `models` are LiteRT files by their kind."""
    module = require_builder()
    builder = module.LitertLmFileBuilder()
    add_metadata = {
        "LlmMetadata": builder.add_llm_metadata,
        "EmbeddingMetadata": builder.add_embedding_metadata,
    }[type(metadata).__name__]
    packed = json.dumps(tokenizer, ensure_ascii=False).encode()
    with working_folder() as folder, writing_to(path.parent):
        for name, add, content in (
            ("metadata.pb", add_metadata, metadata.SerializeToString()),
            ("tokenizer.json", builder.add_hf_tokenizer, packed),
        ):
            (folder / name).write_bytes(content)
            add(str(folder / name))
        for kind, model in models.items():
            use = module.TfLiteModelType(f"tf_lite_{kind}")
            builder.add_tflite_model(str(model), use)
        with path.open("wb") as file:
            builder.build(file)


# The engine gives contents as lists of parts, and no special tokens.
_BEGIN = """\
{% set kp = namespace(messages=[], text='') %}\
{% for message in messages %}\
{% if message.content is string or message.content is none \
or message.content is undefined %}\
{% set kp.messages = kp.messages + [message] %}\
{% else %}\
{% set kp.text = '' %}\
{% for part in message.content %}\
{% if part.type is defined and part.type != 'text' %}\
{{ raise_exception('this model takes texts, and no parts of another type') }}\
{% endif %}\
{% set kp.text = kp.text + part.text %}\
{% endfor %}\
{% set kp.messages = kp.messages + [dict(message, content=kp.text)] %}\
{% endif %}\
{% endfor %}\
{% set messages = kp.messages %}\
"""
# The engine reads what a new message adds to the text of the earlier ones. But
# it has read a reply only up to the token that ended it: what the template puts
# after that token, such as a line break, must be added too.
_END = """\
{% if not add_generation_prompt and messages \
and messages[-1].role == 'assistant' %}\
{% for stop in STOPS %}\
{% set parts = kp_text.split(stop)|list %}\
{% if parts|length > 1 and not parts|last|trim %}\
{% set kp.text = kp_text[:(kp_text|length) - (parts|last|length)] %}\
{% endif %}\
{% endfor %}\
{% endif %}\
{{ kp.text }}"""


def packaged_template(
    template: str, tokens: Mapping[str, str], stops: Sequence[str]
) -> str:
    """Returns a template that gives the same texts in the engine."""
    named = "".join(
        f"{{% set {name} = {_quoted(token)} %}}"
        for name, token in tokens.items()
        if name.isidentifier()
    )
    # Jinja drops one line break at the end of a template.
    body = template.removesuffix("\n")
    ends = _END.replace("STOPS", f"[{', '.join(map(_quoted, stops))}]")
    return (
        f"{_BEGIN}{named}{{% set kp_text %}}{body}{{% endset %}}"
        f"{{% set kp.text = kp_text %}}{ends}"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
