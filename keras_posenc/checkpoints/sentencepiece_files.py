"""The `tokenizer.json` of a folder that has a SentencePiece model alone.

As transformers 5 makes it: it takes the pieces from the model, renumbers those
of XLM-R, mBART and CamemBERT, adds languages to mBART's and sentinels to T5's,
and has normalizers of its own for ALBERT, and for DeBERTa and mBART, where it
ignores the model's rules.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.text.files import read_bytes
from keras_posenc.text.sentencepiece_model import (
    CONTROL,
    USER_DEFINED,
    model_class,
    pieces_of,
)

# By the beginning of `tokenizer_class`, or by `model_type`: the file, the
# tokens at the start and the end of a text, of padding, unknown and masked.
_BERT = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
_XLM = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
_KINDS: dict[str, tuple[str, Sequence[str | None]]] = {
    "Albert": ("spiece.model", ("[CLS]", "[SEP]", "<pad>", "<unk>", "[MASK]")),
    "Camembert": ("sentencepiece.bpe.model", _XLM),
    "DebertaV2": ("spm.model", _BERT),
    "MBart": ("sentencepiece.bpe.model", _XLM),
    "T5": ("spiece.model", (None, "</s>", "<pad>", "<unk>", None)),
    "XLMRoberta": ("sentencepiece.bpe.model", _XLM),
}
_OF_TYPES = {
    "albert": "Albert",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "mbart": "MBart",
    "t5": "T5",
    "xlm-roberta": "XLMRoberta",
}
# Of mBART, after the pieces.
_LANGUAGES = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX
    kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN
    zh_CN
""".split()
_SPLIT = {"type": "WhitespaceSplit"}
_META = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}


def kind_of(settings: Mapping[str, Any], model_type: Any) -> str | None:
    """Returns the kind of tokenizer that is made of a SentencePiece model."""
    name = str(settings.get("tokenizer_class") or "")
    name = name.removesuffix("Fast").removesuffix("Tokenizer")
    name = name or _OF_TYPES.get(str(model_type), "")
    return name if name in _KINDS else None


