"""The configuration of a checkpoint, of which every key must be understood."""

from collections.abc import Callable, Mapping
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

# Keys without effect on an encoder's outputs: who wrote the file and how, how
# the model was trained, and options of decoders and generation.
_OF_NO_MATTER = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash
    _name_or_path architectures attention_dropout attention_probs_dropout_prob
    attn_pdrop auto_map base_model_tp_plan bos_token_id cls_token_id
    classifier_dropout classifier_dropout_prob deterministic_flash_attn
    directionality dtype embd_pdrop embedding_dropout eos_token_id
    finetuning_task gradient_checkpointing id2label initializer_cutoff_factor
    initializer_factor initializer_range label2id language layerdrop num_labels
    mask_token_id max_length mlp_dropout model_max_length model_type
    matryoshka_dimensions matryoshka_dims
    output_attentions output_hidden_states output_past pooler_dropout
    pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type pretraining_tp problem_type qa_dropout
    resid_pdrop return_dict return_dict_in_generate
    sbert_ce_default_activation_function sentence_transformers sep_token_id
    seq_classif_dropout sparse_pred_ignore_index sparse_prediction
    summary_activation summary_first_dropout summary_last_dropout summary_type
    summary_use_proj task_specific_params tie_word_embeddings tie_weights_
    tokenizer_class torch_dtype torchscript transformers_version use_bfloat16
    use_cache
    """.split()
)
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
        """Returns the value of a key; raises `ValueError` if it is missing.

        Args:
            key: Its name.
            default: The value where the key is missing.
            *kinds: The types it may have: `str`, `type(None)`, ...
        """
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
        """Gives a key its current name.

        Where both names are present, their values must be equal.

        Args:
            older: Its name in other configs.
            key: Its current name.
            known: The current values by the older ones, where they differ.
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

    def finish(self) -> None:
        """Raises `ValueError` if there are keys that were not taken."""
        for key, values in _FIXED.items():
            self.expect(key, *values)
        unknown = {
            key: value
            for key, value in sorted(self._left.items())
            if key not in _OF_NO_MATTER
        }
        if unknown:
            listed = ", ".join(
                f"{key}={shown(value)}" for key, value in unknown.items()
            )
            raise ValueError(
                f"'{self.path}' has keys that are not supported: {listed}"
            )

    def wrong(self, key: str, why: str) -> ValueError:
        """Returns a `ValueError` that names a key."""
        return ValueError(f"'{self.path}', key '{key}': {why}")
