"""Writes `.litertlm` packages: models, a tokenizer and metadata in one file.

LiteRT-LM's own builder has the format's schema. The file is written here, as
the builder's would have another name and date each time.
"""

import dataclasses
import hashlib
import json
import operator
import shutil
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.regular_files import open_regular
from keras_posenc.publish import writing_to

# The extra that installs what writes and runs packages.
MISSING = "LiteRT-LM packages need {}: pip install 'keras-posenc[litertlm]'"


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a package.

    Attributes:
        kind: Its name in the schema's `AnySectionDataType`.
        content: Its bytes, or the file that holds them.
        items: What the schema says of it, such as its `model_type`.
    """

    kind: str
    content: bytes | Path
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


def model_section(path: Path, model_type: str) -> Section:
    """Returns the section of a LiteRT file.

    Args:
        path: The file.
        model_type: Its use, such as `"prefill_decode"`, `"embedder"` or
            `"text_encoder"`.
    """
    return Section("TFLiteModel", path, {"model_type": f"tf_lite_{model_type}"})


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


def read_tokenizer(
    path: Path, vocabulary: int
) -> tuple[dict[str, Any] | bytes, Path]:
    """Returns a tokenizer as `tokenizer_section` takes it, and its file.

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
            return content, file
        values = json.loads(content)
        if not isinstance(values, dict) or "model" not in values:
            raise ValueError("it is no tokenizer.json, which has a 'model'")
        return plain_tokenizer(values, vocabulary), file
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
    objects = [
        schema.SectionObjectT(
            items=[
                _item(schema, key, value) for key, value in each.items.items()
            ],
            dataType=getattr(schema.AnySectionDataType, each.kind),
            beginOffset=1,  # not 0, which would take no room
            endOffset=1,
        )
        for each in sections
    ]
    name = _item(schema, "uuid", str(uuid.UUID(int=0)))
    header = schema.LiteRTLMMetaDataT(
        systemMetadata=schema.SystemMetadataT(entries=[name]),
        sectionMetadata=schema.SectionMetadataT(objects=objects),
    )

    def packed() -> bytes:
        builder = flatbuffers.Builder(core.BLOCK_SIZE)
        builder.Finish(header.Pack(builder))
        return bytes(builder.Output())

    begin = core.HEADER_BEGIN_BYTE_OFFSET
    size = len(packed())
    with writing_to(path.parent), path.open("wb") as file:
        end = begin + size
        for each, entry in zip(sections, objects, strict=True):
            entry.beginOffset = -(-end // core.BLOCK_SIZE) * core.BLOCK_SIZE
            file.seek(entry.beginOffset)
            _write(file, each.content, digest)
            entry.endOffset = end = file.tell()
        # Caches of the engine may go by it.
        name.value.value = str(uuid.UUID(bytes=digest.digest()[:16]))
        content = packed()
        assert len(content) == size
        file.seek(0)
        file.write(core.HEADER_MAGIC_BYTES)
        for number in (
            core.LITERTLM_MAJOR_VERSION,
            core.LITERTLM_MINOR_VERSION,
            core.LITERTLM_PATCH_VERSION,
        ):
            file.write(number.to_bytes(4, "little"))
        file.seek(core.HEADER_END_LOCATION_BYTE_OFFSET)
        file.write((begin + size).to_bytes(8, "little"))
        file.write(content)


def _write(file: BinaryIO, content: bytes | Path, digest: Any) -> None:
    if isinstance(content, bytes):
        file.write(content)
        digest.update(hashlib.sha256(content).digest())
        return
    with content.open("rb") as source:
        shutil.copyfileobj(source, file, 2**20)
        source.seek(0)
        digest.update(hashlib.file_digest(source, "sha256").digest())


def _item(schema: Any, key: str, value: str) -> Any:
    return schema.KeyValuePairT(
        key=key,
        valueType=schema.VData.StringValue,
        value=schema.StringValueT(value),
    )


def section_content(path: Path, section: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a section that `inspect` has found in a package."""
    with open_regular(path) as file:
        file.seek(section["begin"])
        return file.read(section["end"] - section["begin"])


def unpack_model(path: Path, section: Mapping[str, Any], target: Path) -> None:
    """Writes the LiteRT file of a section that `inspect` has found."""
    left = section["end"] - section["begin"]
    with open_regular(path) as source, target.open("wb") as file:
        source.seek(section["begin"])
        while piece := source.read(min(left, 2**20)):
            left -= file.write(piece)


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
            differs=True,
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
    fields = {each.name for each, _ in (*own.ListFields(), *given.ListFields())}
    differing = [
        name
        for name in sorted(fields)
        if getattr(own, name) != getattr(given, name)
    ]
    if given != own:  # also by fields that are not known here
        raise ExportVerificationError(
            f"The metadata of '{path}' is not the model's: "
            f"{', '.join(differing) or 'unknown fields'}. Export it again, or "
            "verify it with the model that it was exported from",
            differs=True,
        )
