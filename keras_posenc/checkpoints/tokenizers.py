"""The tokenizer of a checkpoint, as a layer that gives the same ids."""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checkpoints.sentencepiece_files import described, kind_of
from keras_posenc.checks import check_positive
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.byte_pair_file import padding_of, read_pairs
from keras_posenc.text.byte_pair_tokenizer import BytePairTokenizer
from keras_posenc.text.files import shown
from keras_posenc.text.sentencepiece_file import read_pieces
from keras_posenc.text.sentencepiece_tokenizer import SentencepieceTokenizer
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer

WHOLE, VOCABULARY = "tokenizer.json", "vocab.txt"
PAIRED, MERGES, SPECIAL = "vocab.json", "merges.txt", "special_tokens_map.json"
SETTINGS, ADDED = "tokenizer_config.json", "added_tokens.json"
# A SentencePiece model whose pieces XLM-R and CamemBERT renumber.
_PIECES = "sentencepiece.bpe.model"
# The pieces of Marian, whose ids are those of PAIRED.
_SOURCE = "source.spm"
DECODER = "added_tokens_decoder"  # in the settings: tokens by their ids
# Where sentence-transformers writes the length: the name depends on the model.
LENGTHS = tuple(
    f"sentence_{kind}_config.json"
    for kind in (
        "bert",
        "roberta",
        "distilbert",
        "camembert",
        "albert",
        "xlm-roberta",
        "xlnet",
    )
)
MODULES = "modules.json"
_AS_THE_FILE_SAYS = {"PreTrainedTokenizerFast", "TokenizersBackend"}
# Classes of tokenizers that follow their files, and add nothing.
_ESM = "EsmTokenizer"
_CLASSES = {
    f"{name}Tokenizer{fast}"
    for name in (
        "Albert",
        "Bart",
        "Bert",
        "Camembert",
        "DebertaV2",
        "DistilBert",
        "Electra",
        "GPT2",
        "Gemma",
        "Llama",
        "MBart",
        "MBart50",
        "MPNet",
        "Marian",
        "Qwen2",
        "Roberta",
        "T5",
        "XLMRoberta",
    )
    for fast in ("", "Fast")
}
# Those of byte-level BPE, besides those that are as the file says.
_OF_BYTES = ("Bart", "GPT2", "Llama", "Qwen2", "Roberta")
_CLASSES |= {_ESM} | _AS_THE_FILE_SAYS
# The remedy for a tokenizer of another model.
_COPY = "Copy the model's own here, or load it with from_ids=True"
# Names of special tokens, which texts may spell, in all files.
_NAMES = (
    *(f"{name}_token" for name in "bos eos unk sep pad cls mask".split()),
    "additional_special_tokens",
    "extra_special_tokens",
)
CONFIG = "config.json"
BYTE_PAIRS, WORDPIECE, UNIGRAM = "BPE", "WordPiece", "Unigram"
# With characters, and bytes for those that have no token.
FALLBACK = "BPE with byte_fallback"
# Classes of tokenizers in whose pairs all tokens have one type.
_UNTYPED = (
    "Camembert",
    "DistilBert",
    "MPNet",
    "Roberta",
    "TokenizersBackend",
    "XLMRoberta",
)
# Lengths from here on mean that there is no limit.
_NO_LENGTH = 10**6
# Defaults and types of values: of a required string, and an optional bool.
_TEXT, _PERHAPS = (REQUIRED, str), (bool, type(None))


def pairing_of(folder: Folder) -> tuple[int, bool]:
    """Returns how a checkpoint's tokenizer joins two texts.

    Returns:
        How many end tokens are between the two, and whether the tokens of the
        second one have another type.

    Raises:
        ValueError: They are joined in another way.
    """
    complete(folder)
    settings = _opened(folder, SETTINGS)
    kind = settings.values.get("tokenizer_class") or ""
    inputs = settings.values.get("model_input_names")
    is_typed = (
        "token_type_ids" in inputs
        if isinstance(inputs, list)
        else not kind.startswith(_UNTYPED)
    )
    if not folder.has(WHOLE):
        is_doubled = folder.has(PAIRED) or kind.startswith("MPNet")
        return (2, False) if is_doubled else (1, is_typed)
    processor = _opened(folder, WHOLE).part("post_processor")
    parts = processor.values.get("processors", [processor.values])
    try:
        match [part for part in parts if part["type"] != "ByteLevel"]:
            case [{"type": "RobertaProcessing"}]:
                return 2, False
            case [{"type": "BertProcessing"}]:
                return 1, is_typed
            case [{"type": "TemplateProcessing", "single": one, "pair": two}]:
                first, found = _types(one), _types(two)
                _, _, (end, _) = first
                for count, second in itertools.product((1, 2), (0, 1)):
                    between = [(end, 0)] * (count - 1)
                    after = [("B", second), (end, second)]
                    if found == [*first, *between, *after]:
                        return count, is_typed and second == 1
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f"'{processor.path}': a pair of texts must be the first text with its "
        "special tokens, perhaps one more end token, the second, and an end"
    )


