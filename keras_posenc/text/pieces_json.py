"""WordPiece and SentencePiece as Hugging Face's `tokenizer.json`."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.text.normalization_steps import PARTS
from keras_posenc.text.sentencepiece_file import GRAPHEMES
from keras_posenc.text.sentencepiece_model import NORMAL, PAIRS, model_class
from keras_posenc.text.spelled_tokens import spelling
from keras_posenc.text.tokenizer_json import _file

_SPACE = "▁"


def _added(tokenizer: Any, special: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the tokens that texts may spell, in the order of their ids."""
    ids = _ids(tokenizer.vocabulary)
    found = [
        {
            "id": ids[spelling(token)],
            "content": spelling(token),
            "single_word": False,
            "lstrip": spelling(token) != token,
            "rstrip": False,
            "normalized": not is_special,
            "special": is_special,
        }
        for is_special, tokens in (
            (True, special),
            (False, tokenizer.added_tokens),
        )
        for token in tokens
    ]
    return sorted(found, key=lambda each: each["id"])


def of_wordpiece(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `WordpieceTokenizer`.

    Raises:
        ValueError: Hugging Face's library does not normalize texts that way.
    """
    if tokenizer.normalization == "tf_text":
        raise ValueError(
            f"Tokenizer '{tokenizer.name}' has normalization='tf_text', which "
            "Hugging Face's library does not have. Train with "
            "WordpieceTokenizer(..., normalization='bert')"
        )
    is_bert = tokenizer.normalization == "bert"
    return _file(
        added=_added(tokenizer, tokenizer._spelled),
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.split_on_cjk,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        }
        if is_bert
        else None,
        pre_tokenizer={
            "type": "BertPreTokenizer" if is_bert else "WhitespaceSplit"
        },
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        model={
            "type": "WordPiece",
            "unk_token": tokenizer.unknown_token,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": _ids(tokenizer.vocabulary),
        },
    )


def of_sentencepiece(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `SentencepieceTokenizer`.

    Raises:
        ValueError: Hugging Face's library does not read texts that way.
    """
    if tokenizer.get_config()["vocabulary"] is not None:
        raise _unsupported(tokenizer, "a `vocabulary` of its own")
    read = model_class().FromString(tokenizer.model)
    steps = [
        PARTS[step] for step in tokenizer.normalization if step != GRAPHEMES
    ]
    if read.trainer_spec.model_type == PAIRS:
        return _of_piece_pairs(tokenizer, read, steps)
    spec, whitespace = read.normalizer_spec, tokenizer.whitespace
    if whitespace in ("first", "always") or read.trainer_spec.byte_fallback:
        raise _unsupported(tokenizer, f"whitespace={whitespace!r}")
    if spec.precompiled_charsmap:
        encoded = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if whitespace == "model":
        steps.append(
            {"type": "Strip", "strip_left": False, "strip_right": True}
        )
    if whitespace in ("model", "collapse"):
        several = {"Regex": " {2,}"}
        steps.append({"type": "Replace", "pattern": several, "content": _SPACE})
    meta = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always",
        "split": True,
    }
    splits = [{"type": "WhitespaceSplit"}] * (whitespace == "split")
    return _file(
        added=_added(tokenizer, tokenizer.special_tokens),
        normalizer={"type": "Sequence", "normalizers": steps},
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [*splits, meta],
        },
        decoder=meta,
        model={
            "type": "Unigram",
            "unk_id": tokenizer.unknown_id,
            "vocab": [[each.piece, each.score] for each in read.pieces],
            "byte_fallback": False,
        },
    )


def _of_piece_pairs(
    tokenizer: Any, read: Any, steps: Sequence[Any]
) -> dict[str, Any]:
    """Returns BPE with a fallback to bytes, as in Llama 2 and Gemma."""
    spaces = {
        "type": "Replace",
        "pattern": {"String": " "},
        "content": _SPACE,
    }
    adds = read.normalizer_spec.add_dummy_prefix
    scheme = tokenizer.whitespace
    back: list[dict[str, Any]] = [
        {**spaces, "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds or scheme != "model":
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    if steps or scheme not in ("model", "first", "always"):
        raise _unsupported(tokenizer, f"whitespace={scheme!r}")
    normalizer: Any = {
        "type": "Sequence",
        "normalizers": [
            *[{"type": "Prepend", "prepend": _SPACE}] * adds,
            spaces,
        ],
    }
    pre_tokenizer = None
    if scheme != "model":
        normalizer, pre_tokenizer = (
            None,
            {
                "type": "Metaspace",
                "replacement": _SPACE,
                "prepend_scheme": scheme,
                "split": False,
            },
        )
    ids = _ids([each.piece for each in read.pieces])
    known = {each.piece for each in read.pieces if each.type == NORMAL}
    merges = []
    for each in sorted(read.pieces, key=lambda each: -each.score):
        piece = each.piece
        pairs = [
            (piece[:at], piece[at:])
            for at in range(1, len(piece))
            if each.type == NORMAL
            and piece[:at] in known
            and piece[at:] in known
        ]
        merges += sorted(pairs, key=lambda pair: [ids[x] for x in pair])
    return _file(
        added=_added(tokenizer, tokenizer.special_tokens),
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        decoder={"type": "Sequence", "decoders": back},
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": tokenizer.vocabulary[tokenizer.unknown_id],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    )


def _ids(tokens: Sequence[str]) -> Mapping[str, int]:
    # Of a piece that occurs twice the first one counts.
    return {token: index for index, token in reversed([*enumerate(tokens)])}


def _unsupported(tokenizer: Any, what: str) -> ValueError:
    return ValueError(
        f"Tokenizer '{tokenizer.name}' has {what}, and no tokenizer.json of "
        "its kind reads texts that way"
    )
