"""Reads what a `.litertlm` package contains, without its runtime."""

import collections
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_posenc_worker.formats import by_value, load_file, without_its_init
from keras_posenc_worker.read_litert import read_content

_HEADER, _END = 32, 24
_MOST_HEADER = 2**24


def read_litertlm(path: Path) -> dict[str, Any]:
    """Returns a package's contents; of its `sections` places and `items`."""
    sections = sections_of(path)
    package: dict[str, Any] = {}
    kinds, models = [], []  # of several models one kind may come twice
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for each in sections:
        own = memoryview(content)[each["begin"] : each["end"]]
        if each["kind"] == "TFLiteModel":
            kind = each["items"].get("model_type", "")
            kinds.append(kind.removeprefix("tf_lite_"))
            models.append(read_content(own))
        elif each["kind"] == "LlmMetadataProto":
            package |= _language_model(bytes(own))
        elif each["kind"] == "EmbeddingMetadataProto":
            package |= _embedder(bytes(own))
        elif each["kind"] in ("HF_Tokenizer_Zlib", "SP_Tokenizer"):
            is_hf = each["kind"] == "HF_Tokenizer_Zlib"
            kind = "tokenizer.json" if is_hf else "SentencePiece"
            package["tokenizer"] = kind
    if kinds:
        package["models"] = kinds
    signatures: dict[str, Any] = {}
    operators = collections.Counter[str]()
    for kind, model in zip(kinds, models, strict=True):
        operators.update(model["operators"])
        for name, sides in model["signatures"].items():
            name = f"{kind}/{name}" if name in signatures else name
            signatures[name] = sides
    return {
        "weight_bytes": sum(x["weight_bytes"] for x in models),
        "signatures": signatures,
        "operators": dict(operators),
        **{
            name: sorted({each for x in models for each in x[name]})
            for name in ("custom", "unsafe")
        },
        "quantization": next(
            (x["quantization"] for x in models if x["quantization"]), None
        ),
        "sections": sections,
        "package": package,
    }


def sections_of(path: Path) -> list[dict[str, Any]]:
    """Returns the sections that a package's header lists."""
    schema = load_file(
        "litert_lm_builder", "litertlm_header_schema_py_generated.py"
    )
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(_HEADER)
        if first[:12] != b"LITERTLM\x01\0\0\0":
            raise ValueError("it does not begin as a package of version 1 does")
        end = int.from_bytes(first[_END:], "little")
        content = file.read(max(0, min(end, _MOST_HEADER) - _HEADER))
    if _HEADER + len(content) != end:
        raise ValueError(
            f"it is cut off after {size:,} bytes, or damaged: its header ends "
            f"at byte {end:,}"
        )
    # Not by the schema's InitFromObj, which fails in 0.18.1.
    listed = schema.LiteRTLMMetaData.GetRootAs(content, 0).SectionMetadata()
    kinds = by_value(schema.AnySectionDataType)
    sections = []
    for index in range(listed.ObjectsLength()):
        each = listed.Objects(index)
        begin, after = each.BeginOffset(), each.EndOffset()
        if not end <= begin < after <= size:
            raise ValueError(
                f"it is cut off after {size:,} bytes, or damaged: a section is "
                f"from byte {begin:,} to {after:,}, after byte {end:,}"
            )
        end = after
        sections.append(
            {
                "kind": kinds.get(each.DataType(), f"{each.DataType()}"),
                "begin": begin,
                "end": after,
                "items": dict(_items(schema, each)),
            }
        )
    return sections


def _items(schema: Any, section: Any) -> Iterator[tuple[str, str]]:
    """Yields the texts that a section is described by, with their names."""
    for index in range(section.ItemsLength()):
        item = section.Items(index)
        if item.ValueType() == schema.VData.StringValue:
            table, value = item.Value(), schema.StringValue()
            value.Init(table.Bytes, table.Pos)
            yield item.Key().decode(), value.Value().decode()


def _language_model(content: bytes) -> dict[str, Any]:
    without_its_init("litert_lm_builder")
    from litert_lm_builder.runtime.proto import llm_metadata_pb2

    message = llm_metadata_pb2.LlmMetadata.FromString(content)
    return {
        "stops": [
            list(each.token_ids.ids) or each.token_str
            for each in message.stop_tokens
        ],
        "max_tokens": message.max_num_tokens,
        "template": message.jinja_prompt_template or None,
    }


def _embedder(content: bytes) -> dict[str, Any]:
    without_its_init("litert_lm_builder")
    from litert_lm_builder.runtime.proto import embedding_metadata_pb2

    message = embedding_metadata_pb2.EmbeddingMetadata.FromString(content)
    return {"max_tokens": message.max_input_length}
