"""Packages of LiteRT-LM, `.litertlm`: models, tokenizer and metadata in one.

The layout, read from litert_lm_builder: eight bytes of magic, three numbers of
the version, the end of the header, the header (a flatbuffer that lists the
sections), and the sections, each at a multiple of 16 KiB.
"""

import dataclasses
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from keras_posenc.export.publish import writing_to


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a package.

    Attributes:
        kind: Its type, a name of the schema's `AnySectionDataType`.
        content: Its bytes.
        items: What the header says of it, by name.
    """

    kind: str
    content: bytes
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def model(cls, kind: str, content: bytes) -> Self:
        """Returns a LiteRT model of a kind, such as `"text_encoder"`."""
        items = {"model_type": f"tf_lite_{kind}"}
        return cls("TFLiteModel", content, items)

    @classmethod
    def tokenizer(cls, content: str) -> Self:
        """Returns a tokenizer, from the content of a `tokenizer.json`."""
        data = content.encode()
        size = len(data).to_bytes(8, "little")
        return cls("HF_Tokenizer_Zlib", size + zlib.compress(data))


def require_builder() -> Any:
    """Returns the schema of the header.

    Raises:
        ImportError: LiteRT-LM's packages are not installed.
    """
    try:
        import litert_lm  # noqa: F401  verifies the package
        from litert_lm_builder import litertlm_header_schema_py_generated
    except ImportError as error:
        raise ImportError(
            "`export_litertlm` needs LiteRT-LM's engine and the schema of its "
            "packages: pip install 'keras-posenc[litertlm]'"
        ) from error
    return litertlm_header_schema_py_generated


def write_package(path: Path, sections: Sequence[Section]) -> None:
    """Writes a package: the same bytes for the same sections.

    Raises:
        ExportError: The file cannot be written.
    """
    import flatbuffers
    from litert_lm_builder import litertlm_core as core

    schema = require_builder()

    def pair(name: str, text: str) -> Any:
        value = schema.StringValueT(text)
        kind = schema.VData.StringValue
        return schema.KeyValuePairT(key=name, value=value, valueType=kind)

    sums = ":".join(str(zlib.crc32(each.content)) for each in sections)
    objects = [
        schema.SectionObjectT(
            items=[pair(*item) for item in each.items.items()],
            dataType=getattr(schema.AnySectionDataType, each.kind),
            beginOffset=1,  # numbers that are 0 take no place
            endOffset=1,
        )
        for each in sections
    ]
    header = schema.LiteRTLMMetaDataT(
        # Engines may keep what they compile under this name.
        systemMetadata=schema.SystemMetadataT(
            entries=[pair("uuid", str(uuid.uuid5(uuid.NAMESPACE_OID, sums)))]
        ),
        sectionMetadata=schema.SectionMetadataT(objects=objects),
    )

    def packed() -> bytes:
        builder = flatbuffers.Builder()
        builder.Finish(header.Pack(builder))
        return bytes(builder.Output())

    def aligned(place: int) -> int:
        return -(-place // core.BLOCK_SIZE) * core.BLOCK_SIZE

    begin = core.HEADER_BEGIN_BYTE_OFFSET
    end = begin + len(packed())
    place = aligned(end)
    for section, entry in zip(sections, objects, strict=True):
        entry.beginOffset = place
        entry.endOffset = place + len(section.content)
        place = aligned(entry.endOffset)
    version = (
        core.LITERTLM_MAJOR_VERSION,
        core.LITERTLM_MINOR_VERSION,
        core.LITERTLM_PATCH_VERSION,
    )
    with writing_to(path.parent), path.open("xb") as file:
        file.write(core.HEADER_MAGIC_BYTES)
        file.writelines(number.to_bytes(4, "little") for number in version)
        file.seek(core.HEADER_END_LOCATION_BYTE_OFFSET)
        file.write(end.to_bytes(8, "little"))
        file.seek(begin)
        file.write(packed())
        for section, entry in zip(sections, objects, strict=True):
            file.seek(entry.beginOffset)
            file.write(section.content)
