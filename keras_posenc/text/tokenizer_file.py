"""Hugging Face's `tokenizer.json`: its parts, each read and written here.

`read` returns the arguments of a layer. What is written has no tokens before
and after each text, no padding and no lengths: a runtime adds what it needs.
"""

import base64
import binascii
import os
import pathlib
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Self
from unicodedata import is_normalized

from keras_posenc.text.byte_pair_words import expression_of
from keras_posenc.text.byte_pairs import BYTES
from keras_posenc.text.files import LONGEST, read_json, shown
from keras_posenc.text.normalization_steps import GRAPHEMES, PARTS
from keras_posenc.text.sentencepiece_model import (
    BYTE,
    CONTROL,
    NORMAL,
    PAIRS,
    UNIGRAM,
    UNKNOWN,
    model_class,
)
from keras_posenc.text.spelled_tokens import spelling

# Kinds of tokenizers. FALLBACK has characters, and bytes for those that have no
# token; BYTE_LEVEL bytes alone.
BYTE_LEVEL, WORDPIECE, PIECES = "BPE", "WordPiece", "Unigram"
FALLBACK = "BPE with byte_fallback"
# What joins tokens to texts, where the file says.
_DECODERS = {BYTE_LEVEL: "ByteLevel", PIECES: "Metaspace"}
# Values that these keys of BPE may have; the first is written.
_BPE: dict[str, Sequence[Any]] = {
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
_PADDING = ("<pad>", "[PAD]", "<|padding|>", "<|pad|>")
_SPACE = "▁"
# No text spells these by chance. An application may, to start a text.
_NEVER_SPELLED = "<|keras_posenc:{}|>"
# Rules that replace nothing. Without any, SentencePiece logs that there are
# none. The trie's root is followed by units that no byte matches.
_NO_RULES = struct.pack("<257I", 1024, 0, *[2**31] * 255) + b"\0"


def unsupported(name: str, value: Any) -> ValueError:
    """Returns an error that names a setting of the file."""
    return ValueError(
        f"{name}={shown(value)} of a tokenizer.json is not supported"
    )


def kind_of(whole: Mapping[str, Any]) -> str:
    """Returns the kind of tokenizer of a file, if it is supported."""
    model = whole["model"]
    # Older files have no type: other keys show it.
    usual = WORDPIECE if "unk_token" in model else ""
    usual = BYTE_LEVEL if "merges" in model else usual
    kind = model.get("type", usual)
    if kind == BYTE_LEVEL and model.get("byte_fallback"):
        return FALLBACK
    if kind not in (BYTE_LEVEL, WORDPIECE, PIECES):
        raise ValueError(
            f"a tokenizer.json of type {shown(kind)} is not supported, only "
            f"{WORDPIECE}, {PIECES} and {BYTE_LEVEL}: `from_ids=True` makes "
            "a model that needs none"
        )
    return str(kind)


def read(
    whole: Any, path: Any, *, is_forgeable: bool = True
) -> tuple[str, dict[str, Any]]:
    """Returns the kind of a tokenizer, and the arguments of its layer.

    `is_forgeable` is whether a text whose normalized form spells a special
    token has that token there, as in the library "tokenizers".
    """
    try:
        kind = kind_of(whole)
        if kind == WORDPIECE:
            return kind, _wordpiece(whole)
        if kind == BYTE_LEVEL:
            return kind, _byte_level(whole)
        return kind, _pieces(whole, kind, is_forgeable)
    except (
        *(AttributeError, IndexError, KeyError, OverflowError, TypeError),
        binascii.Error,
    ) as error:
        raise ValueError(
            f"'{path}' is not a complete tokenizer.json: "
            f"{type(error).__name__}: {error}"
        ) from error


def read_file(
    path: str | os.PathLike[str], *kinds: str, **how: Any
) -> dict[str, Any]:
    """Returns the arguments of a layer, from a file of one of these kinds."""
    whole = read_json(existing(path, "path"))
    kind, options = read(whole, path, **how)
    if kind not in kinds:
        raise ValueError(
            f"'{path}' must be a tokenizer.json of type {' or '.join(kinds)}, "
            f"and is of type {kind}"
        )
    return options


def existing(path: str | os.PathLike[str], name: str) -> pathlib.Path:
    """Returns the path of a file; an argument's name is for the message."""
    file = pathlib.Path(os.path.expanduser(path))
    if not file.is_file():
        raise FileNotFoundError(
            f"`{name}` must be a file. Received: {name}={str(path)!r}, "
            "which is not a file."
        )
    return file


def check_decoder(whole: Mapping[str, Any], kind: str) -> None:
    """Raises `ValueError` if a file joins tokens to texts in another way."""
    decoder = whole.get("decoder")
    if decoder is not None and kind in _DECODERS:
        if decoder.get("type") != _DECODERS[kind]:
            raise unsupported("decoder", decoder)


# Parts that all kinds have.


class Added(NamedTuple):
    """A token that becomes one id wherever a text spells it."""

    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        found = cls(
            values["id"],
            values["content"],
            *(bool(values.get(flag)) for flag in cls._fields[2:]),
        )
        if found.single_word:
            raise unsupported("added_tokens", values)
        return found

    def write(self) -> dict[str, Any]:
        return self._asdict()

    @property
    def spelled(self) -> str:
        """With a space in front where it also takes white space there."""
        takes = self.lstrip and self.content.strip()
        return " " * bool(takes) + self.content


def _added(whole: Mapping[str, Any]) -> list[Added]:
    return [Added.read(each) for each in whole.get("added_tokens") or []]


def _ids(vocabulary: Any, added: Sequence[Added]) -> dict[str, int]:
    ids = dict(vocabulary)
    for each in added:
        if ids.setdefault(each.content, each.id) != each.id:
            raise unsupported("added_tokens", each.write())
    return ids


def _groups(added: Sequence[Added]) -> dict[str, list[str]]:
    for each in added:
        if each.rstrip:
            raise unsupported("added_tokens", each.write())
    return {
        "special_tokens": [x.spelled for x in added if not x.normalized],
        "added_tokens": [x.spelled for x in added if x.normalized],
    }


def _added_of(
    tokenizer: Any, special: Sequence[str], skipped: Collection[str] | None
) -> list[Added]:
    """Returns the tokens that texts may spell; skipped ones are special."""
    ids = ids_of(tokenizer.vocabulary)
    return [
        Added(
            ids[name],
            name,
            lstrip=name != token,
            normalized=normalized,
            special=not normalized if skipped is None else name in skipped,
        )
        for group, normalized in (
            (special, False),
            (tokenizer.added_tokens, True),
        )
        for token in group
        for name in [spelling(token)]
    ]


def ids_of(tokens: Sequence[str]) -> dict[str, int]:
    """Returns ids by token; of one that occurs twice the first one counts."""
    return {token: index for index, token in reversed([*enumerate(tokens)])}


def in_order(ids: Mapping[str, Any]) -> list[str]:
    """Returns the tokens in the order of their ids, 0, 1, 2 and so on."""
    tokens: dict[Any, str] = {
        number: token for token, number in ids.items() if type(number) is int
    }
    if len(tokens) != len(ids) or {*tokens} != {*range(len(ids))}:
        raise ValueError(
            f"the ids of the vocabulary must be 0 to {len(ids) - 1}, each once"
        )
    return [tokens[number] for number in range(len(tokens))]


class Frame(NamedTuple):
    """The tokens before and after a text, and that of its language."""

    start: str | None = None
    end: str | None = None
    language: str | None = None

    @classmethod
    def read(cls, processor: Any, ids: Mapping[str, Any]) -> Self:
        """Reads a `post_processor`, whose ids must be the vocabulary's."""
        match _processors(processor):
            case []:
                return cls()
            case [
                {
                    "type": "RobertaProcessing" | "BertProcessing",
                    "cls": [start, first],
                    "sep": [end, last],
                }
            ] if (first, last) == (ids.get(start), ids.get(end)):
                return cls(start, end)
            case [{"type": "TemplateProcessing", "single": template} as part]:
                names = [name for name, _ in _template(template)]
                at = names.index("A")
                before, after = names[:at], names[at + 1 :]
                known = part.get("special_tokens") or {}
                if (len(before) <= 1 and len(after) <= 2) and all(
                    known[name]["ids"] == [ids.get(name)]
                    for name in (*before, *after)
                ):
                    return cls(next(iter(before), None), *after)
        raise unsupported("post_processor", processor)


def pairing(processor: Any) -> tuple[int, bool]:
    """Returns how a `post_processor` joins two texts.

    Returns:
        How many end tokens are between the two, and whether the tokens of the
        second one have another type.
    """
    try:
        match _processors(processor):
            case [{"type": "RobertaProcessing"}]:
                return 2, False
            case [{"type": "BertProcessing"}]:
                return 1, True
            case [{"type": "TemplateProcessing", "single": one, "pair": two}]:
                first, found = _template(one), _template(two)
                _, _, (end, _) = first
                for count, second in ((1, 0), (1, 1), (2, 0), (2, 1)):
                    between = [(end, 0)] * (count - 1)
                    after = [("B", second), (end, second)]
                    if found == [*first, *between, *after]:
                        return count, second == 1
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        "a pair of texts must be the first text with its special tokens, "
        "perhaps one more end token, the second, and an end. Received: "
        f"post_processor={shown(processor)}"
    )


