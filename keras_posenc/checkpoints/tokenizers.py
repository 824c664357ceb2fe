"""The tokenizer of a checkpoint, as a layer with the same ids."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.checkpoints.folder import Folder
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.sentencepiece_tokenizer import SentencepieceTokenizer
from keras_posenc.text.wordpiece_tokenizer import WordpieceTokenizer
from keras_posenc.transformer.transformer_encoder_model import (
    TransformerEncoderModel,
)

WHOLE, VOCABULARY = "tokenizer.json", "vocab.txt"
SETTINGS, LENGTHS = "tokenizer_config.json", "sentence_bert_config.json"
WORDPIECE, UNIGRAM = "WordPiece", "Unigram"
# What a file says that sets no length.
_NO_LENGTH = 10**6


def tokenizer_of(folder: Folder, encoder: TransformerEncoderModel) -> Tokenizer:
    """The layer that gives the encoder the ids that it was trained on.

    Texts are cut where the checkpoint says so, and never beyond the encoder's
    table of positions.

    Raises:
        FileNotFoundError: The folder has no tokenizer.
        ValueError: One of another kind than WordPiece or Unigram, of other
            settings than are supported, or with more tokens than the encoder.
    """
    settings = folder.mapping(SETTINGS) if folder.has(SETTINGS) else {}
    layer: Tokenizer
    named: dict[str, Any] = {
        "max_length": _longest(folder, settings, encoder),
        "name": "tokenizer",
    }
    whole = folder.mapping(WHOLE) if folder.has(WHOLE) else None
    if whole is not None and _kind(whole, folder) == UNIGRAM:
        layer = SentencepieceTokenizer.from_tokenizer_json(
            folder.file(WHOLE), **named
        )
    else:
        if whole is not None:
            options = _of_whole(folder, whole)
        elif folder.has(VOCABULARY):
            options = _of_vocabulary(folder, settings)
        else:
            raise FileNotFoundError(
                f"'{folder.path}' has neither {WHOLE} nor {VOCABULARY}, and so "
                "no tokenizer: from_ids=True makes a model that needs none"
            )
        tokens = options["vocabulary"]
        if encoder.pad_id >= len(tokens):
            raise ValueError(
                f"'{folder.path}': config.json says pad_token_id="
                f"{encoder.pad_id}, and the tokenizer has {len(tokens)} tokens"
            )
        layer = WordpieceTokenizer(
            **options,
            normalization="bert",
            pad_token=tokens[encoder.pad_id],
            **named,
        )
    if layer.pad_id != encoder.pad_id:
        raise ValueError(
            f"'{folder.path}': the tokenizer pads with id {layer.pad_id}, and "
            f"config.json says pad_token_id={encoder.pad_id}"
        )
    if layer.vocabulary_size() > encoder.vocabulary_size:
        raise ValueError(
            f"'{folder.path}': the tokenizer has {layer.vocabulary_size()} "
            f"tokens, and config.json says vocab_size={encoder.vocabulary_size}"
        )
    return layer


def _kind(whole: Mapping[str, Any], folder: Folder) -> str:
    """What kind of tokenizer a file has, of those that are supported."""
    model = _part(whole, "model", folder.path / WHOLE)
    kind = model.get("type", WORDPIECE if "unk_token" in model else None)
    if kind not in (WORDPIECE, UNIGRAM):
        raise ValueError(
            f"'{folder.path / WHOLE}': a tokenizer of type {kind} is not "
            f"supported, only {WORDPIECE} and {UNIGRAM}: from_ids=True makes a "
            "model that needs none"
        )
    return kind


def _of_whole(folder: Folder, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from the file of the library "tokenizers"."""
    path = folder.path / WHOLE
    model = _part(whole, "model", path)
    _check(model, path, "continuing_subword_prefix", "##")
    _check(model, path, "max_input_chars_per_word", 100)
    normalizer = _part(whole, "normalizer", path)
    _check(normalizer, path, "type", "BertNormalizer")
    _check(normalizer, path, "clean_text", True)
    _check(
        _part(whole, "pre_tokenizer", path), path, "type", "BertPreTokenizer"
    )
    ids = dict(_part(model, "vocab", path))
    added = whole.get("added_tokens") or []
    for token in added:
        ids.setdefault(token["content"], token["id"])
    start, end = _frame(_part(whole, "post_processor", path), path)
    return {
        "vocabulary": _in_order(ids, path),
        "lowercase": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "split_on_cjk": normalizer.get("handle_chinese_chars", True),
        "special_tokens": [token["content"] for token in added],
        "unknown_token": model.get("unk_token", "[UNK]"),
        "start_token": start,
        "end_token": end,
    }


