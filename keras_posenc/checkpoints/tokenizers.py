"""The tokenizer of a checkpoint, as a layer that gives the same ids."""

import itertools
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import (
    ADDED,
    CONFIG,
    MODULES,
    PAIRED,
    SETTINGS,
    SPECIAL,
    VOCABULARY,
    WHOLE,
    Folder,
)
from keras_posenc.checks import check_index, check_positive
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.byte_pair_tokenizer import BytePairTokenizer
from keras_posenc.text.files import read_json, shown
from keras_posenc.text.sentencepiece_tokenizer import SentencepieceTokenizer
from keras_posenc.text.tokenizer_file import (
    BYTE_LEVEL,
    FALLBACK,
    PIECES,
    WORDPIECE,
    Frame,
    check_decoder,
    in_order,
    kind_of,
    pairing,
    read,
)
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer

_PIECES = "sentencepiece.bpe.model"
# The pieces of Marian, whose ids are those of PAIRED.
_SOURCE = "source.spm"
DECODER = "added_tokens_decoder"  # in the settings: tokens by their ids
# Where sentence-transformers writes the length: the name depends on the model.
LENGTHS = tuple(
    f"sentence_{kind}_config.json"
    for kind in (
        *("bert", "roberta", "distilbert", "camembert", "albert"),
        *("xlm-roberta", "xlnet"),
    )
)
# Names of special tokens, which texts may spell, in all files.
_NAMES = (
    *(f"{name}_token" for name in "bos eos unk sep pad cls mask".split()),
    "additional_special_tokens",
    "extra_special_tokens",
)
# Lengths from here on mean that there is no limit.
_NO_LENGTH = 10**6
_FROM_IDS = "`from_ids=True` makes a model that needs none"
_ELSEWHERE = (
    "In any environment with transformers and sentencepiece, AutoTokenizer."
    "from_pretrained(FOLDER).save_pretrained(FOLDER) writes it"
)
_LAYERS: dict[str, Any] = {
    BYTE_LEVEL: BytePairTokenizer,
    FALLBACK: SentencepieceTokenizer,
    PIECES: SentencepieceTokenizer,
    WORDPIECE: WordpieceTokenizer,
}
# Classes of transformers' tokenizers that do what their files say: without
# looking at the names of the tokens around a text; with one type for both texts
# of a pair; and with a normalizer that the settings repeat.
_AS_THE_FILE_SAYS = ("PreTrained", "TokenizersBackend")
_OF_ONE_TYPE = (
    *("Camembert", "DistilBert", "MPNet", "Roberta", "TokenizersBackend"),
    "XLMRoberta",
)
_NORMALIZES = ("Albert", "DebertaV2")
_CLASSES = (
    *(*_AS_THE_FILE_SAYS, *_OF_ONE_TYPE, *_NORMALIZES, "Bart", "Bert"),
    *("Electra", "Esm", "GPT2", "Gemma", "Llama", "MBart", "MBart50"),
    *("Marian", "Qwen2", "T5"),
)


def _class_of(folder: Folder, settings: Config) -> str:
    key = "tokenizer_class"
    # In older checkpoints the config has it.
    for file in (settings, _opened(folder, CONFIG)):
        given = file.take(key, None, str, type(None))
        if given is not None:
            name = given.removesuffix("Fast").removesuffix("Tokenizer")
            if name not in _CLASSES:
                raise file.wrong(
                    key,
                    f"{given} may split texts in its own way, which is not "
                    "supported. `from_ids=True` makes a model of the ids "
                    "that it gives",
                )
            return name
    return ""


