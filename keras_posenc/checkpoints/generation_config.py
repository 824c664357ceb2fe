"""Reads generation_config.json, the defaults of generation."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.folder import Folder
from keras_posenc.checks import (
    as_integer,
    check_bool,
    check_count,
    check_index,
    check_not_negative,
)
from keras_posenc.generation.sampling import Sampling
from keras_posenc.progress import printable
from keras_posenc.text.files import shown

FILE, OF_MODEL = "generation_config.json", "config.json"

# transformers' 20 tokens in all would cut nearly every reply.
_NEW_TOKENS = 256

# Keys that no output depends on: who wrote the file, what transformers returns
# besides ids, and how it computes them.
_OF_NO_MATTER = frozenset(
    """
    _attn_implementation _commit_hash _from_model_config _name_or_path
    architectures assistant_confidence_threshold assistant_early_exit
    assistant_ensemble_weight assistant_lookbehind cache_config
    cache_implementation cls_token_id compile_config disable_compile dtype
    is_assistant low_memory mask_token_id max_cache_len
    max_matching_ngram_size model_type
    num_assistant_tokens num_assistant_tokens_schedule output_attentions
    output_hidden_states output_logits output_scores prefill_chunk_size
    prompt_lookup_num_tokens return_dict_in_generate sep_token_id
    speculation_type target_lookbehind tokenizer_class torch_dtype
    transformers.js_config transformers_version trust_remote_code use_cache
    use_mtp
    """.split()
)
# Keys that must have this value, which changes nothing: what others do is not
# supported.
_NEUTRAL: dict[str, Any] = {
    "begin_suppress_tokens": [],
    "diversity_penalty": 0.0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "guidance_scale": 1.0,
    "num_beam_groups": 1,
    "penalty_alpha": 0.0,
    "remove_invalid_values": False,
    "token_healing": False,
    "typical_p": 1.0,
}
# Keys of config.json that transformers takes where there is no
# generation_config.json, as checkpoints of before 2023 have it.
_OF_OLD = frozenset(
    """
    bad_words_ids begin_suppress_tokens bos_token_id decoder_start_token_id
    diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    eos_token_id exponential_decay_length_penalty forced_bos_token_id
    forced_eos_token_id length_penalty max_length min_length
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
    remove_invalid_values repetition_penalty suppress_tokens temperature top_k
    top_p typical_p
    """.split()
)


def generation_of(
    folder: Folder,
    values: Mapping[str, Any],
    *,
    vocabulary: int,
    has_encoder: bool,
    max_positions: int | None,
) -> dict[str, Any]:
    """Returns the arguments of a `PretrainedGenerator` that a folder gives.

    Args:
        folder: The checkpoint.
        values: Its config.json.
        vocabulary: How many ids the model writes.
        has_encoder: Whether it writes targets; else it continues prompts.
        max_positions: How many tokens have positions; None for no limit.

    Raises:
        ValueError: A key is not known, or changes the outputs in a way that is
            not supported.

    Warns:
        UserWarning: The start or an end symbol is ignored, as the model does
            not have it.
    """
    name, known = FILE, None
    if folder.has(FILE):
        values = folder.mapping(FILE)
    else:
        name, known = OF_MODEL, _OF_OLD
    given = {
        key: value
        for key, value in values.items()
        # null is transformers' own default.
        if value is not None
        and key not in _OF_NO_MATTER
        and (known is None or key in known)
    }
    # Of targets, the first id is read in any case.
    unused = ["bos_token_id", "eos_token_id"]
    if has_encoder and "decoder_start_token_id" not in given:
        unused.remove("bos_token_id")
    _drop_unknown(given, unused, vocabulary, folder.path / name)
    config = Config(given, folder.path / name)

    def ids(key: str) -> list[int]:
        value = config.take(key, [])
        several = value if isinstance(value, list) else [value]
        try:
            return [check_index(key, each, vocabulary) for each in several]
        except ValueError as error:
            raise config.wrong(key, str(error)) from None

    def one(key: str) -> int | None:
        found = ids(key)
        if len(found) > 1:
            raise config.wrong(key, "it must be one id, and is several")
        return found[0] if found else None

    def drawn(key: str, default: float) -> Any:
        value = config.take(key, default)
        try:
            if (key, value) != ("top_k", 0):
                Sampling(**{key: value})
        except ValueError as error:
            if does_sample:
                raise config.wrong(key, str(error)) from None
            return default  # unused, as transformers has it
        return value

    does_sample = bool(config.checked("do_sample", check_bool, False))
    config.take("pad_token_id", None)
    start, first = one("bos_token_id"), one("decoder_start_token_id")
    before, last = one("forced_bos_token_id"), one("forced_eos_token_id")
    new = longest = None
    if "max_length" in given:
        longest = config.size("max_length")
    if "max_new_tokens" in given:
        new = config.size("max_new_tokens")
    least = int(config.checked("min_length", check_count, 0))
    if has_encoder:
        # transformers counts the first id, which is not generated.
        start = start if first is None else first
        least = max(least - 1, 0)
        new = new or (longest and max(longest - 1, 1))
    elif least:
        raise config.wrong(
            "min_length",
            "it counts the prompt too, which may have any length. Write "
            "min_new_tokens instead",
        )
    elif longest is not None and new is None:  # else transformers drops it
        max_positions = min(longest, max_positions or longest)
    if new is None:
        most = max_positions or 2 * _NEW_TOKENS
        # Half of them, where the prompt needs some too.
        new = min(_NEW_TOKENS, most if has_encoder else most // 2)
    options = {
        "max_length": new,
        "max_positions": None if has_encoder else max_positions,
        "min_length": int(config.checked("min_new_tokens", check_count, least)),
        "start_id": start,
        "end_ids": ids("eos_token_id"),
        "prefix_ids": [] if before is None else [before],
        "forced_end_id": last,
        "suppress_ids": ids("suppress_tokens") + _words(config, vocabulary),
        "repetition_penalty": config.positive("repetition_penalty", 1.0),
        "no_repeat_ngram_size": int(
            config.checked("no_repeat_ngram_size", check_count, 0)
        ),
        "beams": config.size("num_beams", 1),
        "n_best": config.size("num_return_sequences", 1),
        "do_sample": does_sample,
        "sampling": {
            "temperature": drawn("temperature", 1.0),
            # 0 is none; transformers' own default is 50.
            "top_k": drawn("top_k", 50) or None,
            "top_p": drawn("top_p", 1.0),
            "min_p": drawn("min_p", 0.0),
        },
        "renormalize_logits": config.expect("renormalize_logits", False, True),
        "beam_options": {
            "length_penalty": config.take("length_penalty", 1.0, int, float),
            "early_stopping": config.expect(
                "early_stopping", False, True, "never"
            ),
        },
    }
    for key, neutral in _NEUTRAL.items():
        config.expect(key, neutral)
    config.finish(of_no_matter=())
    _check_together(config, options)
    return options


def _drop_unknown(
    given: dict[str, Any], keys: Sequence[str], vocabulary: int, path: Any
) -> None:
    """Drops ids that the model cannot read or write, and warns of them."""
    lost = {}
    for key in keys:
        value = given.get(key)
        several = value if isinstance(value, list) else [value]
        kept = [
            each
            for each in several
            if as_integer(each) is None or _is_id(each, vocabulary)
        ]
        if kept != several:
            lost[key] = f"{key}={shown(value)}"
            given[key] = kept
    if lost:
        remedy = ". `generate` takes others that end outputs, as `end_ids`"
        warnings.warn(
            printable(
                f"'{path}': ids that are not in the model's vocabulary, "
                f"[0, {vocabulary}), are ignored: {', '.join(lost.values())}"
                + remedy
                * ("eos_token_id" in lost)
            ),
            stacklevel=2,
        )


def _check_together(config: Config, options: Mapping[str, Any]) -> None:
    """Raises `ValueError` for keys that exclude each other here."""
    beams, several, most = (
        options[name] for name in ("beams", "n_best", "max_length")
    )
    if beams > 1 and options["do_sample"]:
        raise config.wrong(
            "num_beams",
            "beams that are sampled are not supported: they draw several "
            "tokens at each step, and samples here one. Write num_beams=1, or "
            f"do_sample=false. Received: num_beams={beams}, do_sample=true",
        )
    if several > beams:
        raise config.wrong(
            "num_return_sequences",
            "only beams give several sequences. Write num_return_sequences=1, "
            "and to sample several give a prompt several times. Received: "
            f"num_return_sequences={several}, num_beams={beams}",
        )
    if beams > 1:
        try:
            of_beams = options["beam_options"]
            check_not_negative("length_penalty", of_beams["length_penalty"])
        except ValueError as error:
            raise config.wrong("length_penalty", str(error)) from None
    if options["min_length"] >= most:
        raise config.wrong(
            "min_new_tokens",
            "it must be less than max_new_tokens. Write a smaller one. "
            f"Received: min_new_tokens={options['min_length']}, "
            f"max_new_tokens={most}",
        )


def _words(config: Config, vocabulary: int) -> list[int]:
    """Returns the ids that must not be generated, each a word of its own."""
    words = config.take("bad_words_ids", [], list)
    if not all(
        isinstance(word, list)
        and len(word) == 1
        and _is_id(word[0], vocabulary)
        for word in words
    ):
        raise config.wrong(
            "bad_words_ids",
            "only words of one id, in brackets, are supported. Received: "
            + shown(words),
        )
    return [int(word[0]) for word in words]


def _is_id(value: Any, size: int) -> bool:
    number = as_integer(value)
    return number is not None and 0 <= number < size
