"""Reads byte-level BPE from Hugging Face's `tokenizer.json`."""

import os
import pathlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.text.byte_pair_words import pattern_of
from keras_posenc.text.byte_pairs import BYTES
from keras_posenc.text.files import read_json, shown

# Values that these keys of a model may have.
_MODEL: dict[str, Sequence[Any]] = {
    "type": (None, "BPE"),  # missing in older files
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (None, False),
}


def read_tokenizer(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns arguments of `BytePairTokenizer` from a `tokenizer.json`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file has a setting that is not supported.
    """
    file = pathlib.Path(os.path.expanduser(path))
    if not file.is_file():
        raise FileNotFoundError(
            f"`path` must be a file. Received: path={str(path)!r}, which is "
            "not a file."
        )
    return read_pairs(read_json(file), path)


def read_pairs(whole: Any, path: Any) -> dict[str, Any]:
    """Returns what `read_tokenizer` does, of the content of a file.

    Raises:
        ValueError: if the file has a setting that is not supported.
    """
    try:
        return _arguments(whole)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"'{path}' is not a complete tokenizer.json of type BPE: "
            f"{type(error).__name__}: {error}"
        ) from error


def _arguments(whole: Mapping[str, Any]) -> dict[str, Any]:
    model = whole["model"]
    for key, known in _MODEL.items():
        if model.get(key) not in known:
            raise _unsupported(f"model.{key}", model.get(key))
    ids = dict(model["vocab"])
    special: list[str] = []
    added: list[str] = []
    normalization = _normalization(whole.get("normalizer"))

    def is_nfc(name: str) -> bool:
        return unicodedata.is_normalized("NFC", name)

    for each in whole.get("added_tokens") or []:
        name = each["content"]
        # A space in front would mean: takes the white space before it.
        is_spaced = name.startswith(" ") and name.strip()
        if (
            each["single_word"]
            or each["rstrip"]
            or is_spaced
            or (each["lstrip"] and not name.strip())
            # Texts would have to be searched for its normalized form.
            or (normalization and each["normalized"] and not is_nfc(name))
            or ids.setdefault(name, each["id"]) != each["id"]
        ):
            raise _unsupported("added_tokens", each)
        spelled = " " * bool(each["lstrip"] and name.strip()) + name
        (added if each["normalized"] else special).append(spelled)
    for group in (special, added):
        white = [name for name in group if not name.strip()]
        # Which of the two takes white space depends on what is around.
        if white and any(" " == name[0] and name.strip() for name in group):
            raise _unsupported("added_tokens", white[0])
    if model.get("unk_token") is not None and not BYTES.keys() <= ids.keys():
        # In place of bytes that are left out here.
        raise _unsupported("model.unk_token", model["unk_token"])
    tokens = {number: token for token, number in ids.items()}
    if sorted(tokens) != list(range(len(ids))):
        raise _unsupported("model.vocab", "ids that are not 0, 1, 2, ...")
    start, end = _frame(whole.get("post_processor"), ids)
    padding = _padding(whole, ids)
    cut = whole.get("truncation") or {}
    if cut.get("direction", "Right") != "Right":
        raise _unsupported("truncation", cut)
    return {
        "vocabulary": [tokens[number] for number in range(len(tokens))],
        "merges": [
            each if isinstance(each, str) else " ".join(each)
            for each in model["merges"]
        ],
        "ignore_merges": bool(model.get("ignore_merges")),
        "normalization": normalization,
        **_words(whole.get("pre_tokenizer")),
        "start_token": start,
        "end_token": end,
        # A token of the frame would be masked with the padding.
        **({} if padding in (None, start, end) else {"pad_token": padding}),
        **({"max_length": cut["max_length"]} if cut else {}),
        "special_tokens": special,
        "added_tokens": added,
    }


def _normalization(normalizer: Any) -> str | None:
    match _parts(normalizer, "normalizers"):
        case []:
            return None
        case [{"type": "NFC"}]:
            return "nfc"
    raise _unsupported("normalizer", normalizer)


def _words(pre_tokenizer: Any) -> dict[str, Any]:
    match _parts(pre_tokenizer, "pretokenizers"):
        case [{"type": "ByteLevel", **rest}] if rest.get("use_regex", True):
            pattern: str | None = "gpt2"
        case [
            {
                "type": "Split",
                "pattern": {"Regex": expression},
                "behavior": "Isolated",
                "invert": False,
            },
            {"type": "ByteLevel", "use_regex": False, **rest},
        ] if (pattern := pattern_of(expression)) and not rest.get(
            "add_prefix_space"
        ):
            pass
        case [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", **rest},
        ] if rest.get("use_regex", True) and not rest["add_prefix_space"]:
            pattern = "smollm2"
        case _:
            raise _unsupported("pre_tokenizer", pre_tokenizer)
    return {
        "pattern": pattern,
        "add_prefix_space": bool(rest["add_prefix_space"]),
    }


def padding_of(whole: Mapping[str, Any], pad_id: int) -> int:
    """Returns the id of a padding token that is not also at texts' ends.

    Raises:
        ValueError: if padding has such an id, and no other token is reserved.
    """
    added = {
        each["id"]: each["content"] for each in whole.get("added_tokens") or []
    }
    ids = {**whole["model"]["vocab"], **{v: k for k, v in added.items()}}
    frame = _frame(whole.get("post_processor"), ids)
    if pad_id not in [ids[name] for name in frame if name is not None]:
        return pad_id
    for number, name in sorted(added.items()):
        if re.search("reserved|unused|pad", name) and name not in frame:
            return int(number)
    raise ValueError(
        f"padding has the id of {added.get(pad_id)!r}, which is also at the "
        "start or end of each text and would be masked there, and there is no "
        "reserved token to pad with instead"
    )


def _frame(processor: Any, ids: Mapping[str, int]) -> Sequence[str | None]:
    """Returns the tokens before and after a text."""
    parts = [
        part
        for part in _parts(processor, "processors")
        if part["type"] != "ByteLevel"  # affects offsets only
    ]
    match parts:
        case []:
            return None, None
        case [
            {
                "type": "RobertaProcessing" | "BertProcessing",
                "cls": [start, first],
                "sep": [end, last],
            }
        ] if (first, last) == (ids[start], ids[end]):
            return start, end
        case [{"type": "TemplateProcessing", "single": template} as part] if (
            all(
                _is_meant(each, part.get("special_tokens"), ids)
                for each in template
            )
        ):
            names = [
                each["SpecialToken"]["id"] if "SpecialToken" in each else None
                for each in template
            ]
            match names:
                case [None]:
                    return None, None
                case [None, str(end)]:
                    return None, end
                case [str(start), None]:
                    return start, None
                case [str(start), None, str(end)]:
                    return start, end
    raise _unsupported("post_processor", processor)


def _is_meant(part: Any, special: Any, ids: Mapping[str, int]) -> bool:
    """Returns whether a part is the text, or the one token of its name."""
    if "SpecialToken" not in part:
        return bool(part["Sequence"]["id"] == "A")
    name = part["SpecialToken"]["id"]
    return bool(special[name]["ids"] == [ids[name]])


def _padding(whole: Mapping[str, Any], ids: Mapping[str, int]) -> str | None:
    if setting := whole.get("padding"):
        name = str(setting["pad_token"])
        if setting.get("direction", "Right") != "Right" or (
            setting.get("pad_id", ids[name]) != ids[name]
        ):
            raise _unsupported("padding", setting)
        return name
    known = ("<pad>", "[PAD]", "<|padding|>", "<|pad|>")
    return next((name for name in known if name in ids), None)


def _parts(part: Any, name: str) -> Sequence[Any]:
    if part is None:
        return []
    return part[name] if part["type"] == "Sequence" else [part]


def _unsupported(name: str, value: Any) -> ValueError:
    return ValueError(
        "`path` must be a tokenizer.json of type BPE, byte-level, such as that "
        f"of RoBERTa. Received: {name}={shown(value)}."
    )
