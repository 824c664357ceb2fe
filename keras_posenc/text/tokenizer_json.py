"""Our tokenizers as Hugging Face's `tokenizer.json`.

Without the tokens before and after each text, padding and lengths: a runtime
adds what it needs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.text.byte_pair_words import expression_of
from keras_posenc.text.byte_pairs import BYTES

# No text spells these by chance. An application may, to start a text.
_NEVER_SPELLED = "<|keras_posenc:{}|>"


def _file(
    model: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]] = (),
    **parts: Any,
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda each: each["id"]),
        "normalizer": parts.get("normalizer"),
        "pre_tokenizer": parts.get("pre_tokenizer"),
        "post_processor": None,
        "decoder": parts.get("decoder"),
        "model": model,
    }


def _added(
    number: int, content: str, *, special: bool, **options: bool
) -> dict[str, Any]:
    return {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": not special,
        "special": special,
        **options,
    }


def of_byte_pairs(tokenizer: Any) -> dict[str, Any]:
    """Returns the file of a `BytePairTokenizer`."""
    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    skipped = {*tokenizer.skipped_tokens}
    added = []
    for group, normalized in (
        (tokenizer.special_tokens, False),
        (tokenizer.added_tokens, True),
    ):
        for token in group:
            # A space in front means that the token takes all white space there.
            spaced = token.startswith(" ") and bool(token.strip())
            name = token[1:] if spaced else token
            added.append(
                _added(
                    ids[name],
                    name,
                    special=name in skipped,
                    normalized=normalized,
                    lstrip=spaced,
                )
            )
    known = {each["content"] for each in added}
    frame = (tokenizer.start_token, tokenizer.end_token, tokenizer.pad_token)
    named = {*known, *(each for each in frame if each is not None)}
    bytewise = {
        "type": "ByteLevel",
        "add_prefix_space": tokenizer.add_prefix_space,
        "trim_offsets": True,
        "use_regex": False,
    }
    split = {
        "type": "Split",
        "pattern": {"Regex": expression_of(tokenizer.pattern)},
        "behavior": "Isolated",
        "invert": False,
    }
    steps: list[dict[str, Any]] = [split, bytewise]
    if tokenizer.pattern in ("gpt2", "smollm2"):
        steps = [{**bytewise, "use_regex": True}]
    if tokenizer.pattern == "smollm2":
        steps = [{"type": "Digits", "individual_digits": True}, *steps]
    nfc = {"type": "NFC"} if tokenizer.normalization else None
    return _file(
        {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": tokenizer.ignore_merges,
            # Texts cannot spell tokens of the frame that are not special.
            "vocab": {
                _NEVER_SPELLED.format(t) if t in named - known else t: i
                for t, i in ids.items()
            },
            "merges": [pair.split(" ") for pair in tokenizer.merges],
        },
        [
            *added,
            *(
                _added(ids[t], _NEVER_SPELLED.format(t), special=True)
                for t in sorted(named - known)
            ),
        ],
        normalizer=nfc,
        pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
        decoder={**bytewise, "use_regex": True},
    )


def _spelled(text: str) -> str:
    """Returns a text with one character for each byte, as vocabularies do."""
    characters = {byte: char for char, byte in BYTES.items()}
    return "".join(characters[byte] for byte in text.encode())


def _framing(tokenizer: Any) -> list[dict[str, Any]]:
    """Returns padding, start and end, which no text spells."""
    ids = {
        "pad": tokenizer.pad_id,
        "start": tokenizer.start_id,
        "end": tokenizer.end_id,
    }
    return [
        _added(number, _NEVER_SPELLED.format(name), special=True)
        for name, number in ids.items()
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
    return _file(
        {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {
                # A token has its id by the vocabulary alone.
                **{each["content"]: each["id"] for each in framing},
                # Without merges no text makes it, and it is read as U+FFFD.
                _spelled("\ufffd"): tokenizer.unknown_id,
                **{
                    char: byte + tokenizer.first_id
                    for char, byte in BYTES.items()
                },
            },
            "merges": [],
        },
        framing,
        pre_tokenizer=bytewise,
        decoder=bytewise,
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
                **{each["content"]: each["id"] for each in framing},
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