def pairing_of(folder: Folder) -> tuple[int, bool]:
    """Returns how a folder's tokenizer joins two texts, as `pairing` does."""
    complete(folder, VOCABULARY)
    settings = _opened(folder, SETTINGS)
    name = _class_of(folder, settings)
    if not folder.has(WHOLE):
        raise _without_file(folder)
    inputs = settings.values.get("model_input_names")
    is_typed = name not in _OF_ONE_TYPE
    if isinstance(inputs, list):
        is_typed = "token_type_ids" in inputs
    try:
        count, has_types = pairing(folder.mapping(WHOLE)["post_processor"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"'{folder.path / WHOLE}': {error}") from error
    return count, is_typed and has_types


def complete(folder: Folder, *also: str) -> None:
    """Gives a folder of older files the `tokenizer.json` of transformers.

    `also` are files that are read here, and not enough.
    """
    if any(map(folder.has, {WHOLE, _SOURCE, VOCABULARY} - {*also})):
        return
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return
    with tempfile.TemporaryDirectory() as made:
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                str(folder.path), local_files_only=True, trust_remote_code=False
            )
            tokenizer.save_pretrained(made)
            folder.give(WHOLE, read_json(Path(made, WHOLE)))
        except Exception as error:  # whatever it raises for its many kinds
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"'{folder.path}' has no {WHOLE}, and transformers does not "
                f"make it here: {reason}. {_ELSEWHERE}. Or {_FROM_IDS}"
            ) from error


def _without_file(folder: Folder) -> FileNotFoundError:
    return FileNotFoundError(
        f"'{folder.path}' has no {WHOLE}. Files of an older tokenizer are read "
        f"by transformers, if it is installed. {_ELSEWHERE}. Or {_FROM_IDS}"
    )


def tokenizer_of(
    folder: Folder,
    encoder: Any,
    *,
    num_separators: int | None = None,
    generates: bool = False,
    of_targets: bool = False,
) -> Tokenizer:
    """Returns a layer that gives the ids that the model was trained on.

    Texts are cut at the length in the checkpoint, and never beyond the model's
    table of positions; of a model that `generates` at the latter alone. Its
    `detokenize` leaves out special tokens, as transformers does by default.
    `encoder` is a model, or has its `pad_id`, `vocabulary_size` and
    `input_position`; `of_targets` is for texts that are generated, where these
    have a tokenizer of their own.
    """
    complete(folder)
    settings = _opened(folder, SETTINGS)
    listed = opened(folder, WHOLE).get("added_tokens") or []
    if folder.has(WHOLE) and generates:
        _leave_out(folder, settings, encoder.vocabulary_size)
    check_size(folder, encoder.vocabulary_size)
    name = _class_of(folder, settings)
    settings.expect("do_basic_tokenize", True)
    settings.expect("never_split", None, [])
    settings.expect("split_special_tokens", False)
    # A model that generates cuts nothing. One in which every id is a token
    # takes texts that are padded on either side.
    if not generates:
        settings.expect("truncation_side", "right")
    if not generates and encoder.pad_id >= 0:
        settings.expect("padding_side", "right")
    layer: Tokenizer
    named: dict[str, Any] = {
        "max_length": _longest(folder, settings, encoder, generates),
        "num_separators": num_separators,
        "name": "tokenizer",
    }
    try:
        if generates:
            named["skipped_tokens"] = _skipped(folder, settings)
        if folder.has(_SOURCE):
            layer = _marian(folder, settings, encoder, named, of_targets)
        elif folder.has(WHOLE):
            layer = _of_file(folder, settings, name, encoder, named)
        elif folder.has(VOCABULARY) and encoder.pad_id >= 0:
            layer = words = _of_words(folder, settings, encoder, named)
            listed = [
                {"content": token, "id": words.vocabulary.index(token)}
                for token in words.special_tokens or ()
            ]
        else:
            raise _without_file(folder)
        by_names = not generates and name not in _AS_THE_FILE_SAYS
        if isinstance(layer, BytePairTokenizer):
            by_names = by_names and name in ("Bart", "Roberta")
        _check_frame(settings, layer, by_names, opened(folder, SPECIAL))
        if not folder.has(_SOURCE):
            _check_added(folder, settings, listed)
    except ValueError as error:
        raise ValueError(
            f"'{folder.path}' makes no tokenizer: {error}"
        ) from error
    if layer.pad_id >= 0 and layer.pad_id in (layer.start_id, layer.end_id):
        raise ValueError(
            f"'{folder.path}' pads with id {layer.pad_id}, which also starts "
            "or ends each text, where it would be masked as padding: "
            "`from_ids=True`, with the id of another token as `pad_id`, makes "
            "a model that needs no tokenizer"
        )
    return layer


