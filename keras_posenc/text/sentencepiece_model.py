"""SentencePiece models: reading, checking, and making from Hugging Face's."""

import base64
import functools
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_posenc.text.files import shown

# Types of models, and of pieces.
_UNIGRAM = 1
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3

# Numbers and types of the fields that are used here; protobuf keeps the others
# unchanged. The module of the library "sentencepiece" is not used: it may need
# another protobuf than TensorFlow.
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Piece": {
        "piece": (1, "STRING"),
        "score": (2, "FLOAT"),
        "type": (3, "INT32"),
    },
    "Trainer": {
        "model_type": (3, "INT32"),
        "byte_fallback": (35, "BOOL"),
        "unk_id": (40, "INT32"),
    },
    "Normalizer": {
        "precompiled_charsmap": (2, "BYTES"),
        "add_dummy_prefix": (3, "BOOL"),
        "remove_extra_whitespaces": (4, "BOOL"),
        "escape_whitespaces": (5, "BOOL"),
    },
    "Model": {
        "pieces": (1, "Piece"),
        "trainer_spec": (2, "Trainer"),
        "normalizer_spec": (3, "Normalizer"),
    },
}


@functools.cache
def model_class() -> Any:
    """Returns the class of protobuf's `ModelProto`, in a separate pool."""
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="model.proto")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(
                name=field, number=number, label=field_type.LABEL_OPTIONAL
            )
            if kind in _FIELDS:
                added.type = field_type.TYPE_MESSAGE
                added.type_name = kind
            else:
                added.type = field_type.Type.Value(f"TYPE_{kind}")
            if field == "pieces":
                added.label = field_type.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Model"))


def pieces_of(model: bytes) -> tuple[list[str], int]:
    """Returns the pieces of a model in the order of their ids, and the unknown.

    Raises:
        ValueError: if the bytes are not a model, or one that is not Unigram,
            or has a fallback to bytes.
    """
    from google.protobuf.message import DecodeError

    try:
        read = model_class().FromString(model)
    except DecodeError:
        read = model_class()()
    pieces = [each.piece for each in read.pieces]
    unknown = [i for i, each in enumerate(read.pieces) if each.type == _UNKNOWN]
    if not pieces or len(unknown) != 1:
        raise ValueError(
            "`model` must be a SentencePiece model, with one unknown piece. "
            f"Received: {len(model)} bytes, which are not one."
        )
    spec = read.trainer_spec
    if spec.model_type not in (0, _UNIGRAM) or spec.byte_fallback:
        raise ValueError(
            "`model` must be a Unigram model without a fallback to bytes. "
            f"Received: model_type={spec.model_type}, "
            f"byte_fallback={spec.byte_fallback}."
        )
    return pieces, unknown[0]


def replaced_characters(model: bytes) -> dict[int, bytes]:
    """Returns, by code point, the replacements of single characters.

    The rules of a model's normalizer are a length, a double-array trie (of the
    library darts-clone) of what is replaced, and the replacements, each ended
    by a zero byte.
    """
    rules = model_class().FromString(model).normalizer_spec.precompiled_charsmap
    if not rules:
        return {}
    (size,) = struct.unpack_from("<I", rules)
    units = struct.unpack_from(f"<{size // 4}I", rules, 4)
    found = {}
    for code in (*range(1, 0xD800), *range(0xE000, 0x10000)):
        place = _children(units, 0)
        for byte in chr(code).encode():
            place ^= byte
            if place >= len(units) or units[place] & 0x800000FF != byte:
                break
            unit = units[place]
            place = _children(units, place)
        else:
            if unit & 0x100:  # a rule ends here
                start = 4 + size + (units[place] & 0x7FFFFFFF)
                found[code] = rules[start : rules.index(b"\0", start)]
    return found


def _children(units: Sequence[int], place: int) -> int:
    """Returns the offset of a unit's children, without their own byte."""
    unit = units[place]
    return place ^ (unit >> 10 << ((unit & 0x200) >> 6))