def _types(template: Sequence[Any]) -> list[tuple[str, int]]:
    """Returns the name and the type of each part that a template joins."""
    return [
        (setting["id"], setting["type_id"])
        for each in template
        for setting in each.values()
    ]


def tokenizer_of(
    folder: Folder,
    encoder: Any,
    *,
    num_separators: int | None = None,
    generates: bool = False,
    of_targets: bool = False,
) -> Tokenizer:
    """Returns a layer that gives the ids that the model was trained on.

    Texts are cut at the length in the checkpoint, and never beyond the
    model's table of positions.

    Args:
        folder: The folder with the tokenizer's files.
        encoder: A model, or an object with its attributes `pad_id`,
            `vocabulary_size` and `input_position`. With `pad_id` -1 no token
            is padding.
        num_separators: As for the layer.
        generates: Whether the model generates. Then texts are cut at the table
            of positions alone; `detokenize` leaves out special tokens, as
            `decode(skip_special_tokens=True)` of transformers does; and added
            tokens beyond the model's table of tokens, which texts need not
            have, are left out.
        of_targets: Whether it is for the texts that a model generates, where
            these have a tokenizer of their own, as in Marian.

    Raises:
        FileNotFoundError: The folder has no tokenizer.
        ValueError: The tokenizer is not WordPiece, Unigram or BPE, has settings
            that are not supported, or has more tokens than the model.
    """
    complete(folder)
    settings = _opened(folder, SETTINGS)
    whole = _opened(folder, WHOLE) if folder.has(WHOLE) else None
    listed = [] if whole is None else whole.values.get("added_tokens") or []
    if whole is not None and generates:
        _leave_out(folder, settings, encoder.vocabulary_size)
        whole = _opened(folder, WHOLE)
    check_size(folder, encoder.vocabulary_size)
    _check_is_own(folder, encoder.vocabulary_size)
    _check_class(folder, settings)
    settings.expect("do_basic_tokenize", True)
    settings.expect("never_split", None, [])
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
        if whole is not None:
            for key in ("truncation", "padding"):
                setting = whole.take(key, None, dict, type(None)) or {}
                if key == "padding" and encoder.pad_id < 0:
                    continue
                Config(setting, f"{whole.path}', '{key}").expect(
                    "direction", "Right"
                )
        if generates:
            named |= _way_back(folder, settings, whole)
        if folder.has(_SOURCE):
            layer = _marian(folder, settings, encoder, named, of_targets)
        elif whole is not None and _kind(whole) in (UNIGRAM, FALLBACK):
            layer = _pieces(folder, whole, settings, encoder, named)
        elif (
            folder.has(PAIRED) and not folder.has(VOCABULARY)
            if whole is None
            else _kind(whole) == BYTE_PAIRS
        ):
            layer = _byte_pairs(folder, settings, encoder, named)
        else:
            layer = _wordpieces(folder, whole, settings, encoder, named)
        _check_frame(folder, settings, layer, generates)
        if whole is not None:
            _check_added(folder, settings, listed)
    except ValueError as error:
        raise ValueError(
            f"'{folder.path}' makes no tokenizer: {error}"
        ) from error
    if layer.pad_id >= 0 and layer.pad_id in (layer.start_id, layer.end_id):
        raise ValueError(
            f"'{folder.path}' pads with id {layer.pad_id}, which also starts "
            "or ends each text, where it would be masked as padding: "
            "from_ids=True, with the id of another token as pad_id, makes a "
            "model that needs no tokenizer"
        )
    return layer


