"""The configuration of a checkpoint, of which every key must be understood."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from keras_posenc.checks import (
    check_index,
    check_positive,
    check_positive_int,
    check_rate,
)
from keras_posenc.text.files import shown

REQUIRED = object()
# How messages name these types: in the words of JSON.
_KINDS = {
    bool: "true or false",
    dict: "an object",
    list: "a list",
    str: "a string",
    type(None): "null",
}

# Keys that a family does not read, but a head, the padding or the loader does.
_OF_OTHERS = frozenset(
    """
    architectures bos_token_id cls_token_id eos_token_id id2label model_type
    num_labels problem_type sbert_ce_default_activation_function
    sentence_transformers sep_token_id
    """.split()
)
# Keys without effect on an encoder's outputs: who wrote the file and how, how
# the model was trained, and options of decoders and generation.
_OF_NO_MATTER = _OF_OTHERS | frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash
    _model_name_or_path _name_or_path _num_labels attention_dropout
    attention_probs_dropout_prob
    attn_implementation attn_pdrop auto_map bad_words_ids base_model_tp_plan
    begin_suppress_tokens classifier_dropout classifier_dropout_prob
    decoder_start_token_id deterministic_flash_attn directionality
    diversity_penalty do_sample dtype early_stopping embd_pdrop
    embedding_dropout encoder_no_repeat_ngram_size eos_token_ids
    exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing initializer_cutoff_factor
    initializer_factor initializer_range label2id language layerdrop
    length_penalty mask_token_id matryoshka_dimensions matryoshka_dims
    max_length min_length mlp_dropout
    model_max_length name no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences output_attentions output_hidden_states output_past
    output_scores pooler_dropout pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type prefix
    pretraining_tp qa_dropout remove_invalid_values repetition_penalty
    resid_pdrop return_dict return_dict_in_generate seq_classif_dropout
    sparse_pred_ignore_index sparse_prediction summary_activation
    summary_first_dropout summary_last_dropout summary_type summary_use_proj
    suppress_tokens task_specific_params temperature tf_legacy_loss
    tie_weights_ tie_word_embeddings tokenizer_class top_k top_p torch_dtype
    torchscript transformers.js_config transformers_version typical_p
    uniem_embedding_strategy unsloth_fixed unsloth_version use_bfloat16
    use_cache xla_device
    """.split()
)
# Keys of what no family has, by what they say of a model.
_FEATURES = {
    "lora_adaptations": "an adapter for each task (as in jina-embeddings-v3)",
    "num_experts": "a mixture of experts",
    "num_local_experts": "a mixture of experts",
    "quantization_config": "quantized weights",
}
# Keys that must have this value if they are present.
_FIXED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "cross_attention_hidden_size": (None,),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "tie_encoder_decoder": (False,),
}