def _of_vocabulary(
    folder: Folder, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments from a list of tokens, and what is said beside it."""
    text = folder.file(VOCABULARY).read_text(encoding="utf-8")
    vocabulary = [line.rstrip("\r\n") for line in text.splitlines(True)]

    def named(key: str, usual: str) -> str:
        token = settings.get(key, usual)
        # Older files have an object with the token as its content.
        return token["content"] if isinstance(token, dict) else token

    return {
        "vocabulary": vocabulary,
        "lowercase": settings.get("do_lower_case", True),
        "strip_accents": settings.get("strip_accents"),
        "split_on_cjk": settings.get("tokenize_chinese_chars", True),
        "unknown_token": named("unk_token", "[UNK]"),
        "start_token": named("cls_token", "[CLS]"),
        "end_token": named("sep_token", "[SEP]"),
    }


def _longest(
    folder: Folder,
    settings: Mapping[str, Any],
    encoder: TransformerEncoderModel,
) -> int | None:
    """How many ids a text may have, or None for any number."""
    limits = [settings.get("model_max_length")]
    if folder.has(LENGTHS):
        lengths = folder.mapping(LENGTHS)
        _check(lengths, folder.path / LENGTHS, "do_lower_case", False)
        limits.append(lengths.get("max_seq_length"))
    if isinstance(encoder.input_position, PositionEmbedding):
        limits.append(encoder.input_position.sequence_length)
    known = [
        int(limit)
        for limit in limits
        if isinstance(limit, int | float) and 0 < limit < _NO_LENGTH
    ]
    return min(known, default=None)


def _frame(processor: Mapping[str, Any], path: Any) -> tuple[str, str]:
    """The tokens that stand before and behind those of a text."""
    if processor.get("type") in ("BertProcessing", "RobertaProcessing"):
        return processor["cls"][0], processor["sep"][0]
    _check(processor, path, "type", "TemplateProcessing")
    pieces = processor.get("single", [])
    tokens = [
        piece.get("SpecialToken", {}).get("id")
        if "Sequence" not in piece
        else ""
        for piece in pieces
    ]
    if len(tokens) != 3 or tokens[1] != "" or not (tokens[0] and tokens[2]):
        raise ValueError(
            f"'{path}', 'post_processor': a text must stand between one token "
            f"and another, and stands in {pieces!r}"
        )
    return tokens[0], tokens[2]


def _in_order(ids: Mapping[str, int], path: Any) -> Sequence[str]:
    tokens = sorted(ids, key=lambda token: ids[token])
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(
            f"'{path}': the ids of the vocabulary must be 0 to "
            f"{len(tokens) - 1}, each once"
        )
    return tokens


def _part(of: Mapping[str, Any], key: str, path: Any) -> Mapping[str, Any]:
    part = of.get(key)
    if not isinstance(part, dict):
        raise ValueError(f"'{path}' must have an object '{key}'")
    return part


def _check(of: Mapping[str, Any], path: Any, key: str, known: Any) -> None:
    value = of.get(key, known)
    if value != known:
        raise ValueError(
            f"'{path}', key '{key}': {value!r} is not supported, only {known!r}"
        )