def _leave_out(folder: Folder, settings: Config, size: int) -> None:
    """Gives a folder a `tokenizer.json` without tokens beyond the model's.

    Such as that of images, of Gemma 3's models of text. The tokenizer of
    another model has too many tokens that are not only added, or ends texts
    with one that the model has not. The sides of padding and of cutting do not
    matter either.
    """
    values = folder.mapping(WHOLE)
    added = values.get("added_tokens")
    used = [
        token.get("content") if isinstance(token, dict) else token
        for name in ("bos", "eos", "unk")
        for token in [settings.values.get(f"{name}_token")]
    ]
    kept = [
        each
        for each in (added if isinstance(added, list) else [])
        if not isinstance(each, dict)
        or type(each.get("id")) is not int
        or each["id"] < size
        or each.get("content") in used
    ]
    folder.give(
        WHOLE,
        {
            **values,
            "added_tokens": kept if isinstance(added, list) else added,
            "padding": None,
            "truncation": None,
        },
    )


def _way_back(
    folder: Folder, settings: Config, whole: Config | None
) -> dict[str, Any]:
    """Returns the arguments of tokens that `detokenize` leaves out."""
    known = vocabulary_of(folder)
    special = [
        each.get("content")
        for each in (whole.values.get("added_tokens") or [] if whole else [])
        if isinstance(each, dict) and each.get("special")
    ]
    for file in (settings, _opened(folder, SPECIAL)):
        for key in _NAMES:
            found = file.values.get(key)
            if isinstance(found, dict) and "content" not in found:
                found = [*found.values()]
            special += [
                each.get("content") if isinstance(each, dict) else each
                for each in (found if isinstance(found, list) else [found])
            ]
    skipped = [
        each for each in special if isinstance(each, str) and each in known
    ]
    return {"skipped_tokens": [*dict.fromkeys(skipped)]}


def _check_class(folder: Folder, settings: Config) -> None:
    """Raises `ValueError` for a class that does more than its files say."""
    key = "tokenizer_class"
    config = _opened(folder, CONFIG)  # where older checkpoints name it
    file = config if settings.values.get(key) is None else settings
    name = file.take(key, None, str, type(None))
    if name is not None and name not in _CLASSES:
        raise file.wrong(
            key,
            f"{name} may split texts in its own way, which is not supported. "
            "from_ids=True makes a model of the ids that it gives",
        )


def complete(folder: Folder) -> None:
    """Gives a folder its `tokenizer.json`, if a SentencePiece model is enough.

    Raises:
        ValueError: The model, or a setting, is not supported.
    """
    if folder.has(WHOLE):
        return
    settings = _opened(folder, SETTINGS)
    config = _opened(folder, CONFIG).values
    kind = kind_of(settings.values, config.get("model_type"))
    if kind is not None:
        named = functools.partial(_named, folder, settings)
        found = described(folder, kind, settings, named)
        if found is not None:
            folder.give(WHOLE, found)


def vocabulary_of(folder: Folder) -> dict[str, int]:
    """Returns the ids of tokens, by the files of a tokenizer of any kind.

    Empty where no file lists them. Entries that are not a token with an id are
    left out here: the functions that read the whole file report them.
    """
    _, ids = _vocabulary(folder)
    return {
        token: index
        for token, index in ids
        if isinstance(token, str) and type(index) is int and index >= 0
    }


def check_size(folder: Folder, vocabulary_size: int) -> None:
    """Raises `ValueError` if there are more tokens than the encoder has.

    Called before a tokenizer is made from them, which takes long.
    """
    count, _ = _vocabulary(folder)
    if count <= vocabulary_size:
        count = len(vocabulary_of(folder))
    if count > vocabulary_size:
        raise ValueError(
            f"'{folder.path}': the tokenizer has {count} tokens, and "
            f"config.json says vocab_size={vocabulary_size}"
        )


def _check_is_own(folder: Folder, rows: int) -> None:
    """Raises `ValueError` for what is certainly another model's tokenizer.

    A table of tokens may have more rows than the tokenizer has tokens, but not
    for tokens that the config names. Configs often name other tokens than the
    tokenizer does.
    """
    ids = vocabulary_of(folder)
    last = max(ids.values(), default=None)
    if last is None:
        return
    values = _opened(folder, CONFIG).values
    for name in ("bos", "eos", "cls", "sep"):
        found = values.get(key := f"{name}_token_id")
        numbers = found if isinstance(found, list) else [found]
        if numbers and all(type(n) is int and last < n < rows for n in numbers):
            raise ValueError(
                f"'{folder.path}': config.json says {key}={found}, and the "
                f"last token of the tokenizer has the id {last}: its files are "
                f"those of another model. {_COPY}"
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
    elif folder.has(_PIECES):
        tokens = ["<s>"], ["<pad>"], ["</s>"], ["<unk>"]
    tokens = tokens if isinstance(tokens, dict | list | tuple) else {}
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
    others = _opened(folder, ADDED).values.items()
    return max(len(tokens), len(added)), itertools.chain(pairs, others, more)


def text_padding(folder: Folder, pad_id: int) -> int:
    """Returns the id that texts are padded with: `pad_id` where possible.

    Where that id is also at the start or end of each text, as in EuroBERT,
    another one is returned: a model recognises padding by its id alone.

    Raises:
        ValueError: There is no other token to pad with.
    """
    if not folder.has(WHOLE):
        return pad_id
    whole = _opened(folder, WHOLE)
    if _kind(whole) != BYTE_PAIRS:
        return pad_id
    try:
        return padding_of(whole.values, pad_id)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"'{whole.path}' is not a complete tokenizer.json of type BPE: "
            f"{type(error).__name__}: {error}"
        ) from error
    except ValueError as error:
        raise ValueError(f"'{whole.path}': {error}") from error


