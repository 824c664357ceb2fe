"""Public checkpoints, by the keys of their configs, made small.

`checkpoints.json` says of each checkpoint on the Hugging Face Hub:

- `config`: its config.json, with the values in use; `like` names a checkpoint
  with the same keys except these, and `without` keys that only that one has;
- `also`: names of tensors that no model here needs, or that tell what it is;
- `tokenizer`: the kind of its tokenizer, one of `tokenizer_kinds.json` or, for
  those that generate, of `generator_tokenizers.json.gz`;
- `options`: arguments of `load_hugging_face`, for ids or images;
- `does`: "loads"; of a language model "generates", "encodes" (with the
  modules.json of a sentence encoder) or "classifies"; or words of the error;
- `texts`: words of the error, where it loads from ids and not from texts.

What follows `like` also has its `also`, `tokenizer`, `options` and `texts`.
docs/pretrained.md lists those that are refused.
"""

import json
from pathlib import Path

LISTED = json.loads(
    Path(__file__).with_name("checkpoints.json").read_text("utf-8")
)
LOADS = "loads"
# What a language model does that loads.
DOES = ("generates", "encodes", "classifies")
SMALL = {
    **dict.fromkeys(("hidden_size", "dim", "n_embd", "d_model"), 16),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_heads"), 4),
    "decoder_attention_heads": 4,
    **dict.fromkeys(("num_key_value_heads", "head_dim", "patch_size"), 4),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "n_inner"), 32),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_ff"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer"), 1),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_layers"), 1),
    "num_decoder_layers": 1,
    "d_kv": 4,
    "global_head_dim": 8,
    "num_global_key_value_heads": 2,
    "num_kv_shared_layers": 0,
    "attention_head_size": 4,
    "image_size": 8,
    "max_length": 40,
    "max_position_embeddings": 60,
    "min_length": 10,
    "pad_vocab_size_multiple": 16,
    "pooler_hidden_size": 16,
    "position_buckets": 6,
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 384),
}
NOTES = ("_name_or_path", "transformers_version")


def config_of(name):
    """A checkpoint's config."""
    said = LISTED[name]
    base = config_of(said["like"]) if "like" in said else {}
    kept = {k: v for k, v in base.items() if k not in said.get("without", ())}
    return kept | said["config"]


def inherited(name, key, default):
    """Returns a value of a checkpoint, or of the one that it is like."""
    said = LISTED[name]
    while key not in said and "like" in said:
        said = LISTED[said["like"]]
    return said.get(key, default)


def shrunk(config):
    """A config of the same keys, with small sizes and few ids."""
    small = {key: SMALL.get(key, value) for key, value in config.items()}
    if "embedding_size" in config:
        is_narrow = config["embedding_size"] < config["hidden_size"]
        small["embedding_size"] = 8 if is_narrow else 16
    small |= {key: "" for key in NOTES if key in config}
    if "text_config" in config:
        small["text_config"] = shrunk(config["text_config"])
    if "layer_types" in config:
        small["layer_types"] = config["layer_types"][:1]
    ids = {
        key: value
        for key, value in config.items()
        if key.endswith("token_id") or key == "bad_words_ids"
    }
    found = sorted({each for each in within(ids.values()) if each >= 44})
    fewer = {large: 44 + number for number, large in enumerate(found)}
    return small | {key: replaced(value, fewer) for key, value in ids.items()}


def within(value):
    """Yields the numbers of nested lists."""
    if isinstance(value, int):
        yield value
    elif value is not None:
        for each in value:
            yield from within(each)


def replaced(value, by):
    """Returns nested lists with other numbers."""
    if isinstance(value, list):
        return [replaced(each, by) for each in value]
    return by.get(value, value)
