"""SentencePiece models: reading, checking, and making from Hugging Face's."""

import base64
import functools
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from keras_posenc.text.files import shown
from keras_posenc.text.normalization_steps import steps_of

# A step of `SentencepieceTokenizer`: see graphemes.py.
GRAPHEMES = "graphemes"

# Types of models, and of pieces.
_UNIGRAM = 1
_NORMAL, _UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

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


def read_unigram(
    whole: Any, path: Any, is_forgeable: bool = True
) -> tuple[bytes, dict[str, Any]]:
    """Returns what `convert_tokenizer` does of the content of a file.

    Raises:
        ValueError: if the file is not whole, or not supported.
    """
    try:
        return convert_tokenizer(whole, is_forgeable)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"'{path}' is not a complete tokenizer.json of type Unigram: "
            f"{type(error).__name__}: {error}"
        ) from error


def _spelled(
    added: Sequence[Mapping[str, Any]], is_normalized: bool
) -> list[str]:
    return [
        " " * bool(each["lstrip"]) + each["content"]
        for each in added
        if each["normalized"] == is_normalized
    ]


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

    def applied(self, text: str) -> Iterator[tuple[str, int]]:
        """Yields the characters that a text becomes, each with its end.

        That is the end, in bytes, of what the rules replace by the character,
        or by several.
        """
        data, at = text.encode(), 0
        while at < len(data):
            size, replacement = self._longest(data, at)
            if not size:  # one character, as it is
                size = 1
                while at + size < len(data) and data[at + size] & 0xC0 == 0x80:
                    size += 1
                replacement = data[at : at + size]
            at += size
            for character in replacement.decode():
                yield character, at

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


def convert_tokenizer(
    tokenizer: Mapping[str, Any], is_forgeable: bool = True
) -> tuple[bytes, dict[str, Any]]:
    """Returns a model from Hugging Face's `tokenizer.json`, and arguments.

    Args:
        tokenizer: the content of the file.
        is_forgeable: whether a text whose normalized form spells a special
            token has that token there, as in the library "tokenizers".

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
        # The library looks for the normalized form of such a token.
        is_other = each["normalized"] and not each["content"].isascii()
        if each["single_word"] or each["rstrip"] or is_other:
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
        is_hidden = piece in spelled and not is_forgeable
        kind = CONTROL if is_hidden else _NORMAL
        if index == unigram["unk_id"]:
            kind = _UNKNOWN
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = _UNIGRAM
    model.trainer_spec.unk_id = unigram["unk_id"]
    steps, charsmap, whitespace = _normalization(tokenizer)
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
        "special_tokens": _spelled(added, False),
        "added_tokens": _spelled(added, True),
        "normalization": steps,
        "whitespace": whitespace,
    }


def _normalization(
    tokenizer: Mapping[str, Any],
) -> tuple[Sequence[str], bytes, str]:
    """Returns the steps before the model's rules, these, and of white space."""
    normalizers = _parts(tokenizer.get("normalizer"), "normalizers")
    kinds = [part["type"] for part in normalizers]
    # What the model does itself.
    first = len(kinds)
    if "Precompiled" in kinds:
        first = kinds.index("Precompiled")
    elif {"Regex": " {2,}"} in [part.get("pattern") for part in normalizers]:
        first = 0
    steps = steps_of(normalizers[:first])
    if steps is None:
        raise _unsupported("normalizer", normalizers[:first])
    charsmap, strips, collapses = b"", False, False
    for part in normalizers[first:]:
        match part:
            case {"type": "Precompiled", "precompiled_charsmap": encoded}:
                charsmap = base64.b64decode(encoded)
                steps.append(GRAPHEMES)
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
        return steps, charsmap, "split"
    if collapses:
        return steps, charsmap, "model" if strips else "collapse"
    if strips:
        raise _unsupported("normalizer", "Strip without Replace")
    return steps, charsmap, "keep"


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
        case {
            "type": "RobertaProcessing" | "BertProcessing",
            "cls": [start, first],
            "sep": [end, last],
        } if (first, last) == (ids.get(start), ids.get(end)):
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