def _kind(whole: Config) -> str:
    """Returns the type of tokenizer of a file, if it is supported."""
    model = Config(whole.values, whole.path).part("model")
    # Older files have no type: other keys show it.
    usual = WORDPIECE if "unk_token" in model.values else ""
    usual = BYTE_PAIRS if "merges" in model.values else usual
    kind = model.take("type", usual, str)
    if kind == BYTE_PAIRS and model.values.get("byte_fallback") is True:
        return FALLBACK
    if kind not in (BYTE_PAIRS, WORDPIECE, UNIGRAM):
        raise model.wrong(
            "type",
            f"a tokenizer of type {kind} is not supported, only {WORDPIECE}, "
            f"{UNIGRAM} and {BYTE_PAIRS}: from_ids=True makes a model that "
            "needs none",
        )
    return str(kind)


def _pieces(
    folder: Folder,
    whole: Config,
    settings: Config,
    encoder: Any,
    named: Mapping[str, Any],
) -> SentencepieceTokenizer:
    """Returns a tokenizer from `tokenizer.json`."""
    model, options = read_pieces(whole.values, whole.path)
    steps = options["normalization"]
    # Classes that make a normalizer of these, whatever the file says.
    if kind_of(settings.values, None) in ("Albert", "DebertaV2"):
        _agree(settings, "do_lower_case", "lowercase" in steps, whole)
        _agree(settings, "keep_accents", "strip_accents" not in steps, whole)
        settings.expect("split_by_punct", False)
    if _lowers(folder) and "lowercase" not in steps:
        options["normalization"] = ["lowercase", *steps]
    ids = vocabulary_of(folder)
    tokens = {index: token for token, index in ids.items()}
    options["pad_token"] = _padding(tokens, encoder.pad_id)
    if "skipped_tokens" in named:
        if _kind(whole) == UNIGRAM:
            _check_decoder(whole, "Metaspace")
        options["clean_up_spaces"] = bool(
            _kind(whole) == UNIGRAM
            and settings.take("clean_up_tokenization_spaces", None, *_PERHAPS)
        )
    return SentencepieceTokenizer(model, **{**options, **named})


def _check_decoder(whole: Config, kind: str) -> None:
    """Raises `ValueError` if the file joins tokens to texts in another way."""
    decoder = whole.values.get("decoder")
    if decoder is not None:
        whole.part("decoder").expect("type", kind)


def _marian(
    folder: Folder,
    settings: Config,
    encoder: Any,
    named: Mapping[str, Any],
    of_targets: bool,
) -> SentencepieceTokenizer:
    """Returns a tokenizer of Marian: pieces of a model, ids of another file."""
    settings.expect("sp_model_kwargs", None, {})
    settings.expect("split_special_tokens", False)
    name = PAIRED
    if settings.take("separate_vocabs", False, bool) and of_targets:
        name = "target_vocab.json"
    vocabulary = _in_order(folder.mapping(name), folder.path / name)
    end, unknown, padding = (
        _named(folder, settings, f"{key}_token", usual).take("content", *_TEXT)
        for key, usual in (("eos", "</s>"), ("unk", "<unk>"), ("pad", "<pad>"))
    )
    special = [*dict.fromkeys((end, unknown, padding))]
    options = {
        "vocabulary": vocabulary,
        "start_token": None,
        "end_token": end,
        "pad_token": _padding(vocabulary, encoder.pad_id),
        "special_tokens": special,
    }
    if "skipped_tokens" in named:
        options["skipped_tokens"] = special
        options["clean_up_spaces"] = bool(
            settings.take("clean_up_tokenization_spaces", None, *_PERHAPS)
        )
    return SentencepieceTokenizer(
        folder.file("target.spm" if of_targets else _SOURCE),
        **{**named, **options},
    )


