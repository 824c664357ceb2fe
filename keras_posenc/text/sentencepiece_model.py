"""SentencePiece models: their fields, pieces and rules."""

import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_posenc.text.files import check_rules, check_scores, check_tokens

# Types of models, and of pieces.
UNIGRAM, PAIRS = 1, 2
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6

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


class Pieces(NamedTuple):
    """What is read of a model, whose unknown piece has the id `unknown`.

    `codes` are the bytes of pieces that are one, by their ids; a plain model is
    Unigram without such pieces.
    """

    pieces: list[str]
    unknown: int
    codes: dict[int, int]
    is_plain: bool
    adds_space: bool


def pieces_of(model: bytes) -> Pieces:
    """Returns what a layer needs to know of a model."""
    from google.protobuf.message import DecodeError

    try:
        read = model_class().FromString(model)
    except DecodeError:
        read = model_class()()
    pieces = [each.piece for each in read.pieces]
    unknown = [i for i, each in enumerate(read.pieces) if each.type == UNKNOWN]
    if not pieces or len(unknown) != 1:
        raise ValueError(
            "`model` must be a SentencePiece model, with one unknown piece. "
            f"Received: {len(model)} bytes, which are not one."
        )
    check_tokens("model", pieces)
    check_scores(each.score for each in read.pieces)
    check_rules(read.normalizer_spec.precompiled_charsmap)
    spec = read.trainer_spec
    if spec.model_type not in (0, UNIGRAM, PAIRS):
        raise ValueError(
            "`model` must be a Unigram model or one of BPE. "
            f"Received: model_type={spec.model_type}."
        )
    return Pieces(
        pieces,
        unknown[0],
        {
            i: int(each.piece[3:5], 16)
            for i, each in enumerate(read.pieces)
            if each.type == BYTE
        },
        spec.model_type != PAIRS and not spec.byte_fallback,
        read.normalizer_spec.add_dummy_prefix,
    )


class Rules:
    """The rules by which a model's normalizer replaces strings.

    They are a length, a double-array trie (of the library darts-clone) of what
    is replaced, and the replacements, each ended by a zero byte.
    """

    def __init__(self, model: bytes) -> None:
        spec = model_class().FromString(model).normalizer_spec
        rules = spec.precompiled_charsmap
        self._units: Sequence[int] = ()
        if rules:
            (size,) = struct.unpack_from("<I", rules)
            self._units = struct.unpack_from(f"<{size // 4}I", rules, 4)
            self._replacements = rules[4 + size :]

    def of(self, text: str) -> bytes | None:
        """Returns the replacement of a string, or None."""
        data = text.encode()
        size, replacement = self._longest(data, 0)
        return replacement if size and size == len(data) else None

    def _longest(self, data: bytes, at: int) -> tuple[int, bytes]:
        """Returns the size of the longest string with a rule, and that."""
        units, size, found = self._units, 0, 0
        if not units:
            return 0, b""
        place = _children(units, 0)
        for end in range(at, len(data)):
            place ^= data[end]
            if place >= len(units) or units[place] & 0x800000FF != data[end]:
                break
            is_rule = units[place] & 0x100
            place = _children(units, place)
            if is_rule:
                size, found = end + 1 - at, units[place] & 0x7FFFFFFF
        if not size:
            return 0, b""
        stop = self._replacements.index(b"\0", found)
        return size, self._replacements[found:stop]

    def of_characters(self) -> dict[int, bytes]:
        """Returns, by code point, the replacements of single characters."""
        codes = (*range(1, 0xD800), *range(0xE000, 0x10000))
        found = ((code, self.of(chr(code))) for code in codes)
        return {code: by for code, by in found if by is not None}


def _children(units: Sequence[int], place: int) -> int:
    """Returns the offset of a unit's children, without their own byte."""
    unit = units[place]
    return place ^ (unit >> 10 << ((unit & 0x200) >> 6))