def _of_file(
    folder: Folder,
    settings: Config,
    name: str,
    encoder: Any,
    named: Mapping[str, Any],
) -> Tokenizer:
    """Returns a tokenizer from `tokenizer.json`, to which settings agree."""
    whole, pad_id = dict(folder.mapping(WHOLE)), encoder.pad_id
    if pad_id < 0:
        whole["padding"] = None
    kind, options = read(whole, folder.path / WHOLE)
    lowers = _sentence_config(folder).take("do_lower_case", False, bool)
    # Present twice: some libraries read one, some the other.
    agrees: dict[str, Any] = {}
    if kind == BYTE_LEVEL:
        agrees["add_prefix_space"] = options["add_prefix_space"]
        if pad_id >= 0:
            pad_id = text_padding(folder, pad_id)
    elif kind == WORDPIECE:
        is_lowered = options.pop("is_lowered") or lowers
        if options["normalization"] == "bert":
            agrees = {
                "do_lower_case": options["lowercase"],
                "strip_accents": options["strip_accents"],
                "tokenize_chinese_chars": options["split_on_cjk"],
            }
            if is_lowered:  # before the normalizer, accents kept
                if options["strip_accents"] is None:
                    options["strip_accents"] = options["lowercase"]
                options["lowercase"] = True
    else:
        steps = options["normalization"]
        if name in _NORMALIZES:
            agrees = {
                "do_lower_case": "lowercase" in steps,
                "keep_accents": "strip_accents" not in steps,
                "split_by_punct": False,
            }
        if lowers and "lowercase" not in steps:
            options["normalization"] = ["lowercase", *steps]
    if lowers and (kind == BYTE_LEVEL or options["normalization"] == "none"):
        raise _sentence_config(folder).wrong(
            "do_lower_case",
            "true is not supported with a tokenizer that normalizes nothing",
        )
    for key, value in agrees.items():
        found = settings.take(key, value)
        if found != value:
            raise settings.wrong(
                key,
                f"{shown(found)} contradicts '{folder.path / WHOLE}', which "
                f"has {shown(value)}. Correct the file that is wrong",
            )
    if "skipped_tokens" in named:
        check_decoder(whole, kind)
        if kind == PIECES:
            options["clean_up_spaces"] = _cleans_up(settings)
    if kind == WORDPIECE and pad_id < 0:
        raise ValueError(
            f"the tokenizer of a model without padding must be {PIECES} or "
            f"{BYTE_LEVEL}, and this one is {WORDPIECE}: {_FROM_IDS}"
        )
    tokens = options.get("vocabulary") or {
        index: token for token, index in vocabulary_of(folder).items()
    }
    options["pad_token"] = _padding(tokens, pad_id)
    layer: Tokenizer = _LAYERS[kind](**{**options, **named})
    return layer


def _cleans_up(settings: Config) -> bool:
    kinds = bool, type(None)
    return bool(settings.take("clean_up_tokenization_spaces", None, *kinds))


