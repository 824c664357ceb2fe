"""Tokenizers of SentencePiece's kinds, from Hugging Face's `tokenizer.json`."""

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_posenc.text.normalization_steps import steps_of
from keras_posenc.text.sentencepiece_model import (
    CONTROL,
    NORMAL,
    PAIRS,
    UNIGRAM,
    UNKNOWN,
    model_class,
)
from keras_posenc.text.sentencepiece_pairs import (
    NO_RULES,
    parts_of,
    pieces_of_pairs,
    unsupported,
    white_space_of_pairs,
)

# A step of `SentencepieceTokenizer`: see graphemes.py.
GRAPHEMES = "graphemes"


def read_pieces(
    whole: Any, path: Any, is_forgeable: bool = True
) -> tuple[bytes, dict[str, Any]]:
    """Returns what `convert_tokenizer` does of the content of a file.

    Raises:
        ValueError: if the file is not whole, or not supported.
    """
    try:
        return convert_tokenizer(whole, is_forgeable)
    except (
        *(AttributeError, IndexError, KeyError, OverflowError, TypeError),
        binascii.Error,
    ) as error:
        raise ValueError(
            f"'{path}' is not a complete tokenizer.json of type Unigram or "
            f"BPE: "
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
    made = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    is_pairs = made.get("type") == "BPE"
    for each in added:
        # The library looks for the normalized form of such a token.
        is_other = each["normalized"] and (
            is_pairs or not each["content"].isascii()
        )
        if each["single_word"] or each["rstrip"] or is_other:
            raise unsupported("added_tokens", each)
    spelled = {each["content"] for each in added}
    model = model_class()()
    spec = model.normalizer_spec
    spec.escape_whitespaces, spec.remove_extra_whitespaces = True, False
    steps: Sequence[str] = ()
    if is_pairs:
        pieces, unknown = pieces_of_pairs(made, added)
        whitespace, spec.add_dummy_prefix = white_space_of_pairs(tokenizer)
        spec.precompiled_charsmap = NO_RULES
        model.trainer_spec.model_type = PAIRS
        model.trainer_spec.byte_fallback = True
    else:
        if made.get("type") != "Unigram" or made.get("byte_fallback"):
            raise unsupported("model", made.get("type"))
        unknown = made["unk_id"]
        scores = dict(enumerate(made["vocab"]))
        for each in added:
            scores.setdefault(each["id"], (each["content"], 0.0))
        if sorted(scores) != list(range(len(scores))):
            raise unsupported("added_tokens", added[-1])
        pieces = [(*scores[index], NORMAL) for index in range(len(scores))]
        steps, spec.precompiled_charsmap, whitespace = _normalization(tokenizer)
        spec.add_dummy_prefix = True
        spec.remove_extra_whitespaces = whitespace in ("model", "split")
        model.trainer_spec.model_type = UNIGRAM
        for each in added:
            # Around them are spaces, which are pieces already.
            if each["normalized"] and whitespace == "model":
                raise unsupported("added_tokens", each)
    for index, (piece, score, kind) in enumerate(pieces):
        is_hidden = piece in spelled and not is_forgeable
        kind = CONTROL if is_hidden else kind
        kind = UNKNOWN if index == unknown else kind
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.unk_id = unknown
    ids = {piece: index for index, (piece, *_) in enumerate(pieces)}
    start, end, language = _frame(tokenizer.get("post_processor"), ids)
    return model.SerializeToString(), {
        "start_token": start,
        "end_token": end,
        "language_token": language,
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
    normalizers = parts_of(tokenizer.get("normalizer"), "normalizers")
    kinds = [part["type"] for part in normalizers]
    # What the model does itself.
    first = len(kinds)
    if "Precompiled" in kinds:
        first = kinds.index("Precompiled")
    elif {"Regex": " {2,}"} in [part.get("pattern") for part in normalizers]:
        first = 0
    steps = steps_of(normalizers[:first])
    if steps is None:
        raise unsupported("normalizer", normalizers[:first])
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
    parts = parts_of(tokenizer.get("pre_tokenizer"), "pretokenizers")
    splits = parts[:1] == [{"type": "WhitespaceSplit"}]
    match parts[splits:]:
        case [{"type": "Metaspace", "replacement": "▁", **rest}] if rest.get(
            "prepend_scheme", "always"
        ) == "always" and rest.get("add_prefix_space", True):
            pass
        case _:
            raise unsupported("pre_tokenizer", tokenizer.get("pre_tokenizer"))
    if splits:
        return steps, charsmap, "split"
    if collapses:
        return steps, charsmap, "model" if strips else "collapse"
    if strips:
        raise unsupported("normalizer", "Strip without Replace")
    return steps, charsmap, "keep"


def _padding(tokenizer: Mapping[str, Any], names: Collection[str]) -> str:
    if setting := tokenizer.get("padding"):
        return setting["pad_token"]
    return "[PAD]" if "[PAD]" in names else "<pad>"


def _frame(processor: Any, ids: Mapping[str, int]) -> Sequence[str | None]:
    """Returns the tokens before and after a text, and that of its language.

    Their ids in the file must be those of pieces.
    """
    match processor:
        case None:
            return None, None, None
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
                    raise unsupported("post_processor", processor)
            match names:
                case [None]:
                    return None, None, None
                case [None, str(end)]:
                    return None, end, None
                case [None, str(end), str(language)]:
                    return None, end, language
                case [str(start), None]:
                    return start, None, None
                case [str(start), None, str(end)]:
                    return start, end, None
        case {
            "type": "RobertaProcessing" | "BertProcessing",
            "cls": [start, first],
            "sep": [end, last],
        } if (first, last) == (ids.get(start), ids.get(end)):
            return start, end, None
    raise unsupported("post_processor", processor)