def described(
    folder: Folder, kind: str, settings: Config, named: Any
) -> dict[str, Any] | None:
    """Returns what a `tokenizer.json` would hold; None without a model.

    Args:
        folder: The folder.
        kind: As `kind_of` returns it.
        settings: The tokenizer's settings.
        named: A function from a name, such as "cls_token", and its usual token
            to the token's settings, a `Config`.

    Raises:
        ValueError: The model, or a setting, is not supported.
    """
    file, usual = _KINDS[kind]
    if not folder.has(file):
        return None
    path = folder.file(file)
    content = read_bytes(path)
    try:
        pieces_of(content)
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error
    model = model_class().FromString(content)
    settings.expect("add_prefix_space", True)
    settings.expect("split_by_punct", False)
    tokens: dict[str, dict[str, Any]] = {}
    names = ("cls", "eos" if kind == "T5" else "sep", "pad", "unk", "mask")
    for name, token in zip(names, usual, strict=True):
        if token is None:
            tokens[name] = {"content": None}
            continue
        values = dict(named(f"{name}_token", token).values)
        if kind in ("Camembert", "MBart") and name == "mask":
            values = {"lstrip": True, **values}
        if name == "mask" and _is_only_added(folder, settings, token):
            values = {"normalized": True, **values}
        tokens[name] = values
    start, end, padding, unknown, masked = (
        values.get("content") for values in tokens.values()
    )
    vocabulary = [[each.piece, each.score] for each in model.pieces]
    unk_id = model.trainer_spec.unk_id
    more: Sequence[str] = ()
    language = []
    if kind in ("XLMRoberta", "MBart"):
        first = [start, padding, end, unknown]
        vocabulary = [*([each, 0.0] for each in first), *vocabulary[3:]]
        if kind == "MBart":
            more = _LANGUAGES
            language = [(settings.take("src_lang", "en_XX", str), 0)]
        vocabulary += [[each, 0.0] for each in (*more, masked)]
        unk_id = 3
    elif kind == "T5":
        count = settings.take("extra_ids", 100, int)
        more = [f"<extra_id_{i}>" for i in reversed(range(count))]
        vocabulary += [[each, 0.0] for each in more]
    elif kind == "Camembert":
        first = ["<s>NOTUSED", padding, "</s>NOTUSED", unknown]
        vocabulary = [*([each, 0.0] for each in first), *vocabulary[1:]]
        vocabulary[4:4] = [["<unk>NOTUSED", -100.0]]
        vocabulary.append([masked, 0.0])
        unk_id = 3
    elif kind == "Albert":
        unk_id = 1
    elif [unknown, 0.0] in vocabulary:
        unk_id = vocabulary.index([unknown, 0.0])
    ids = {piece: i for i, (piece, _) in reversed([*enumerate(vocabulary)])}
    if masked is not None:
        ids.setdefault(masked, len(vocabulary))
    special: dict[Any, dict[str, Any]] = {
        each.piece: {"content": each.piece}
        for each in model.pieces
        if each.type in (CONTROL, USER_DEFINED)
    }
    special |= {
        each["content"]: each
        for each in (*tokens.values(), *({"content": each} for each in more))
        if each["content"] is not None
    }
    has_start = kind not in ("MBart", "T5")
    frame = [*[(start, 0)] * has_start, ("A", 0), (end, 0), *language]
    is_typed = kind in ("Albert", "DebertaV2")
    pair = [*frame, ("B", int(is_typed)), (end, int(is_typed))]
    if not is_typed and has_start:
        pair[3:3] = [(end, 0)]
    charsmap = model.normalizer_spec.precompiled_charsmap
    rules = {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(charsmap).decode(),
    }
    return {
        "model": {"type": "Unigram", "unk_id": unk_id, "vocab": vocabulary},
        "added_tokens": [
            {
                "id": ids.get(content),
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
                **values,
            }
            for content, values in special.items()
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *_normalizers(kind, settings),
                *[rules]
                * bool(charsmap and kind not in ("DebertaV2", "MBart")),
            ],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*[_SPLIT] * (kind != "DebertaV2"), _META],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_part(*each) for each in frame],
            "pair": [_part(*each) for each in pair],
            "special_tokens": {
                each: {"id": each, "ids": [ids.get(each)], "tokens": [each]}
                for each, _ in frame
                if each != "A"
            },
        },
        "padding": {"pad_token": padding, "pad_id": ids.get(padding)},
    }


def _is_only_added(folder: Folder, settings: Config, token: str) -> bool:
    """Returns whether a token is in added_tokens.json, and named nowhere.

    Then transformers does not yet know that it is special, and looks for it in
    the normalized text.
    """
    more, added = "special_tokens_map.json", "added_tokens.json"
    names = [settings.values, folder.mapping(more) if folder.has(more) else {}]
    return (
        folder.has(added)
        and token in folder.mapping(added)
        and "added_tokens_decoder" not in settings.values
        and not any("mask_token" in each for each in names)
    )


def _normalizers(kind: str, settings: Config) -> list[dict[str, Any]]:
    lowers = settings.take("do_lower_case", kind == "Albert", bool)
    lower = [{"type": "Lowercase"}] * lowers
    if kind == "DebertaV2":
        spaces = {"Regex": r"\s{2,}|[\n\r\t]"}
        return [
            *lower,
            {"type": "Replace", "pattern": spaces, "content": " "},
            {"type": "NFC"},
            {"type": "Strip", "strip_left": False, "strip_right": True},
        ]
    if kind != "Albert":
        return []
    keeps = settings.take("keep_accents", False, bool)
    return [
        *(
            {"type": "Replace", "pattern": {"String": pair}, "content": '"'}
            for pair in ("``", "''")
        ),
        *[{"type": "NFKD"}, {"type": "StripAccents"}] * (not keeps),
        *lower,
    ]


def _part(name: str, kind: int) -> dict[str, Any]:
    key = "Sequence" if name in ("A", "B") else "SpecialToken"
    return {key: {"id": name, "type_id": kind}}