def _of_words(
    folder: Folder, settings: Config, encoder: Any, named: Mapping[str, Any]
) -> WordpieceTokenizer:
    """Returns WordPiece from `vocab.txt`; for ESM each token is split off."""
    vocabulary = folder.lines(VOCABULARY)
    options: dict[str, Any]
    if opened(folder, CONFIG).get("model_type") == "esm":
        settings.expect("do_lower_case", False)
        vocabulary = [token.strip() for token in vocabulary]
        options = {"normalization": "none", "lowercase": False}
        options["special_tokens"] = vocabulary
        tokens = [
            _token(folder, settings, name, f"<{name}>")
            for name in ("cls", "eos", "unk")
        ]
    else:
        options = {
            "normalization": "bert",
            "lowercase": settings.take("do_lower_case", True, bool),
            "strip_accents": settings.take(
                "strip_accents", None, bool, type(None)
            ),
            "split_on_cjk": settings.take("tokenize_chinese_chars", True, bool),
        }
        tokens = [
            _token(folder, settings, name, f"[{name.upper()}]")
            for name in ("cls", "sep", "unk", "pad", "mask")
        ]
        options["special_tokens"] = [x for x in tokens if x in vocabulary]
    return WordpieceTokenizer(
        vocabulary,
        start_token=tokens[0],
        end_token=tokens[1],
        unknown_token=tokens[2],
        pad_token=str(_padding(vocabulary, encoder.pad_id)),
        **options,
        **named,
    )


def _marian(
    folder: Folder,
    settings: Config,
    encoder: Any,
    named: Mapping[str, Any],
    of_targets: bool,
) -> SentencepieceTokenizer:
    """Returns a tokenizer of Marian: pieces of a model, ids of another file."""
    settings.expect("sp_model_kwargs", None, {})
    name = PAIRED
    if settings.take("separate_vocabs", False, bool) and of_targets:
        name = "target_vocab.json"
    vocabulary = in_order(folder.mapping(name))
    special = [
        _token(folder, settings, name, usual)
        for name, usual in (("eos", "</s>"), ("unk", "<unk>"), ("pad", "<pad>"))
    ]
    options: dict[str, Any] = {
        "vocabulary": vocabulary,
        "start_token": None,
        "end_token": special[0],
        "pad_token": _padding(vocabulary, encoder.pad_id),
        "special_tokens": [*dict.fromkeys(special)],
    }
    if "skipped_tokens" in named:
        options["skipped_tokens"] = options["special_tokens"]
        options["clean_up_spaces"] = _cleans_up(settings)
    return SentencepieceTokenizer(
        folder.file("target.spm" if of_targets else _SOURCE),
        **{**named, **options},
    )


def _token(folder: Folder, settings: Config, name: str, usual: str) -> str:
    for values in (settings.values, opened(folder, SPECIAL)):
        found = text_of(values.get(f"{name}_token"))
        if isinstance(found, str):
            return found
        if found is not None:
            raise settings.wrong(f"{name}_token", f"{shown(found)} is no text")
    return usual


def _leave_out(folder: Folder, settings: Config, size: int) -> None:
    """Gives a folder a `tokenizer.json` without tokens beyond the model's.

    Such as that of images, of Gemma 3's models of text.
    """
    values = folder.mapping(WHOLE)
    added = values.get("added_tokens")
    used = [
        text_of(settings.values.get(f"{name}_token"))
        for name in ("bos", "eos", "unk")
    ]
    if isinstance(added, list):
        added = [
            each
            for each in added
            if not isinstance(each, dict)
            or type(each.get("id")) is not int
            or each["id"] < size
            or each.get("content") in used
        ]
    others = {"padding": None, "truncation": None}
    folder.give(WHOLE, {**values, "added_tokens": added, **others})


def text_of(token: Any) -> Any:
    """Returns the text of a token, which may be an object."""
    return token.get("content") if isinstance(token, dict) else token


def _listed(file: Config, key: str) -> list[Any]:
    """Returns the tokens that a key names: one, a list, or a dict by name."""
    found = file.values.get(key)
    if isinstance(found, dict) and "content" not in found:
        return [*found.values()]
    return found if isinstance(found, list) else [found]


