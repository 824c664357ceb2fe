"""The `tokenizer.json` of folders that have older files alone.

Of a SentencePiece model as transformers 5 makes it: it takes the pieces from
the model, renumbers those of XLM-R, mBART and CamemBERT, adds languages to
mBART's and sentinels to T5's, and has normalizers of its own for ALBERT, and
for DeBERTa and mBART, where it ignores the model's rules.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import (
    ADDED,
    MERGES,
    PAIRED,
    SPECIAL,
    VOCABULARY,
    Folder,
)
from keras_posenc.text.files import read_bytes
from keras_posenc.text.normalization_steps import PARTS
from keras_posenc.text.sentencepiece_model import (
    CONTROL,
    USER_DEFINED,
    model_class,
    pieces_of,
)
from keras_posenc.text.tokenizer_file import (
    Added,
    Frame,
    byte_level_file,
    ids_of,
    pieces_file,
    rules_of,
    wordpiece_file,
)

DECODER = "added_tokens_decoder"  # in the settings: tokens by their ids
# The tokens that transformers' classes name, and what they usually are.
_NAMES = ("cls", "sep", "pad", "unk", "mask")
_BERT = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
_XLM = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
# Of mBART, after the pieces.
_LANGUAGES = """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX
    kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN
    zh_CN