class Config:
    """The keys of a JSON object, each taken once; `finish` rejects the rest.

    Args:
        values: The keys with their values.
        path: The file, for messages.
        most_blocks: The most blocks that the model can have: one for each
            tensor. None where tensors are not known yet.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        path: Any,
        most_blocks: int | None = None,
    ) -> None:
        self.values = values
        self._left = dict(values)
        self.path = path
        self._most_blocks = most_blocks

    def take(self, key: str, default: Any = REQUIRED, *kinds: type) -> Any:
        """Returns the value of a key; raises `ValueError` if it is missing."""
        value = self._left.pop(key, default)
        if value is REQUIRED:
            raise ValueError(f"'{self.path}' has no key '{key}'")
        if kinds and not isinstance(value, kinds):
            known = " or ".join(_KINDS[kind] for kind in kinds)
            raise self.wrong(key, f"it must be {known}, and is {shown(value)}")
        return value

    def part(self, key: str, default: Any = REQUIRED) -> "Config":
        """Returns the object that is the value of a key, as a `Config`."""
        value = self.take(key, default, dict)
        return Config(value, f"{self.path}', '{key}")

    def checked(
        self,
        key: str,
        check: Callable[..., Any],
        default: Any = REQUIRED,
        *more: Any,
    ) -> Any:
        """Returns what a function of `checks` makes of the value of a key."""
        value = self.take(key, default)
        try:
            return check(key, value, *more)
        except (ValueError, OverflowError) as error:
            raise self.wrong(key, str(error)) from None

    def size(self, key: str, default: Any = REQUIRED) -> int:
        """Returns the value of a key that must be a positive integer."""
        return int(self.checked(key, check_positive_int, default))

    def size_or(self, key: str, default: int) -> int:
        """Returns the value of a key as `size`; a default for null too."""
        if self.values.get(key) is None:
            self._left.pop(key, None)
            return default
        return self.size(key)

    def blocks(self, key: str) -> int:
        """Returns the number of blocks; at most one for each tensor."""
        count = self.size(key)
        if self._most_blocks is not None and count > self._most_blocks:
            raise self.wrong(
                key,
                f"{count} blocks, but there are only {self._most_blocks} "
                "tensors",
            )
        return count

    def index(self, key: str, size: int, default: Any = REQUIRED) -> int:
        """Returns the value of a key that must be in [0, size)."""
        return int(self.checked(key, check_index, default, size))

    def rate(self, key: str, default: Any = REQUIRED) -> float:
        """Returns the value of a key that must be in [0, 1)."""
        return float(self.checked(key, check_rate, default))

    def positive(self, key: str, default: Any = REQUIRED) -> float:
        """Returns the value of a key that must be a finite number above 0."""
        return float(self.checked(key, check_positive, default))

    def expect(self, key: str, *known: Any) -> Any:
        """Returns the value of a key that must be one of `known`.

        Where the key is missing, it is the first of them.
        """
        value = self._left.pop(key, known[0])
        if value not in known:
            raise self.wrong(
                key,
                f"{shown(value)} is not supported, only "
                + " or ".join(map(repr, known)),
            )
        return value

    def rename(
        self, older: str, key: str, known: Mapping[str, str] | None = None
    ) -> None:
        """Gives a key its current name, and its value that of `known`.

        Where both names are present, their values must be equal.
        """
        if older in self._left:
            value = (
                self._left.pop(older)
                if known is None
                else self.choose(older, known, next(iter(known)))
            )
            if self._left.setdefault(key, value) != value:
                raise self.wrong(
                    older,
                    f"{shown(value)} differs from '{key}', "
                    + shown(self._left[key]),
                )

    def need(self, *keys: str) -> None:
        """Raises `ValueError` unless all keys are present."""
        for key in keys:
            if key not in self.values:
                raise ValueError(f"'{self.path}' has no key '{key}'")

    def require(self, key: str, value: Any) -> None:
        """Raises `ValueError` unless a key is present and has this value."""
        self._left[key] = self.take(key)
        self.expect(key, value)

    def choose(self, key: str, known: Mapping[str, Any], default: Any) -> Any:
        """Returns what `known` gives for the value of a key."""
        others = (each for each in known if each != default)
        return known[self.expect(key, default, *others)]

    def refuse_features(self) -> None:
        """Raises `ValueError` for what no family has, and says what it is."""
        for key, what in _FEATURES.items():
            value = self._left.pop(key, None)
            if value:
                raise self.wrong(
                    key,
                    f"this is a model with {what}, which is not supported. "
                    f"Choose a checkpoint without. Received: {shown(value)}",
                )

    def finish(
        self,
        ignored: Collection[str] | None = None,
        *,
        of_no_matter: Collection[str] = _OF_NO_MATTER,
    ) -> None:
        """Raises `ValueError` if there are keys that were not taken."""
        self._check_ignored(ignored or ())
        for key, values in _FIXED.items():
            self.expect(key, *values)
        unknown = {
            key: value
            for key, value in sorted(self._left.items())
            if key not in of_no_matter and key not in (ignored or ())
        }
        if unknown:
            listed = ", ".join(
                f"{key}={shown(value)}" for key, value in unknown.items()
            )
            keys = [*(ignored or ()), *unknown]
            raise ValueError(
                f"'{self.path}' has keys that are not supported: {listed}"
                + (
                    ""
                    if ignored is None
                    else ". If no output depends on them, "
                    f"`ignore_keys={keys!r}` passes over them"
                )
            )

    def _check_ignored(self, ignored: Collection[str]) -> None:
        """Raises `ValueError` for a key that is absent or that matters."""
        absent = [key for key in ignored if key not in self.values]
        if absent:
            raise ValueError(
                "`ignore_keys` must name keys of the config, and "
                f"'{self.path}' has none of the name {', '.join(absent)}. "
                f"Received: ignore_keys={ignored!r}"
            )
        read = [
            f"{key}={shown(self.values[key])}"
            for key in ignored
            if key in _OF_OTHERS
            or key not in self._left
            or self.values[key] not in _FIXED.get(key, [self.values[key]])
        ]
        if read:
            raise ValueError(
                "`ignore_keys` must not name keys that outputs depend on: "
                f"{', '.join(read)} in '{self.path}'. Leave them out. "
                f"Received: ignore_keys={ignored!r}"
            )

    def wrong(self, key: str, why: str) -> ValueError:
        """Returns a `ValueError` that names a key."""
        return ValueError(f"'{self.path}', key '{key}': {why}")
