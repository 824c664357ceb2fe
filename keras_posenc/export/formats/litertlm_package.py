"""Writes `.litertlm` packages: models, a tokenizer and metadata in one file.

LiteRT-LM's own builder has the format's schema. The file is written here, as
the builder's would have another name and date each time.
"""

import dataclasses
import hashlib
import json
import operator
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.regular_files import open_regular
from keras_posenc.publish import writing_to

_TOKENIZERS = dict.fromkeys(("HF_Tokenizer_Zlib", "SP_Tokenizer"), "Tokenizer")
# The extra that installs what writes and runs packages.
MISSING = "LiteRT-LM packages need {}: pip install 'keras-posenc[litertlm]'"


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a package.

    Attributes:
        kind: Its name in the schema's `AnySectionDataType`.
        content: Its bytes.
        items: What the schema says of it, such as its `model_type`.
    """

    kind: str
    content: bytes
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)


def require_builder() -> SimpleNamespace:
    """Returns the modules of the format.

    Raises:
        ImportError: They are not installed; names the extra.
    """
    try:
        from litert_lm_builder import litertlm_core
        from litert_lm_builder import (
            litertlm_header_schema_py_generated as schema,
        )
        from litert_lm_builder.runtime.proto import (
            embedding_metadata_pb2,
            llm_metadata_pb2,
        )
    except ImportError as error:
        raise ImportError(MISSING.format("litert-lm-builder")) from error
    return SimpleNamespace(
        core=litertlm_core,
        schema=schema,
        LlmMetadata=llm_metadata_pb2.LlmMetadata,
        EmbeddingMetadata=embedding_metadata_pb2.EmbeddingMetadata,
    )


def texts_of(samples: Any) -> list[str]:
    """Returns `samples` of a package, which must be texts.

    Raises:
        ValueError: There are others among them.
    """
    # Late, as it imports Keras, which files of cases are run without.
    from keras_posenc.export.probes.samples import split_texts

    texts, others = split_texts(samples)
    if others:
        raise ValueError(
            "`samples` of a LiteRT-LM package must be texts, such as ['Once "
            f"upon a time ...']. Received: samples={samples!r:.80}"
        )
    return texts


def model_section(path: Path, model_type: str) -> Section:
    """Returns the section of a LiteRT file.

    Args:
        path: The file.
        model_type: Its use, such as `"prefill_decode"`, `"embedder"` or
            `"text_encoder"`.
    """
    items = {"model_type": f"tf_lite_{model_type}"}
    return Section("TFLiteModel", path.read_bytes(), items)


def tokenizer_section(tokenizer: Mapping[str, Any] | bytes) -> Section:
    """Returns the section of a tokenizer.

    Args:
        tokenizer: The content of a `tokenizer.json`, or the bytes of a
            SentencePiece model.
    """
    if isinstance(tokenizer, bytes):
        return Section("SP_Tokenizer", tokenizer)
    content = json.dumps(tokenizer, ensure_ascii=False).encode()
    size = len(content).to_bytes(8, "little")
    return Section("HF_Tokenizer_Zlib", size + zlib.compress(content))


def metadata_section(message: Any) -> Section:
    """Returns the section of an `LlmMetadata` or `EmbeddingMetadata`."""
    name = f"{type(message).__name__}Proto"
    return Section(name, message.SerializeToString(deterministic=True))


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
    """Returns a tokenizer as `tokenizer_section` takes it.

    Args:
        path: A `tokenizer.json`, a SentencePiece model, or a folder with one.
        vocabulary: How many ids the model takes.

    Raises:
        ValueError: There is none, or it cannot be read.
    """
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


def write_package(path: Path, sections: Sequence[Section]) -> None:
    """Writes a package to a path at which nothing exists.

    The same sections make the same bytes.

    Args:
        path: Where; publish it from there in one step.
        sections: The sections, in their order in the file.

    Raises:
        ImportError: `litert-lm-builder` is missing.
        ExportError: The file cannot be written.
    """
    import flatbuffers

    modules = require_builder()
    core, schema = modules.core, modules.schema
    digest = hashlib.sha256()
    for each in sections:
        digest.update(hashlib.sha256(each.content).digest())
    # Caches of the engine may go by it.
    name = str(uuid.UUID(bytes=digest.digest()[:16]))
    objects = [
        schema.SectionObjectT(
            items=[_item(schema, *item) for item in each.items.items()],
            dataType=getattr(schema.AnySectionDataType, each.kind),
            beginOffset=1,  # not 0, which would take no room
            endOffset=1,
        )
        for each in sections
    ]
    header = schema.LiteRTLMMetaDataT(
        systemMetadata=schema.SystemMetadataT([_item(schema, "uuid", name)]),
        sectionMetadata=schema.SectionMetadataT(objects),
    )

    def packed() -> bytes:
        builder = flatbuffers.Builder(core.BLOCK_SIZE)
        builder.Finish(header.Pack(builder))
        return bytes(builder.Output())

    end = after = core.HEADER_BEGIN_BYTE_OFFSET + len(packed())
    for each, entry in zip(sections, objects, strict=True):
        entry.beginOffset = -(-end // core.BLOCK_SIZE) * core.BLOCK_SIZE
        entry.endOffset = end = entry.beginOffset + len(each.content)
    with writing_to(path.parent), path.open("wb") as file:
        file.write(core.HEADER_MAGIC_BYTES)
        for number in (
            core.LITERTLM_MAJOR_VERSION,
            core.LITERTLM_MINOR_VERSION,
            core.LITERTLM_PATCH_VERSION,
        ):
            file.write(number.to_bytes(4, "little"))
        file.seek(core.HEADER_END_LOCATION_BYTE_OFFSET)
        file.write(after.to_bytes(8, "little"))
        file.write(packed())
        for each, entry in zip(sections, objects, strict=True):
            file.seek(entry.beginOffset)
            file.write(each.content)


def _item(schema: Any, key: str, value: str) -> Any:
    return schema.KeyValuePairT(
        key=key,
        valueType=schema.VData.StringValue,
        value=schema.StringValueT(value),
    )


def sections_of(
    path: Path, sections: Sequence[Mapping[str, Any]], *names: str
) -> list[Mapping[str, Any]]:
    """Returns the sections of a package in the order of the names.

    Args:
        path: The package.
        sections: What `inspect` has found.
        *names: For each section its kind, and its `model_type` if it has one.
            Any kind of tokenizer is a `Tokenizer`.

    Raises:
        ExportVerificationError: It has others.
    """
    named = {}
    for each in sections:
        kind = _TOKENIZERS.get(each["kind"], each["kind"])
        named[" ".join([kind, *each["items"].values()])] = each
    if {*names} != {*named} or len(sections) != len(names):
        raise ExportVerificationError(
            f"'{path}' must have the sections {', '.join(names)}. It "
            f"has: {', '.join(sorted(named)) or 'none'}"
        )
    return [named[name] for name in names]


def section_content(path: Path, section: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a section that `inspect` has found in a package."""
    with open_regular(path) as file:
        file.seek(section["begin"])
        return file.read(section["end"] - section["begin"])


