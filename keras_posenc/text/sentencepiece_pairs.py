"""BPE with a fallback to bytes, from `tokenizer.json`, as SentencePiece's.

The file lists pairs of tokens in order of priority. A SentencePiece model has
pieces with scores, and merges any neighbours that are a piece together, those
with the highest score first. The two are the same if the file lists every pair
that makes a piece, one piece after the other, as files do that were made from
such a model.
"""

import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from keras_posenc.text.bounds import LONGEST
from keras_posenc.text.files import shown
from keras_posenc.text.sentencepiece_model import BYTE, CONTROL, NORMAL

# Rules that replace nothing. Without any, SentencePiece logs that there are
# none. The trie's root is followed by units that no byte matches.
NO_RULES = struct.pack("<257I", 1024, 0, *[2**31] * 255) + b"\0"
# Values that these keys of BPE may have.
_PAIR_SETTINGS: dict[str, Sequence[Any]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (True,),
    "ignore_merges": (None, False),
}


def pieces_of_pairs(
    made: Mapping[str, Any], added: Sequence[Mapping[str, Any]]
) -> tuple[list[tuple[str, float, int]], int]:
    """Returns pieces of BPE with their scores and types, and the unknown."""
    for key, known in _PAIR_SETTINGS.items():
        if made.get(key) not in known:
            raise unsupported(f"model.{key}", made.get(key))
    ids = dict(made["vocab"])
    for each in added:
        if ids.setdefault(each["content"], each["id"]) != each["id"]:
            raise unsupported("added_tokens", each)
    # A byte may have its character's name too: the longer one counts.
    names = {ids[name]: name for name in sorted(ids, key=len)}
    if sorted(names) != list(range(len(names))):
        raise unsupported("model.vocab", "ids that are not 0, 1, 2, ...")
    missing = [c for c in range(256) if f"<0x{c:02X}>" not in ids]
    if missing:
        raise unsupported("model.vocab", f"no byte <0x{missing[0]:02X}>")
    # Texts are divided at added tokens, before spaces are "▁".
    order = _order(
        made["merges"],
        {each["content"] for each in added if "▁" not in each["content"]},
    )
    pieces = []
    for index in range(len(names)):
        name = names[index]
        kind = CONTROL  # no text has it, other than as an added token
        if name in order or len(name) == 1:
            kind = NORMAL
        elif re.fullmatch("<0x[0-9A-F]{2}>", name):
            kind = BYTE
        pieces.append((name, float(-order.get(name, 0)), kind))
    # Bytes come in its place, but a SentencePiece model must have one.
    unknown = ids.get(made.get("unk_token") or "<unk>")
    if unknown is None:
        raise unsupported("model.unk_token", made.get("unk_token"))
    return pieces, unknown


def white_space_of_pairs(tokenizer: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns how BPE reads white space, and whether its model adds some.

    Raises:
        ValueError: In another way than Llama 2 and Gemma do.
    """
    normalizers = parts_of(tokenizer.get("normalizer"), "normalizers")
    pre_tokenizers = parts_of(tokenizer.get("pre_tokenizer"), "pretokenizers")
    whitespace, adds = "model", False
    replace = {
        "type": "Replace",
        "pattern": {"String": " "},
        "content": "▁",
    }
    match normalizers:
        case [{"type": "Prepend", "prepend": "▁"}, last] if last == replace:
            adds = True
        case [only] if only == replace:
            # Without effect: there are no spaces any more.
            if [part.get("type") for part in pre_tokenizers] == ["Split"]:
                pre_tokenizers = []
        case []:
            match pre_tokenizers:
                case [
                    {
                        "type": "Metaspace",
                        "replacement": "▁",
                        "split": False,
                        "prepend_scheme": "first" | "always" | "never" as said,
                    }
                ]:
                    pre_tokenizers = []
                    whitespace = "model" if said == "never" else said
        case _:
            raise unsupported("normalizer", tokenizer.get("normalizer"))
    if pre_tokenizers or not (normalizers or tokenizer.get("pre_tokenizer")):
        raise unsupported("pre_tokenizer", tokenizer.get("pre_tokenizer"))
    steps = [
        {**replace, "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds or whitespace != "model":
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    decoder = tokenizer.get("decoder")
    if decoder is not None and parts_of(decoder, "decoders") != steps:
        raise unsupported("decoder", decoder)
    return whitespace, adds


def _order(merges: Iterable[Any], never: Collection[str]) -> dict[str, int]:
    """Returns the pieces that merges make, with their places in the order.

    Args:
        merges: pairs of tokens, or both with a space in between.
        never: tokens that no merge can make, because texts are divided there.

    Raises:
        ValueError: The pairs are not those of a SentencePiece model.
    """
    order: dict[str, int] = {}
    pairs = []
    last = None
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2:
            raise _others(f"{shown(merge)}, which is not a pair")
        left, right = parts
        piece = left + right
        if len(piece) > LONGEST:  # each place to divide it is checked
            raise _others(f"a piece of {len(piece):,} characters")
        if piece in never:
            continue
        pairs.append((piece, left, right))
        if piece != last:
            # Of a run of one character the order does not matter: it always
            # grows from the left.
            if piece in order and piece.strip(piece[0]):
                raise _others(f"{shown(piece)}, which is made in two places")
            order.setdefault(piece, len(order))
            last = piece
    known = {*order}.union(*(name for name in order))  # and characters
    listed = dict.fromkeys(order, 0)
    for piece, left, right in pairs:
        if left in known and right in known:
            listed[piece] += 1
    for piece, count in listed.items():
        possible = sum(
            piece[:at] in known and piece[at:] in known
            for at in range(1, len(piece))
        )
        if count != possible:
            raise _others(f"{count} of {possible} pairs that are {piece!r:.40}")
    return order


def _others(what: str) -> ValueError:
    return ValueError(
        "`model` must be a tokenizer.json whose merges were made from a "
        "SentencePiece model, or byte-level BPE. Received: "
        f"model.merges with {what}."
    )


def parts_of(part: Any, name: str) -> Sequence[Any]:
    """Returns the parts of a sequence in the file, or the one part."""
    if part is None:
        return []
    return part[name] if part["type"] == "Sequence" else [part]


def unsupported(name: str, value: Any) -> ValueError:
    """Returns an error that names a setting of the file."""
    return ValueError(
        "`model` must be a tokenizer.json of type Unigram, such as that of "
        "XLM-R, or of BPE with a fallback to bytes, such as that of Llama 2. "
        f"Received: {name}={shown(value)}."
    )