""".split()
# From a name, such as "cls_token", and the usual token to its settings.
Named = Callable[[str, str], Config]


class Model(NamedTuple):
    """How a class of transformers reads a SentencePiece model.

    Attributes:
        file: The name of the model's file.
        tokens: The usual tokens, by `_NAMES`.
        first: Pieces before the model's, with the names of tokens in braces.
        skipped: How many of the model's own these replace.
        has_start: Whether a text starts with the first token.
        has_types: Whether the second text of a pair has another type.
        has_rules: Whether texts are normalized by the model's rules.
        splits: Whether texts are split at white space first.
    """

    file: str
    tokens: Sequence[str | None] = _XLM
    first: str = ""
    skipped: int = 0
    has_start: bool = True
    has_types: bool = False
    has_rules: bool = True
    splits: bool = True


MODELS = {
    "Albert": Model(
        "spiece.model",
        ("[CLS]", "[SEP]", "<pad>", "<unk>", "[MASK]"),
        has_types=True,
    ),
    "Camembert": Model(
        "sentencepiece.bpe.model",
        first="<s>NOTUSED {pad} </s>NOTUSED {unk} <unk>NOTUSED",
        skipped=1,
    ),
    "DebertaV2": Model(
        "spm.model", _BERT, has_types=True, has_rules=False, splits=False
    ),
    "MBart": Model(
        "sentencepiece.bpe.model",
        first="{cls} {pad} {sep} {unk}",
        skipped=3,
        has_start=False,
        has_rules=False,
    ),
    "T5": Model(
        "spiece.model",
        (None, "</s>", "<pad>", "<unk>", None),
        has_start=False,
    ),
    "XLMRoberta": Model(
        "sentencepiece.bpe.model", first="{cls} {pad} {sep} {unk}", skipped=3
    ),
}


def described(
    folder: Folder, kind: str, settings: Config, named: Named
) -> dict[str, Any] | None:
    """Returns what a `tokenizer.json` would hold; None without older files."""
    if kind in MODELS and folder.has(MODELS[kind].file):
        return _of_model(folder, kind, settings, named)
    if folder.has(VOCABULARY):
        return _of_words(folder, kind, settings, named)
    if folder.has(PAIRED) and kind in ("Bart", "Roberta", ""):
        return _of_pairs(folder, settings, named)
    return None


def _of_words(
    folder: Folder, kind: str, settings: Config, named: Named
) -> dict[str, Any]:
    """Returns WordPiece; for ESM every token is split off, as letters are."""
    vocabulary = folder.lines(VOCABULARY)
    options: dict[str, Any] = {"normalization": "none"}
    usual, end = dict(zip(_NAMES, _BERT, strict=True)), "sep"
    if kind == "Esm":
        settings.expect("do_lower_case", False)
        vocabulary = [token.strip() for token in vocabulary]
        usual, end = {"cls": "<cls>", "eos": "<eos>", "unk": "<unk>"}, "eos"
    else:
        options = {
            "normalization": "bert",
            "lowercase": settings.take("do_lower_case", True, bool),
            "strip_accents": settings.take(
                "strip_accents", None, bool, type(None)
            ),
            "split_on_cjk": settings.take("tokenize_chinese_chars", True, bool),
        }
    ids = ids_of(vocabulary)
    tokens = {
        name: named(f"{name}_token", token).take("content", None, str)
        for name, token in usual.items()
    }
    spelled = vocabulary if kind == "Esm" else [*tokens.values()]
    added = {
        token: Added(ids[token], token, special=True)
        for token in spelled
        if token in ids
    }
    for number, each in settings.part(DECODER, {}).values.items():
        if isinstance(each, dict) and number.isdecimal():
            token = Added.read({**each, "id": int(number)})
            added[token.content] = token
    return wordpiece_file(
        vocabulary,
        [*added.values()],
        unknown_token=tokens["unk"],
        post_processor=Frame(tokens["cls"], tokens[end]).write(
            ids, 2 if kind == "MPNet" else 1, 1
        ),
        **options,
    )


def _of_pairs(folder: Folder, settings: Config, named: Named) -> dict[str, Any]:
    """Returns the byte-level BPE of RoBERTa."""
    ids, merges = folder.mapping(PAIRED), folder.lines(MERGES)
    plain = {"normalized": False}
    added = [
        _added(ids, {**named(f"{name}_token", usual).values, **plain})
        for name, usual in zip(_NAMES, _XLM, strict=True)
    ]
    return byte_level_file(
        ids,
        [x for x in merges if x and not x.startswith("#version")],
        added,
        add_prefix_space=settings.take("add_prefix_space", False, bool),
        post_processor=Frame(added[0].content, added[1].content).write(
            ids, 2, 0
        ),
    )


def _added(ids: Any, values: Any) -> Added:
    content = values.get("content")
    if content not in ids:
        raise ValueError(
            f"the token {content!r}, which the tokenizer's settings name, is "
            "not in its vocabulary"
        )
    return Added.read({"special": True, **values, "id": ids[content]})


def _of_model(
    folder: Folder, kind: str, settings: Config, named: Named
) -> dict[str, Any]:
    """Returns Unigram, of a SentencePiece model."""
    how = MODELS[kind]
    path = folder.file(how.file)
    content = read_bytes(path)
    try:
        pieces_of(content)
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error
    model = model_class().FromString(content)
    settings.expect("add_prefix_space", True)
    settings.expect("split_by_punct", False)
    tokens: dict[str, dict[str, Any]] = {}
    for name, usual in zip(_NAMES, how.tokens, strict=True):
        if usual is not None:
            key = "eos" if (kind, name) == ("T5", "sep") else name
            tokens[name] = dict(named(f"{key}_token", usual).values)
    if "mask" in tokens:
        tokens["mask"] = {
            "lstrip": kind in ("Camembert", "MBart"),
            "normalized": _is_only_added(folder, settings, how.tokens[-1]),
            **tokens["mask"],
        }
    names: dict[str, Any] = {
        name: values.get("content") for name, values in tokens.items()
    }
    first = how.first.format(**names).split()
    more: Sequence[str] = ()
    language = None
    if kind == "MBart":
        more, language = _LANGUAGES, settings.take("src_lang", "en_XX", str)
    elif kind == "T5":
        count = settings.take("extra_ids", 100, int)
        more = [f"<extra_id_{i}>" for i in reversed(range(count))]
    last = [*more, *([names["mask"]] if first else [])]
    vocabulary: list[Any] = [
        *([each, 0.0] for each in first),
        *([x.piece, x.score] for x in model.pieces[how.skipped :]),
        *([each, 0.0] for each in last),
    ]
    if kind == "Camembert":
        vocabulary[4][1] = -100.0  # "<unk>NOTUSED"
    ids = ids_of([piece for piece, _ in vocabulary])
    ids.setdefault(names.get("mask", ""), len(vocabulary))
    special = {
        each.piece: {"content": each.piece}
        for each in model.pieces
        if each.type in (CONTROL, USER_DEFINED)
    }
    special |= {each["content"]: each for each in tokens.values()}
    special |= {each: {"content": each} for each in more}
    start = names["cls"] if how.has_start else None
    rules = model.normalizer_spec.precompiled_charsmap
    return pieces_file(
        vocabulary,
        [_added(ids, each) for each in special.values()],
        int(ids.get(names["unk"], model.trainer_spec.unk_id)),
        normalizers=[
            *(PARTS[step] for step in _steps(kind, settings)),
            *rules_of(rules if how.has_rules else b""),
        ],
        splits=how.splits,
        post_processor=Frame(start, names["sep"], language).write(
            ids, 2 if start and not how.has_types else 1, int(how.has_types)
        ),
    )


def _is_only_added(folder: Folder, settings: Config, token: Any) -> bool:
    """Returns whether a token is in added_tokens.json, and named nowhere.

    Then transformers does not yet know that it is special, and looks for it in
    the normalized text.
    """
    names = [
        settings.values,
        folder.mapping(SPECIAL) if folder.has(SPECIAL) else {},
    ]
    return (
        folder.has(ADDED)
        and token in folder.mapping(ADDED)
        and DECODER not in settings.values
        and not any("mask_token" in each for each in names)
    )


def _steps(kind: str, settings: Config) -> list[str]:
    """Returns the steps before the model's rules."""
    lowers = settings.take("do_lower_case", kind == "Albert", bool)
    lower = ["lowercase"] * lowers
    if kind == "DebertaV2":
        return [*lower, "spaces", "nfc", "strip_right"]
    if kind != "Albert":
        return []
    keeps = settings.take("keep_accents", False, bool)
    accents = ["nfkd", "strip_accents"] * (not keeps)
    return ["backticks", "apostrophes", *accents, *lower]