def _skipped(folder: Folder, settings: Config) -> list[str]:
    """Returns the tokens that `detokenize` leaves out."""
    known = vocabulary_of(folder)
    special = [
        text_of(each)
        for each in opened(folder, WHOLE).get("added_tokens") or []
        if isinstance(each, dict) and each.get("special")
    ]
    for file in (settings, _opened(folder, SPECIAL)):
        for key in _NAMES:
            special += map(text_of, _listed(file, key))
    return [
        *dict.fromkeys(x for x in special if isinstance(x, str) and x in known)
    ]


def vocabulary_of(folder: Folder) -> dict[str, int]:
    """Returns the ids of tokens, by the files of a tokenizer of any kind."""
    _, ids = _vocabulary(folder)
    return {
        token: index
        for token, index in ids
        if isinstance(token, str) and type(index) is int and index >= 0
    }


def check_size(folder: Folder, vocabulary_size: int) -> None:
    """Raises `ValueError` if there are more tokens than the encoder has."""
    count, _ = _vocabulary(folder)
    if count <= vocabulary_size:
        count = len(vocabulary_of(folder))
    if count > vocabulary_size:
        raise ValueError(
            f"'{folder.path}': the tokenizer has {count} tokens, and "
            f"config.json says vocab_size={vocabulary_size}"
        )


def _vocabulary(folder: Folder) -> tuple[int, Iterable[tuple[Any, Any]]]:
    """Returns how many tokens the longest list has, and all with their ids."""
    tokens: Any = {}
    added: Any = []
    if folder.has(WHOLE):
        values = folder.mapping(WHOLE)
        model = values.get("model")
        tokens = model.get("vocab") if isinstance(model, dict) else {}
        added = values.get("added_tokens")
    elif folder.has(VOCABULARY):
        tokens = [[line] for line in folder.lines(VOCABULARY)]
    elif folder.has(PAIRED):
        tokens = folder.mapping(PAIRED)
    elif folder.has(_PIECES):  # whose ids XLM-R and CamemBERT renumber
        tokens = [["<s>"], ["<pad>"], ["</s>"], ["<unk>"]]
    tokens = tokens if isinstance(tokens, dict | list) else {}
    added = added if isinstance(added, list) else []
    pairs = (
        tokens.items()
        if isinstance(tokens, dict)
        else (  # Unigram: pieces with their scores
            (piece[0], index)
            for index, piece in enumerate(tokens)
            if isinstance(piece, list) and piece
        )
    )
    more = (
        (token.get("content"), token.get("id"))
        for token in added
        if isinstance(token, dict)
    )
    others = opened(folder, ADDED).items()
    return max(len(tokens), len(added)), itertools.chain(pairs, others, more)


def text_padding(folder: Folder, pad_id: int) -> int:
    """Returns the id that texts are padded with: none that frames texts."""
    whole = opened(folder, WHOLE)
    try:
        if not whole or kind_of(whole) != BYTE_LEVEL:
            return pad_id
        added = {x["id"]: x["content"] for x in whole.get("added_tokens") or []}
        ids = {**whole["model"]["vocab"], **{v: k for k, v in added.items()}}
        frame = Frame.read(whole.get("post_processor"), ids)
        if pad_id not in [ids[name] for name in frame if name is not None]:
            return pad_id
        for number, name in sorted(added.items()):
            if re.search("reserved|unused|pad", name) and name not in frame:
                return int(number)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"'{folder.path / WHOLE}' cannot be read: "
            f"{type(error).__name__}: {error}"
        ) from error
    raise ValueError(
        f"'{folder.path / WHOLE}': padding has the id of "
        f"{added.get(pad_id)!r}, which is also at the start or end of each "
        "text and would be masked there, and there is no reserved token to pad "
        "with instead"
    )