def _byte_pairs(
    folder: Folder,
    settings: Config,
    encoder: Any,
    named: Mapping[str, Any],
) -> BytePairTokenizer:
    """Returns a tokenizer from `tokenizer.json`, or from its older files."""
    if folder.has(WHOLE):
        options = read_pairs(folder.mapping(WHOLE), folder.path / WHOLE)
        if "skipped_tokens" in named:
            _check_decoder(_opened(folder, WHOLE), "ByteLevel")
    else:
        options = _of_pairs(folder, settings)
    family = _opened(folder, CONFIG).values.get("model_type")
    # The class where the settings name none.
    usual_class = {
        "bart": "Bart",
        "roberta": "Roberta",
        "xlm-roberta": "XLMRoberta",
    }
    setting = settings.values.get("tokenizer_class")
    setting = str(setting or usual_class.get(str(family), ""))
    # This class takes only the tokens from the file, and adds the rest itself.
    is_roberta = setting.startswith(("Bart", "Roberta"))
    if not setting.startswith(_OF_BYTES) and (
        setting and setting not in _AS_THE_FILE_SAYS
    ):
        raise settings.wrong(
            "tokenizer_class", f"{setting} is not byte-level BPE"
        )
    if is_roberta:
        for key, usual_token, token in (
            ("cls_token", "<s>", options["start_token"]),
            ("sep_token", "</s>", options["end_token"]),
        ):
            named_token = _named(folder, settings, key, usual_token)
            if named_token.take("content") != token:
                raise settings.wrong(key, f"{WHOLE} says {token!r}")
        usual = {"pattern": "gpt2", "normalization": None}
        for key, value in {**usual, "ignore_merges": False}.items():
            if options[key] != value:
                raise settings.wrong(
                    "tokenizer_class",
                    f"{setting} has {key}={value!r}, and {WHOLE} says "
                    f"{key}={options[key]!r}",
                )
    settings.expect("split_special_tokens", False)
    if _lowers(folder):
        raise _sentence_config(folder).wrong(
            "do_lower_case", "true is not supported with byte-level BPE"
        )
    spaced = options["add_prefix_space"]
    usual_space = not is_roberta and spaced
    setting = settings.take("add_prefix_space", usual_space, *_PERHAPS)
    if bool(setting) != spaced:
        raise settings.wrong("add_prefix_space", f"{WHOLE} says {spaced}")
    pad_id = encoder.pad_id
    if pad_id >= 0:
        pad_id = text_padding(folder, pad_id)
    options["pad_token"] = _padding(options["vocabulary"], pad_id)
    return BytePairTokenizer(**{**options, **named})


def _of_pairs(folder: Folder, settings: Config) -> dict[str, Any]:
    """Returns arguments from the older files of RoBERTa."""
    settings.expect(
        "tokenizer_class", "RobertaTokenizer", "BartTokenizer", None
    )
    ids = folder.mapping(PAIRED)
    framing = []
    special = []
    listed = []
    for key, usual in (
        ("cls_token", "<s>"),
        ("sep_token", "</s>"),
        ("pad_token", "<pad>"),
        ("unk_token", "<unk>"),
        ("mask_token", "<mask>"),
    ):
        token = _named(folder, settings, key, usual)
        framing.append(token.take("content", *_TEXT))
        token.expect("rstrip", False)
        token.expect("single_word", False)
        strips = token.take("lstrip", False, bool)
        special.append(" " * strips + framing[-1])
        listed.append({**token.values, "id": ids.get(framing[-1])})
    _check_added(folder, settings, listed, is_normalized=False)
    return {
        "vocabulary": _in_order(ids, folder.path / PAIRED),
        "merges": [
            line
            for line in folder.lines(MERGES)
            if line and not line.startswith("#version")
        ],
        "pattern": "gpt2",
        "normalization": None,
        "ignore_merges": False,
        "add_prefix_space": settings.take("add_prefix_space", False, bool),
        "start_token": framing[0],
        "end_token": framing[1],
        "special_tokens": [*dict.fromkeys(special)],
    }


