"""Writes `.litertlm` packages: models, a tokenizer and metadata in one file."""

import json
from collections.abc import Mapping
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


def texts_of(samples: Any) -> list[str]:
    """Returns `samples` of a package, which must be texts."""
    # Late, as it imports Keras, which files of cases are run without.
    from keras_posenc.export.probes.samples import split_texts

    texts, others = split_texts(samples)
    if others:
        raise ValueError(
            "`samples` of a LiteRT-LM package must be texts, such as ['Once "
            f"upon a time ...']. Received: samples={samples!r:.80}"
        )
    return texts


def plain_tokenizer(
    values: Mapping[str, Any], vocabulary: int
) -> dict[str, Any]:
    """Returns a `tokenizer.json` that gives a text's own ids alone.

    The engine would cut and pad texts as the file says, and counts padding as
    tokens. Added tokens that the model lacks are left out.

    Args:
        values: The content of the file.
        vocabulary: How many ids the model takes.
    """
    added = values.get("added_tokens") or []
    return {
        **values,
        "truncation": None,
        "padding": None,
        "added_tokens": [each for each in added if each["id"] < vocabulary],
    }


def read_tokenizer(path: Path, vocabulary: int) -> dict[str, Any] | bytes:
    """Returns a tokenizer as `write_package` takes it."""
    names = ("tokenizer.json", "tokenizer.model", "spiece.model", "spm.model")
    file = path
    if path.is_dir():
        found = [path / name for name in names if (path / name).is_file()]
        if not found:
            raise ValueError(
                f"'{path}' has no tokenizer that LiteRT-LM reads: neither "
                "tokenizer.json nor a SentencePiece model (tokenizer.model, "
                "spiece.model). Write one there with the library transformers: "
                "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        file = found[0]
    try:
        content = file.read_bytes()
        if file.suffix != ".json":
            return content
        values = json.loads(content)
        if not isinstance(values, dict) or "model" not in values:
            raise ValueError("it is no tokenizer.json, which has a 'model'")
        return plain_tokenizer(values, vocabulary)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"The tokenizer '{file}' cannot be read: {reason}. Give a "
            "tokenizer.json, or a SentencePiece model (--tokenizer)"
        ) from error


def write_package(
    path: Path,
    metadata: Any,
    tokenizer: Mapping[str, Any] | bytes,
    models: Mapping[str, Path],
) -> None:
    """Writes a package to a path at which nothing exists.

    Args:
        path: The package.
        metadata: Its `LlmMetadata` or `EmbeddingMetadata`.
        tokenizer: The content of a `tokenizer.json`, or the bytes of a
            SentencePiece model.
        models: LiteRT files by what they do: `"prefill_decode"`, or
            `"embedder"` and `"text_encoder"`.

    Raises:
        ImportError: `litert-lm-builder` is missing.
        ExportError: The file cannot be written.
    """
    module = require_builder()
    builder = module.LitertLmFileBuilder()
    with working_folder() as folder, writing_to(path.parent):
        described = folder / "metadata.pb"
        described.write_bytes(metadata.SerializeToString())
        if type(metadata).__name__ == "LlmMetadata":
            builder.add_llm_metadata(str(described))
        else:
            builder.add_embedding_metadata(str(described))
        if isinstance(tokenizer, bytes):
            packed = folder / "tokenizer.model"
            packed.write_bytes(tokenizer)
            builder.add_sentencepiece_tokenizer(str(packed))
        else:
            packed = folder / "tokenizer.json"
            said = json.dumps(tokenizer, ensure_ascii=False)
            packed.write_text(said, encoding="utf-8")
            builder.add_hf_tokenizer(str(packed))
        for kind, model in models.items():
            use = module.TfLiteModelType(f"tf_lite_{kind}")
            builder.add_tflite_model(str(model), use)
        with path.open("wb") as file:
            builder.build(file)