def _check_frame(
    settings: Config,
    layer: Any,
    by_names: bool,
    special: Mapping[str, Any],
) -> None:
    """Raises `ValueError` if settings add other tokens to a text than `layer`.

    Some versions of transformers read them, others the tokenizer's own file.
    `by_names` is whether `cls_token` and `sep_token` are added.
    """
    values = {**special, **settings.values}
    for added, other, token in (
        ("bos", "cls", layer.start_token),
        ("eos", "sep", layer.end_token),
    ):
        contents = {}
        flag = f"add_{added}_token"
        if flag in settings.values:
            if layer.num_separators is not None:
                raise settings.wrong(
                    flag, f"pairs of texts get other special tokens by {WHOLE}"
                )
            adds = settings.take(flag, False, bool, type(None))
            usual = None if isinstance(layer, WordpieceTokenizer) else token
            named = text_of(values.get(f"{added}_token")) or usual
            contents[flag] = named if adds else None
        if by_names and values.get(f"{other}_token") is not None:
            contents[f"{other}_token"] = text_of(values[f"{other}_token"])
        for key, content in contents.items():
            if content != token:
                raise settings.wrong(
                    key,
                    f"{shown(content)} would be added to each text, but the "
                    f"tokenizer's own file adds {token!r}",
                )


def _check_added(
    folder: Folder, settings: Config, listed: Sequence[Mapping[str, Any]]
) -> None:
    """Raises `ValueError` if other files add tokens to those of the file."""
    known = {each["content"]: each for each in listed}
    added = _opened(folder, ADDED)
    part = Config(settings.values, settings.path).part(DECODER, {})
    numbered = [(settings, DECODER, *each) for each in part.values.items()]
    numbered += [
        (added, content, str(number), content)
        for content, number in added.values.items()
    ]
    found: list[tuple[Config, str, dict[str, Any]]] = [
        (
            file,
            key,
            {
                **(each if isinstance(each, dict) else {}),
                "content": text_of(each),
                "id": int(number) if number.isdecimal() else -1,
            },
        )
        for file, key, number, each in numbered
    ]
    # A token has its name, whatever the object says.
    found += [
        (file, key, {"content": text_of(each)})
        for file in (settings, _opened(folder, SPECIAL))
        for key in _NAMES
        for each in _listed(file, key)
        if each is not None
    ]
    flags = ["id", "lstrip", "rstrip", "single_word"]
    flags += ["normalized"] * folder.has(WHOLE)
    for file, key, setting in found:
        content = setting["content"]
        token = known.get(content) if isinstance(content, str) else None
        if token is None or any(
            setting.get(flag, token.get(flag, False)) != token.get(flag, False)
            for flag in flags
        ):
            raise file.wrong(
                key,
                f"the token {shown(content)} is not in the file that the "
                "tokenizer is made of, or has other settings there",
            )


def _padding(
    tokens: Mapping[int, str] | Sequence[str], pad_id: int
) -> str | None:
    if pad_id < 0:
        return None
    try:
        return tokens[pad_id]
    except LookupError:
        raise ValueError(
            f"config.json says pad_token_id={pad_id}, and the "
            f"tokenizer has {len(tokens)} tokens"
        ) from None


def opened(folder: Folder, name: str) -> Mapping[str, Any]:
    """Returns what a file holds; nothing where there is none."""
    return folder.mapping(name) if folder.has(name) else {}


def _opened(folder: Folder, name: str) -> Config:
    return Config(opened(folder, name), folder.path / name)


def _sentence_config(folder: Folder) -> Config:
    """Returns what sentence-transformers adds to the tokenizer's settings."""
    name = next((name for name in LENGTHS if folder.has(name)), LENGTHS[0])
    return _opened(folder, name)


def _longest(
    folder: Folder, settings: Config, encoder: Any, generates: bool
) -> int | None:
    """Returns how many ids a text may have; None for any number."""
    lengths = _sentence_config(folder)
    keys = [(lengths, "max_seq_length")]
    if lengths.values.get("max_seq_length") is None:
        keys = [(settings, "model_max_length")]
        if folder.has(MODULES):
            keys.append((_opened(folder, CONFIG), "max_position_embeddings"))
    limits = [
        config.checked(key, check_positive)
        for config, key in keys
        if config.values.get(key) is not None and not generates
    ]
    if isinstance(encoder.input_position, PositionEmbedding):
        limits.append(encoder.input_position.sequence_length)
    known = [int(limit) for limit in limits if limit < _NO_LENGTH]
    return min(known, default=None)