def _named(
    folder: Folder, settings: Config, key: str, usual: str | None
) -> Config:
    """Returns a special token by its name, with the most settings known."""
    candidates = [
        each if isinstance(each, dict) else {"content": each}
        for values in (settings.values, _opened(folder, SPECIAL).values)
        if (each := values.get(key)) is not None
    ] or [{"content": usual}]
    content = candidates[0].get("content")
    # Only this list has objects; other keys may have the token's text alone.
    listed = Config(settings.values, settings.path).part(DECODER, {}).values
    same = [
        each
        for each in (*listed.values(), *candidates)
        if isinstance(each, dict) and each.get("content") == content
    ]
    best = next((each for each in same if len(each) > 1), same[0])
    return Config(best, f"{settings.path}', '{key}")


def _check_frame(
    folder: Folder, settings: Config, layer: Any, generates: bool
) -> None:
    """Raises `ValueError` if settings add other tokens to a text than `layer`.

    Some versions of transformers read these settings, others the template in
    the tokenizer's own file.
    """
    flags = {"add_bos_token", "add_eos_token"} & {*settings.values}
    if flags and layer.num_separators is not None:
        raise settings.wrong(
            min(flags), f"pairs of texts get other special tokens by {WHOLE}"
        )
    # Whether the class adds tokens of its own.
    is_own = not (generates or isinstance(layer, BytePairTokenizer)) and (
        settings.values.get("tokenizer_class") not in _AS_THE_FILE_SAYS
    )
    is_bert = isinstance(layer, WordpieceTokenizer)
    # A class that never adds a token which the settings do not name.
    is_qwen = str(settings.values.get("tokenizer_class")).startswith("Qwen2")
    for added, other, token in (
        ("bos", "cls", layer.start_token),
        ("eos", "sep", layer.end_token),
    ):
        contents = {}
        key = f"add_{added}_token"
        if key in settings.values or (flags and not is_qwen):
            usual = None if is_bert else token
            found = _named(folder, settings, f"{added}_token", usual)
            adds = settings.take(key, False, *_PERHAPS)
            contents[key] = found.take("content") if adds else None
        if is_own:
            key = f"{other}_token"
            contents[key] = _named(folder, settings, key, token).take("content")
        for key, content in contents.items():
            if content != token:
                raise settings.wrong(
                    key,
                    f"{shown(content)} would be added to each text, but the "
                    f"tokenizer's own file adds {token!r}",
                )


def _check_added(
    folder: Folder,
    settings: Config,
    listed: Sequence[Mapping[str, Any]],
    is_normalized: bool = True,
) -> None:
    """Raises `ValueError` if other files add tokens to those of the file."""
    known = {each["content"]: each for each in listed}
    flags = ["id", "lstrip", "rstrip", "single_word"]
    flags += ["normalized"] * is_normalized

    def check(file: Config, key: str, setting: Any) -> None:
        setting = setting if isinstance(setting, dict) else {"content": setting}
        content = setting.get("content")
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

    decoder = Config(settings.values, settings.path).part(DECODER, {})
    entries: Any
    for number, each in decoder.values.items():
        entries = each if isinstance(each, dict) else {"content": each}
        check(settings, DECODER, {**entries, "id": _number(number)})
    file = _opened(folder, ADDED)
    for content, number in file.values.items():
        check(file, content, {"content": content, "id": number})
    for file in (settings, _opened(folder, SPECIAL)):
        for key in _NAMES:
            entries = file.values.get(key)
            if isinstance(entries, dict) and "content" not in entries:
                entries = [*entries.values()]  # the names do not matter
            for each in entries if isinstance(entries, list) else [entries]:
                # The token has this name, whatever the object says.
                name = each.get("content") if isinstance(each, dict) else each
                if each is not None:
                    check(file, key, name)


def _padding(
    tokens: Mapping[int, str] | Sequence[str], pad_id: int
) -> str | None:
    """Returns the token of the encoder's padding; None if no token is."""
    if pad_id < 0:
        return None
    try:
        return tokens[pad_id]
    except LookupError:
        raise ValueError(
            f"config.json says pad_token_id={pad_id}, and the "
            f"tokenizer has {len(tokens)} tokens"
        ) from None