def read_packed_tokenizer(path: Path, section: Mapping[str, Any]) -> Any:
    """Returns the tokenizer of a section, as `tokenizer_section` takes it.

    Raises:
        ExportVerificationError: It is no tokenizer.json.
    """
    content = section_content(path, section)
    if section["kind"] == "SP_Tokenizer":
        return content
    try:  # its size was checked by the inspection
        values = json.loads(zlib.decompress(content[8:]))
        for each in values.get("added_tokens") or []:
            operator.index(each["id"])
            each["content"].encode()
    except (
        *(ValueError, RecursionError, zlib.error),
        *(AttributeError, KeyError, TypeError),  # of another structure
    ) as error:
        raise ExportVerificationError(
            f"The tokenizer in '{path}' is no tokenizer.json: {error}",
        ) from error
    return values


def check_metadata(path: Path, section: Mapping[str, Any], own: Any) -> None:
    """Raises `ExportVerificationError` unless metadata is a model's own.

    Args:
        path: The package.
        section: The section of its metadata.
        own: The message that the model has.
    """
    given = type(own).FromString(section_content(path, section))
    if given == own:
        return
    differing = [
        each.name
        for each in own.DESCRIPTOR.fields
        if getattr(own, each.name) != getattr(given, each.name)
    ]
    raise ExportVerificationError(
        f"The metadata of '{path}' is not the model's: "
        f"{', '.join(differing) or 'unknown fields'}. Export it again, or "
        "verify it with the model that it was exported from",
    )