def _processors(processor: Any) -> list[Any]:
    parts = _parts(processor, "processors")
    return [x for x in parts if x["type"] != "ByteLevel"]  # of offsets only


def _template(template: Sequence[Any]) -> list[tuple[str, int]]:
    """Returns the name and the type of each part that a template joins."""
    return [
        (setting["id"], setting.get("type_id", 0))
        for each in template
        for setting in each.values()
    ]


def _padding(whole: Mapping[str, Any], ids: Mapping[str, int]) -> str | None:
    if setting := whole.get("padding"):
        name = setting.get("pad_token")
        if setting.get("direction", "Right") != "Right" or (
            setting.get("pad_id", ids.get(name)) != ids.get(name)
        ):
            raise unsupported("padding", setting)
        return str(setting["pad_token"])
    return next((name for name in _PADDING if name in ids), None)


def _around(
    whole: Mapping[str, Any], ids: Mapping[str, int], **more: str
) -> dict[str, Any]:
    """Returns the arguments of frame, padding and length."""
    frame = Frame.read(whole.get("post_processor"), ids)
    padding = _padding(whole, ids)
    if frame.language is not None and not more:
        raise unsupported("post_processor", whole["post_processor"])
    cut = whole.get("truncation") or {}
    if cut.get("direction", "Right") != "Right":
        raise unsupported("truncation", cut)
    found = {"start_token": frame.start, "end_token": frame.end}
    found |= {key: getattr(frame, part) for part, key in more.items()}
    # A token of the frame would be masked with the padding.
    if padding not in (None, *frame):
        found["pad_token"] = padding
    return found | ({"max_length": cut["max_length"]} if cut else {})