def _wordpieces(
    folder: Folder,
    whole: Config | None,
    settings: Config,
    encoder: Any,
    named: Mapping[str, Any],
) -> WordpieceTokenizer:
    """Returns a tokenizer from `tokenizer.json`, or else from `vocab.txt`."""
    if whole is not None:
        options = _of_whole(whole, settings)
    elif folder.has(VOCABULARY) and _is_esm(folder, settings):
        options = _of_proteins(folder, settings)
    elif folder.has(VOCABULARY):
        options = _of_vocabulary(folder, settings)
    else:
        raise FileNotFoundError(
            f"'{folder.path}' has neither {WHOLE} nor {VOCABULARY} nor "
            f"{PAIRED}, and so no tokenizer: from_ids=True makes a model that "
            "needs none"
        )
    if _lowers(folder):
        if options.get("normalization") == "none":
            raise _sentence_config(folder).wrong(
                "do_lower_case", f"true is not supported with {_ESM}"
            )
        options = _lowered(options)
    if encoder.pad_id < 0:
        raise ValueError(
            f"the tokenizer of a model without padding must be {UNIGRAM} or "
            f"{BYTE_PAIRS}, and this one is {WORDPIECE}: from_ids=True makes a "
            "model that needs none"
        )
    options["pad_token"] = _padding(options["vocabulary"], encoder.pad_id)
    return WordpieceTokenizer(**{"normalization": "bert", **options, **named})


def _opened(folder: Folder, name: str) -> Config:
    """Returns what a file holds; an empty config where there is none."""
    values = folder.mapping(name) if folder.has(name) else {}
    return Config(values, folder.path / name)


def _of_whole(whole: Config, settings: Config) -> dict[str, Any]:
    """Returns arguments from the file of the library "tokenizers"."""
    model = whole.part("model")
    model.expect("continuing_subword_prefix", "##")
    model.expect("max_input_chars_per_word", 100)
    normalizer, is_lowered = whole.part("normalizer"), False
    match normalizer.values.get("normalizers"):
        # As sentence-transformers writes `do_lower_case`.
        case [{"type": "Lowercase"}, dict(last)]:
            normalizer.require("type", "Sequence")
            where = f"{normalizer.path}', 'normalizers', '1"
            normalizer, is_lowered = Config(last, where), True
    normalizer.require("type", "BertNormalizer")
    normalizer.expect("clean_text", True)
    for key, other, usual in (
        ("lowercase", "do_lower_case", True),
        ("strip_accents", "strip_accents", None),
        ("handle_chinese_chars", "tokenize_chinese_chars", True),
    ):  # present twice: some libraries read one, some the other
        value = normalizer.values.get(key, usual)
        _agree(settings, other, value, normalizer)
    whole.part("pre_tokenizer").require("type", "BertPreTokenizer")
    lowercase = normalizer.take("lowercase", True, bool)
    ids = dict(model.part("vocab").values)
    special = []
    added = []
    for number, each in enumerate(
        whole.take("added_tokens", None, list, type(None)) or []
    ):
        where = f"{whole.path}', 'added_tokens', '{number}"
        token = Config(each if isinstance(each, dict) else {}, where)
        content = token.take("content", *_TEXT)
        token.expect("single_word", False)
        if not token.take("normalized", False, bool):
            special.append(content)
        elif content.isascii() and content.isprintable() and content.strip():
            added.append(content)
        else:
            raise token.wrong(
                "normalized", "true is supported for tokens of ASCII only"
            )
        if ids.setdefault(content, token.take("id")) != token.values["id"]:
            raise token.wrong("id", "the vocabulary has another one")
    start, end = _frame(whole.part("post_processor"), ids)
    options = {
        "vocabulary": _in_order(ids, whole.path),
        "lowercase": lowercase,
        "strip_accents": normalizer.take("strip_accents", None, *_PERHAPS),
        "split_on_cjk": normalizer.take("handle_chinese_chars", True, bool),
        "special_tokens": special,
        "added_tokens": added,
        "unknown_token": model.take("unk_token", "[UNK]", str),
        "start_token": start,
        "end_token": end,
    }
    return _lowered(options) if is_lowered else options