# Special tokens around a text, by their names in the files.
_FRAME = ("bos", "cls", "eos", "sep")
_USUAL = ("[PAD]", "<pad>")


def padding_of_ids(
    folder: Folder,
    options: Mapping[str, Any],
    values: Mapping[str, Any],
    given: int | None,
) -> int:
    """Returns the id of padding of a model that takes ids."""
    stated = options["pad_id"]
    counts_tokens = getattr(options["input_position"], "skip_masked", False)
    path = folder.path / CONFIG
    if given is not None:
        check_index("pad_id", given, options["vocabulary_size"])
        if counts_tokens and given != stated:
            raise ValueError(
                f"`pad_id` must be {stated}, the pad_token_id of '{path}', for "
                "this model counts positions from it. "
                f"Received: pad_id={given}"
            )
        return given
    ids = vocabulary_of(folder)
    token = padding_token(folder, ids)
    found = stated if token is None else ids.get(token)
    if found is None:
        raise ValueError(
            f"'{folder.path}': the tokenizer pads with {token!r}, which is in "
            "none of its files. Give the id that your ids are padded with as "
            "`pad_id`"
        )
    if counts_tokens and found != stated:
        raise ValueError(
            f"'{path}' says pad_token_id={stated}, which this model counts "
            f"positions from, and the folder's tokenizer pads with {token!r}, "
            f"id {found}. Correct the one that is wrong; or pad your ids with "
            f"{stated}, and give that as `pad_id`"
        )
    if found >= options["vocabulary_size"]:
        raise ValueError(
            f"'{folder.path}': the tokenizer pads with {token!r}, id {found}, "
            f"and config.json says vocab_size={options['vocabulary_size']}"
        )
    if _is_around_texts(folder, ids, values, found):
        raise ValueError(
            f"'{folder.path}' pads with id {found}, which also starts or ends "
            "each text, and there it would be masked as padding. Pad your ids "
            "with another one, such as a reserved token's, and give that as "
            "`pad_id`"
        )
    return found


def padding_of_texts(folder: Folder, options: Mapping[str, Any]) -> int:
    """Returns the id that the model's own tokenizer layer pads with."""
    complete(folder)
    pad_id = options["pad_id"]
    ids = vocabulary_of(folder)
    check_size(folder, options["vocabulary_size"])
    if getattr(options["input_position"], "skip_masked", False):
        return pad_id
    found = ids.get(padding_token(folder, ids) or "", pad_id)
    if found >= options["vocabulary_size"]:
        found = pad_id
    return text_padding(folder, found)


def padding_token(folder: Folder, ids: Mapping[str, int]) -> str | None:
    """Returns the token that the tokenizer pads with, or None if unknown."""
    said = [
        opened(folder, name).get("pad_token") for name in (SETTINGS, SPECIAL)
    ]
    padding = opened(folder, WHOLE).get("padding")
    said.append(padding.get("pad_token") if isinstance(padding, dict) else None)
    found = [text for each in said if isinstance(text := text_of(each), str)]
    return next(iter(found + [token for token in _USUAL if token in ids]), None)


def _is_around_texts(
    folder: Folder,
    ids: Mapping[str, int],
    values: Mapping[str, Any],
    pad_id: int,
) -> bool:
    """Returns whether texts start or end with that id, by any of the files."""
    if not ids:
        return pad_id in [values.get(f"{name}_token_id") for name in _FRAME]
    tokens = [
        text_of(opened(folder, file).get(f"{name}_token"))
        for file in (SETTINGS, SPECIAL)
        for name in _FRAME
    ]
    match opened(folder, WHOLE).get("post_processor"):
        case {"special_tokens": dict(special)}:
            tokens += special
    return pad_id in [ids.get(x) for x in tokens if isinstance(x, str)]