def convert_tokenizer(
    tokenizer: Mapping[str, Any],
) -> tuple[bytes, dict[str, Any]]:
    """Returns a model from Hugging Face's `tokenizer.json`, and arguments.

    Args:
        tokenizer: the content of the file.

    Returns:
        The model, and arguments of `SentencepieceTokenizer` that it does not
        contain: the tokens around a text, padding, those that texts can spell,
        and how white space is read.

    Raises:
        ValueError: if the file has a setting that SentencePiece does not.
    """
    unigram = tokenizer["model"]
    if unigram.get("type") != "Unigram" or unigram.get("byte_fallback"):
        raise _unsupported("model", unigram.get("type"))
    added = tokenizer.get("added_tokens") or []
    for each in added:
        is_plain = not each["special"] and each["normalized"]
        if each["single_word"] or each["rstrip"] or is_plain:
            raise _unsupported("added_tokens", each)
    scores = dict(enumerate(unigram["vocab"]))
    for each in added:
        scores.setdefault(each["id"], (each["content"], 0.0))
    if sorted(scores) != list(range(len(scores))):
        raise _unsupported("added_tokens", added[-1])
    spelled = {each["content"] for each in added}
    model = model_class()()
    for index in range(len(scores)):
        piece, score = scores[index]
        kind = _CONTROL if piece in spelled else _NORMAL
        if index == unigram["unk_id"]:
            kind = _UNKNOWN
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = _UNIGRAM
    model.trainer_spec.unk_id = unigram["unk_id"]
    charsmap, whitespace = _normalization(tokenizer)
    for each in added:
        # Around them are spaces, which are pieces already.
        if each["normalized"] and whitespace == "model":
            raise _unsupported("added_tokens", each)
    spec = model.normalizer_spec
    spec.precompiled_charsmap = charsmap
    spec.add_dummy_prefix = spec.escape_whitespaces = True
    spec.remove_extra_whitespaces = whitespace in ("model", "split")
    ids = {piece: index for index, (piece, _) in scores.items()}
    start, end = _frame(tokenizer.get("post_processor"), ids)
    return model.SerializeToString(), {
        "start_token": start,
        "end_token": end,
        "pad_token": _padding(tokenizer, spelled),
        "special_tokens": [
            " " * bool(each["lstrip"]) + each["content"] for each in added
        ],
        "whitespace": whitespace,
    }


def _normalization(tokenizer: Mapping[str, Any]) -> tuple[bytes, str]:
    charsmap, strips, collapses = b"", False, False
    for part in _parts(tokenizer.get("normalizer"), "normalizers"):
        match part:
            case {"type": "Precompiled", "precompiled_charsmap": encoded}:
                charsmap = base64.b64decode(encoded)
            case {"type": "Strip", "strip_right": True}:
                strips = True
            case {"type": "Replace", "pattern": {"Regex": " {2,}"}}:
                collapses = True
            case _:
                raise _unsupported("normalizer", part)
    parts = _parts(tokenizer.get("pre_tokenizer"), "pretokenizers")
    splits = parts[:1] == [{"type": "WhitespaceSplit"}]
    match parts[splits:]:
        case [{"type": "Metaspace", "replacement": "▁", **rest}] if rest.get(
            "prepend_scheme", "always"
        ) == "always" and rest.get("add_prefix_space", True):
            pass
        case _:
            raise _unsupported("pre_tokenizer", tokenizer.get("pre_tokenizer"))
    if splits:
        return charsmap, "split"
    if collapses:
        return charsmap, "model" if strips else "collapse"
    if strips:
        raise _unsupported("normalizer", "Strip without Replace")
    return charsmap, "keep"


def _padding(tokenizer: Mapping[str, Any], names: Collection[str]) -> str:
    if setting := tokenizer.get("padding"):
        return setting["pad_token"]
    return "[PAD]" if "[PAD]" in names else "<pad>"


def _frame(
    processor: Any, ids: Mapping[str, int]
) -> tuple[str | None, str | None]:
    """Returns the tokens before and after a text, with the ids of pieces."""
    match processor:
        case None:
            return None, None
        case {"type": "TemplateProcessing", "single": template}:
            special = processor.get("special_tokens")
            names = [
                each["SpecialToken"]["id"] if "SpecialToken" in each else None
                for each in template
            ]
            for name in names:
                if name is not None and (
                    special[name]["ids"] != [ids.get(name)]
                ):
                    raise _unsupported("post_processor", processor)
            match names:
                case [None]:
                    return None, None
                case [None, end]:
                    return None, end
                case [start, None]:
                    return start, None
                case [start, None, end]:
                    return start, end
    raise _unsupported("post_processor", processor)


def _parts(part: Any, name: str) -> Sequence[Any]:
    if part is None:
        return []
    return part[name] if part["type"] == "Sequence" else [part]


def _unsupported(name: str, value: Any) -> ValueError:
    return ValueError(
        "`model` must be a tokenizer.json of type Unigram, such as that of "
        f"XLM-R. Received: {name}={shown(value)}."
    )