def _lowered(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments for texts that are lowercased first, accents kept."""
    strips = options["strip_accents"]
    strips = options["lowercase"] if strips is None else strips
    return {**options, "lowercase": True, "strip_accents": strips}


def _listed(folder: Folder, settings: Config) -> list[str]:
    """Returns the list of tokens, to which other files must not add any."""
    vocabulary = folder.lines(VOCABULARY)
    added = _opened(folder, ADDED)
    entries: list[tuple[Config, Any, Any]] = [
        (added, *each) for each in added.values.items()
    ]
    for number, each in settings.part(DECODER, {}).values.items():
        content = each.get("content") if isinstance(each, dict) else each
        entries.append((settings, content, _number(number)))
    known = {token: index for index, token in enumerate(vocabulary)}
    for file, content, index in entries:
        if not isinstance(content, str) or known.get(content) != index:
            raise ValueError(
                f"'{file.path}' has the token {shown(content)} with the id "
                f"{index}, which {VOCABULARY} has not: this is not supported "
                f"without {WHOLE}"
            )
    return vocabulary


def _of_vocabulary(folder: Folder, settings: Config) -> dict[str, Any]:
    """Returns arguments from a list of tokens, and the files next to it."""
    return {
        "vocabulary": _listed(folder, settings),
        "lowercase": settings.take("do_lower_case", True, bool),
        "strip_accents": settings.take("strip_accents", None, *_PERHAPS),
        "split_on_cjk": settings.take("tokenize_chinese_chars", True, bool),
        "unknown_token": _content(settings, "unk_token", "[UNK]"),
        "start_token": _content(settings, "cls_token", "[CLS]"),
        "end_token": _content(settings, "sep_token", "[SEP]"),
    }


def _content(settings: Config, key: str, usual: str) -> str:
    """Returns the text of a special token."""
    token = settings.take(key, usual, str, dict)
    # Older files have an object whose "content" is the token.
    if isinstance(token, dict):
        token = settings.part(key, token).take("content", *_TEXT)
    return str(token)


def _is_esm(folder: Folder, settings: Config) -> bool:
    """Returns whether letters are tokens, as in models of proteins."""
    model_type = _opened(folder, CONFIG).values.get("model_type")
    usual = _ESM if model_type == "esm" else None
    return (settings.values.get("tokenizer_class") or usual) == _ESM


def _of_proteins(folder: Folder, settings: Config) -> dict[str, Any]:
    """Returns arguments for ESM, in which every token is split off."""
    settings.expect("do_lower_case", False)
    vocabulary = [token.strip() for token in _listed(folder, settings)]
    return {
        "vocabulary": vocabulary,
        "normalization": "none",
        "lowercase": False,
        "special_tokens": vocabulary,
        "unknown_token": _content(settings, "unk_token", "<unk>"),
        "start_token": _content(settings, "cls_token", "<cls>"),
        "end_token": _content(settings, "eos_token", "<eos>"),
    }


def _sentence_config(folder: Folder) -> Config:
    """Returns what sentence-transformers adds to the tokenizer's settings."""
    name = next((name for name in LENGTHS if folder.has(name)), LENGTHS[0])
    return _opened(folder, name)


def _agree(settings: Config, key: str, value: Any, whole: Config) -> None:
    """Raises `ValueError` if a key contradicts the normalizer of a file."""
    found = settings.take(key, value)
    if found != value:
        raise settings.wrong(
            key,
            f"{shown(found)} contradicts the normalizer of '{whole.path}', "
            f"which has {shown(value)}. Correct the file that is wrong",
        )


def _lowers(folder: Folder) -> bool:
    """Returns whether sentence-transformers lowercases texts first."""
    return bool(_sentence_config(folder).take("do_lower_case", False, bool))


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


def _frame(processor: Config, ids: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the tokens before and after those of a text.

    The file repeats their ids, which must be those of the vocabulary.
    """
    kinds = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
    try:
        if processor.expect("type", None, *kinds) == kinds[0]:
            first, text, last = processor.values["single"]
            is_text = "Sequence" in text
            start, end = (each["SpecialToken"]["id"] for each in (first, last))
            special = processor.values["special_tokens"]
            numbers = [special[token]["ids"] for token in (start, end)]
        else:
            (start, *first), (end, *last) = (
                processor.values[key] for key in ("cls", "sep")
            )
            numbers = [first, last]
            is_text = True
        if is_text and numbers == [[ids[start]], [ids[end]]]:
            return start, end
    except (IndexError, KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f"'{processor.path}': a text must be between one token and another, "
        "each with its id in the vocabulary"
    )


def _number(text: str) -> int:
    """Returns the id that a key of JSON is, or -1."""
    return int(text) if text.isdecimal() else -1


def _in_order(ids: Mapping[str, Any], path: Any) -> Sequence[str]:
    tokens: dict[Any, str] = {
        number: token for token, number in ids.items() if type(number) is int
    }
    if len(tokens) != len(ids) or {*tokens} != {*range(len(ids))}:
        raise ValueError(
            f"'{path}': the ids of the vocabulary must be 0 to "
            f"{len(ids) - 1}, each once"
        )
    return [tokens[number] for number in range(len(tokens))]