def _parts(part: Any, name: str) -> Sequence[Any]:
    """Returns the parts of a sequence in the file, or the one part."""
    if part is None:
        return []
    return part[name] if part["type"] == "Sequence" else [part]


def _is_like(parts: Sequence[Any], known: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether parts have all that known ones have."""
    return len(parts) == len(known) and all(
        each.items() <= part.items()
        for part, each in zip(parts, known, strict=True)
    )


def _file(
    model: Mapping[str, Any], added: Sequence[Added] = (), **parts: Any
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [each.write() for each in sorted(added)],
        "normalizer": parts.get("normalizer"),
        "pre_tokenizer": parts.get("pre_tokenizer"),
        "post_processor": None,
        "decoder": parts.get("decoder"),
        "model": model,
    }


def _check_model(
    model: Mapping[str, Any], known: Mapping[str, Sequence[Any]]
) -> None:
    for key, values in known.items():
        if model.get(key, values[0]) not in values:
            raise unsupported(f"model.{key}", model[key])


def _bpe(
    vocabulary: Mapping[str, int], merges: Sequence[Any], **more: Any
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "unk_token": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **{key: values[0] for key, values in _BPE.items()},
        "vocab": vocabulary,
        "merges": merges,
        **more,
    }


# WordPiece.

_OF_WORDPIECE: dict[str, Sequence[Any]] = {
    "continuing_subword_prefix": ("##",),
    "max_input_chars_per_word": (100,),
}
# Our options, by the keys of a normalizer; where it has none.
_BERT = {
    "lowercase": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("split_on_cjk", True),
}


def _wordpiece(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a `WordpieceTokenizer`.

    Also `is_lowered`: whether texts are lowercased before the normalizer, as
    sentence-transformers writes `do_lower_case`.
    """
    model, added = whole["model"], _added(whole)
    _check_model(model, _OF_WORDPIECE)
    ids = _ids(model["vocab"], added)
    for each in added:
        name = each.content
        if each.normalized and not (
            name.isascii() and name.isprintable() and name.strip()
        ):
            raise unsupported("added_tokens", each.write())
    steps = _parts(whole.get("normalizer"), "normalizers")
    is_lowered = len(steps) == 2 and steps[0] == {"type": "Lowercase"}
    match steps[is_lowered:]:
        case [{"type": "BertNormalizer", **said}] if said.get(
            "clean_text", True
        ):
            words = "BertPreTokenizer"
            options: dict[str, Any] = {
                name: said.get(key, usual)
                for key, (name, usual) in _BERT.items()
            }
            options["normalization"] = "bert"
        case []:
            words = "WhitespaceSplit"
            options = {"normalization": "none", "lowercase": False}
        case _:
            raise unsupported("normalizer", whole["normalizer"])
    if whole["pre_tokenizer"]["type"] != words:
        raise unsupported("pre_tokenizer", whole["pre_tokenizer"])
    found = _around(whole, ids)
    if None in (found["start_token"], found["end_token"]):
        raise unsupported("post_processor", whole.get("post_processor"))
    return {
        "vocabulary": in_order(ids),
        **options,
        # White space around them is none of any word.
        "special_tokens": [x.content for x in added if not x.normalized],
        "added_tokens": [x.content for x in added if x.normalized],
        "unknown_token": model.get("unk_token", "[UNK]"),
        **found,
        "is_lowered": is_lowered,
    }


def of_wordpiece(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `WordpieceTokenizer`."""
    if tokenizer.normalization == "tf_text":
        raise ValueError(
            f"Tokenizer '{tokenizer.name}' has normalization='tf_text', which "
            "Hugging Face's library does not have. Train with "
            "WordpieceTokenizer(..., normalization='bert')"
        )
    is_bert = tokenizer.normalization == "bert"
    bert = {
        "type": "BertNormalizer",
        "clean_text": True,
        **{key: getattr(tokenizer, name) for key, (name, _) in _BERT.items()},
    }
    return _file(
        {
            "type": "WordPiece",
            "unk_token": tokenizer.unknown_token,
            **{key: values[0] for key, values in _OF_WORDPIECE.items()},
            "vocab": ids_of(tokenizer.vocabulary),
        },
        _added_of(tokenizer, tokenizer._spelled, None),
        normalizer=bert if is_bert else None,
        pre_tokenizer={
            "type": "BertPreTokenizer" if is_bert else "WhitespaceSplit"
        },
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


# Byte-level BPE.


def _words(pattern: str, add_prefix_space: bool) -> list[dict[str, Any]]:
    """Returns the pre-tokenizers of a pattern of `BytePairTokenizer`."""
    bytewise = {"type": "ByteLevel", "add_prefix_space": add_prefix_space}
    if pattern == "gpt2":
        return [{**bytewise, "use_regex": True}]
    if pattern == "smollm2":
        digits = {"type": "Digits", "individual_digits": True}
        return [digits, {**bytewise, "use_regex": True}]
    split = {
        "type": "Split",
        "pattern": {"Regex": expression_of(pattern)},
        "behavior": "Isolated",
        "invert": False,
    }
    return [split, {**bytewise, "use_regex": False}]


# The pre-tokenizers that are read.
_WORDS = [
    ("gpt2", True),
    *((pattern, False) for pattern in ("gpt2", "smollm2", "llama3", "qwen2")),
]


def _byte_level(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a `BytePairTokenizer`."""
    model, added = whole["model"], _added(whole)
    _check_model(model, _BPE)
    ids = _ids(model["vocab"], added)
    steps = _parts(whole.get("normalizer"), "normalizers")
    if steps and not _is_like(steps, [PARTS["nfc"]]):
        raise unsupported("normalizer", whole["normalizer"])
    for each in added:
        name = each.content
        if (
            spelling(name) != name  # would mean: takes the white space before
            or (each.lstrip and not name.strip())
            # Texts would have to be searched for its normalized form.
            or (steps and each.normalized and not is_normalized("NFC", name))
        ):
            raise unsupported("added_tokens", each.write())
    groups = _groups(added)
    for group in groups.values():
        white = [name for name in group if not name.strip()]
        # Which of the two takes white space depends on what is around.
        if white and any(spelling(name) != name for name in group):
            raise unsupported("added_tokens", white[0])
    if model.get("unk_token") is not None and not BYTES.keys() <= ids.keys():
        # In place of bytes that are left out here.
        raise unsupported("model.unk_token", model["unk_token"])
    words = [
        {"use_regex": True, **each}
        for each in _parts(whole.get("pre_tokenizer"), "pretokenizers")
    ]
    chosen = [each for each in _WORDS if _is_like(words, _words(*each))]
    if not chosen:
        raise unsupported("pre_tokenizer", whole.get("pre_tokenizer"))
    return {
        "vocabulary": in_order(ids),
        "merges": [
            each if isinstance(each, str) else " ".join(each)
            for each in model["merges"]
        ],
        "ignore_merges": bool(model.get("ignore_merges")),
        "normalization": "nfc" if steps else None,
        "pattern": chosen[0][0],
        "add_prefix_space": chosen[0][1],
        **groups,
        **_around(whole, ids),
    }


def of_byte_pairs(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `BytePairTokenizer`."""
    special, skipped = tokenizer.special_tokens, {*tokenizer.skipped_tokens}
    added = _added_of(tokenizer, special, skipped)
    frame = (tokenizer.start_token, tokenizer.end_token, tokenizer.pad_token)
    # Texts cannot spell tokens of the frame that are not special.
    hidden = {*frame} - {None} - {each.content for each in added}
    ids = {
        _NEVER_SPELLED.format(token) if token in hidden else token: index
        for index, token in enumerate(tokenizer.vocabulary)
    }
    never = [_NEVER_SPELLED.format(token) for token in hidden]
    words = _words(tokenizer.pattern, tokenizer.add_prefix_space)
    return _file(
        _bpe(
            ids,
            [pair.split(" ") for pair in tokenizer.merges],
            ignore_merges=tokenizer.ignore_merges,
        ),
        [*added, *(Added(ids[name], name, special=True) for name in never)],
        normalizer=PARTS["nfc"] if tokenizer.normalization else None,
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [*words[:-1], words[-1] | {"trim_offsets": True}],
        },
        decoder={**words[-1], "trim_offsets": True, "use_regex": True},
    )


def _framing(tokenizer: Any) -> list[Added]:
    """Returns padding, start and end, which no text spells."""
    return [
        Added(number, _NEVER_SPELLED.format(name), special=True)
        for name, number in (
            ("pad", tokenizer.pad_id),
            ("start", tokenizer.start_id),
            ("end", tokenizer.end_id),
        )
    ]


def of_bytes(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `ByteTokenizer`."""
    bytewise = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    framing = _framing(tokenizer)
    characters = {byte: char for char, byte in BYTES.items()}
    unknown = "".join(characters[byte] for byte in "\ufffd".encode())
    ids = {
        # A token has its id by the vocabulary alone.
        **{each.content: each.id for each in framing},
        # Without merges no text makes it, and it is read as U+FFFD.
        unknown: tokenizer.unknown_id,
        **{char: byte + tokenizer.first_id for char, byte in BYTES.items()},
    }
    return _file(
        _bpe(ids, []), framing, pre_tokenizer=bytewise, decoder=bytewise
    )


def of_characters(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `CharacterTokenizer`."""
    framing = _framing(tokenizer)
    unknown = "\ufffd"
    if unknown in tokenizer.vocabulary:
        unknown = _NEVER_SPELLED.format("unknown")
    return _file(
        {
            "type": "WordLevel",
            "unk_token": unknown,
            "vocab": {
                **{each.content: each.id for each in framing},
                unknown: tokenizer.unknown_id,
                **{
                    char: i + tokenizer.first_id
                    for i, char in enumerate(tokenizer.vocabulary)
                },
            },
        },
        framing,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": "(?s:.)"},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )


# SentencePiece: Unigram, and BPE with a fallback to bytes.

_SPLIT = {"type": "WhitespaceSplit"}
_SEVERAL = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
_BACK = [
    {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_NO_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def metaspace(scheme: str = "always", **more: Any) -> dict[str, Any]:
    """Returns the pre-tokenizer that writes spaces as "▁"."""
    return {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": scheme,
        **more,
    }


# Of BPE, the normalizers and the pre-tokenizers by `whitespace`, and whether
# the model adds a space.
_SPACES: dict[tuple[str, bool], tuple[list[Any], list[Any]]] = {
    ("model", True): ([{"type": "Prepend", "prepend": _SPACE}, _REPLACE], []),
    ("model", False): ([_REPLACE], []),
    ("first", False): ([], [metaspace("first", split=False)]),
    ("always", False): ([], [metaspace("always", split=False)]),
}


def _pieces(
    whole: Mapping[str, Any], kind: str, is_forgeable: bool
) -> dict[str, Any]:
    """Returns the arguments of a `SentencepieceTokenizer`."""
    made, added = whole["model"], _added(whole)
    for each in added:
        # The library looks for the normalized form of such a token.
        if each.normalized and (kind == FALLBACK or not each.content.isascii()):
            raise unsupported("added_tokens", each.write())
    spelled = {each.content for each in added}
    model = model_class()()
    spec = model.normalizer_spec
    spec.escape_whitespaces, spec.remove_extra_whitespaces = True, False
    steps: Sequence[str] = ()
    if kind == FALLBACK:
        pieces, unknown = _pieces_of_pairs(made, added)
        whitespace, spec.add_dummy_prefix = _white_space_of_pairs(whole)
        spec.precompiled_charsmap = _NO_RULES
        model.trainer_spec.model_type = PAIRS
        model.trainer_spec.byte_fallback = True
    else:
        if made.get("byte_fallback"):
            raise unsupported("model.byte_fallback", True)
        unknown = made["unk_id"]
        scores = dict(enumerate(made["vocab"]))
        for each in added:
            scores.setdefault(each.id, (each.content, 0.0))
        if sorted(scores) != list(range(len(scores))):
            raise unsupported("added_tokens", added[-1].write())
        pieces = [(*scores[index], NORMAL) for index in range(len(scores))]
        steps, spec.precompiled_charsmap, whitespace = _normalization(whole)
        spec.add_dummy_prefix = True
        spec.remove_extra_whitespaces = whitespace in ("model", "split")
        model.trainer_spec.model_type = UNIGRAM
        for each in added:
            # Around them are spaces, which are pieces already.
            if each.normalized and whitespace == "model":
                raise unsupported("added_tokens", each.write())
    for index, (piece, score, type_) in enumerate(pieces):
        is_hidden = piece in spelled and not is_forgeable
        type_ = CONTROL if is_hidden else type_
        type_ = UNKNOWN if index == unknown else type_
        model.pieces.add(piece=piece, score=score, type=type_)
    model.trainer_spec.unk_id = unknown
    ids = {piece: index for index, (piece, *_) in enumerate(pieces)}
    return {
        "model": model.SerializeToString(),
        **_groups(added),
        "normalization": steps,
        "whitespace": whitespace,
        **_around(whole, ids, language="language_token"),
    }


def _normalization(
    whole: Mapping[str, Any],
) -> tuple[Sequence[str], bytes, str]:
    """Returns the steps before the model's rules, these, and of white space."""
    normalizers = _parts(whole.get("normalizer"), "normalizers")
    kinds = [part["type"] for part in normalizers]
    # What the model does itself.
    first = len(kinds)
    if "Precompiled" in kinds:
        first = kinds.index("Precompiled")
    elif any(_is_like([part], [_SEVERAL]) for part in normalizers):
        first = 0
    steps = []
    for part in normalizers[:first]:
        known = (x for x in PARTS if _is_like([part], [PARTS[x]]))
        steps.append(next(known, ""))
        if not steps[-1]:
            raise unsupported("normalizer", part)
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
                raise unsupported("normalizer", part)
    parts = _parts(whole.get("pre_tokenizer"), "pretokenizers")
    splits = parts[:1] == [_SPLIT]
    usual = [{"prepend_scheme": "always", **x} for x in parts[splits:]]
    if not _is_like(usual, [metaspace()]) or not usual[0].get(
        "add_prefix_space", True
    ):
        raise unsupported("pre_tokenizer", whole.get("pre_tokenizer"))
    if splits:
        return steps, charsmap, "split"
    if collapses:
        return steps, charsmap, "model" if strips else "collapse"
    if strips:
        raise unsupported("normalizer", "Strip without Replace")
    return steps, charsmap, "keep"


def of_sentencepiece(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `SentencepieceTokenizer`."""

    def refused(what: str) -> ValueError:
        return ValueError(
            f"Tokenizer '{tokenizer.name}' has {what}, and no tokenizer.json "
            "of its kind reads texts that way"
        )

    if tokenizer.get_config()["vocabulary"] is not None:
        raise refused("a `vocabulary` of its own")
    read = model_class().FromString(tokenizer.model)
    spec, whitespace = read.normalizer_spec, tokenizer.whitespace
    steps: list[Any] = [
        PARTS[step] for step in tokenizer.normalization if step != GRAPHEMES
    ]
    added = _added_of(tokenizer, tokenizer.special_tokens, None)
    if read.trainer_spec.model_type == PAIRS:
        adds = bool(spec.add_dummy_prefix)
        known = _SPACES.get((whitespace, adds and whitespace == "model"))
        if steps or known is None:
            raise refused(f"whitespace={whitespace!r}")
        normalizers, words = known
        is_added = adds or whitespace != "model"
        return _file(
            _bpe(
                ids_of([each.piece for each in read.pieces]),
                _merges(read.pieces),
                unk_token=tokenizer.vocabulary[tokenizer.unknown_id],
                fuse_unk=True,
                byte_fallback=True,
            ),
            added,
            normalizer={"type": "Sequence", "normalizers": normalizers}
            if normalizers
            else None,
            pre_tokenizer=next(iter(words), None),
            decoder={
                "type": "Sequence",
                "decoders": [*_BACK, *[_NO_SPACE] * is_added],
            },
        )
    if whitespace in ("first", "always") or read.trainer_spec.byte_fallback:
        raise refused(f"whitespace={whitespace!r}")
    if rules := spec.precompiled_charsmap:
        encoded = base64.b64encode(rules).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if whitespace == "model":
        steps.append(PARTS["strip_right"])
    if whitespace in ("model", "collapse"):
        steps.append({**_SEVERAL, "content": _SPACE})
    words = [*[_SPLIT] * (whitespace == "split"), metaspace(split=True)]
    return _file(
        {
            "type": "Unigram",
            "unk_id": tokenizer.unknown_id,
            "vocab": [[each.piece, each.score] for each in read.pieces],
            "byte_fallback": False,
        },
        added,
        normalizer={"type": "Sequence", "normalizers": steps},
        pre_tokenizer={"type": "Sequence", "pretokenizers": words},
        decoder=metaspace(split=True),
    )


def _white_space_of_pairs(whole: Mapping[str, Any]) -> tuple[str, bool]:
    """Returns how BPE reads white space, and whether its model adds some."""
    steps = _parts(whole.get("normalizer"), "normalizers")
    words = _parts(whole.get("pre_tokenizer"), "pretokenizers")
    if steps == [_REPLACE] and [x.get("type") for x in words] == ["Split"]:
        words = []  # without effect: there are no spaces any more
    if not steps and _is_like(words, [metaspace("never", split=False)]):
        steps, words = [_REPLACE], []
    chosen = [
        key
        for key, known in _SPACES.items()
        if steps == known[0] and _is_like(words, known[1])
    ]
    if not chosen:
        is_known = any(steps == known for known, _ in _SPACES.values())
        part = "pre_tokenizer" if is_known else "normalizer"
        raise unsupported(part, whole.get(part))
    ((whitespace, adds),) = chosen
    back = [*_BACK, *[_NO_SPACE] * (adds or whitespace != "model")]
    decoder = whole.get("decoder")
    if decoder is not None and _parts(decoder, "decoders") != back:
        raise unsupported("decoder", decoder)
    return whitespace, adds


def _pieces_of_pairs(
    made: Mapping[str, Any], added: Sequence[Added]
) -> tuple[list[tuple[str, float, int]], int]:
    """Returns pieces of BPE with their scores and types, and the unknown.

    The file lists pairs of tokens in order of priority. A SentencePiece model
    has pieces with scores, and merges any neighbors that are a piece
    together, those with the highest score first. The two are the same if the
    file lists every pair that makes a piece, one piece after the other, as
    files do that were made from such a model.
    """
    _check_model(made, {**_BPE, "ignore_merges": (None, False)})
    ids = _ids(made["vocab"], added)
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
        {each.content for each in added if _SPACE not in each.content},
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


def _order(merges: Iterable[Any], never: Collection[str]) -> dict[str, int]:
    """Returns the pieces that merges make, with their places in the order."""

    def refused(what: str) -> ValueError:
        return ValueError(
            f"model.merges with {what}, of a tokenizer.json, were not made "
            "from a SentencePiece model, and are not byte-level BPE"
        )

    order: dict[str, int] = {}
    pairs = []
    last = None
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2:
            raise refused(f"{shown(merge)}, which is not a pair")
        left, right = parts
        piece = left + right
        if len(piece) > LONGEST:  # each place to divide it is checked
            raise refused(f"a piece of {len(piece):,} characters")
        if piece in never:
            continue
        pairs.append((piece, left, right))
        if piece != last:
            # Of a run of one character the order does not matter: it always
            # grows from the left.
            if piece in order and piece.strip(piece[0]):
                raise refused(f"{shown(piece)}, which is made in two places")
            order.setdefault(piece, len(order))
            last = piece
    known = {*order}.union(*(name for name in order))  # and characters
    listed = dict.fromkeys(order, 0)
    for piece, left, right in pairs:
        if left in known and right in known:
            listed[piece] += 1
    for piece, count in listed.items():
        possible = len(_divided(piece, known))
        if count != possible:
            raise refused(f"{count} of {possible} pairs that are {piece!r:.40}")
    return order


def _merges(pieces: Sequence[Any]) -> list[tuple[str, str]]:
    """Returns the pairs that make the pieces of a model, in their order."""
    ids = ids_of([each.piece for each in pieces])
    known = {each.piece for each in pieces if each.type == NORMAL}
    return [
        pair
        for each in sorted(pieces, key=lambda each: -each.score)
        if each.type == NORMAL
        for pair in sorted(
            _divided(each.piece, known), key=lambda pair: [ids[x] for x in pair]
        )
    ]


def _divided(piece: str, known: Set[str]) -> list[tuple[str, str]]:
    """Returns the pairs of known pieces that a piece can be divided into."""
    pairs = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
    return [pair for pair in pairs if {*pair} <= known]
