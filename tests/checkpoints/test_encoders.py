"""Public checkpoints, by the keys of their configs: what loads, what not.

`encoders.json` says of each checkpoint on the Hugging Face Hub:

- `config`: its config.json, with the values in use; `like` names a checkpoint
  with the same keys except these, and `without` keys that only that one has;
- `also`: names of tensors that no model here needs, or that tell what it is;
- `options`: arguments of `load_hugging_face`, for ids or images;
- `does`: "loads", or words of the error.

Sizes are made small here, and tensors drawn when they are asked for.
"""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints import hugging_face, model_types

LISTED = json.loads(
    Path(__file__).with_name("encoders.json").read_text("utf-8")
)
LOADS = "loads"
SMALL = {
    **dict.fromkeys(("hidden_size", "dim", "n_embd"), 16),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head"), 4),
    **dict.fromkeys(("num_key_value_heads", "head_dim", "patch_size"), 4),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "n_inner"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer"), 1),
    "attention_head_size": 4,
    "image_size": 8,
    "max_position_embeddings": 24,
    "pad_vocab_size_multiple": 16,
    "pooler_hidden_size": 16,
    "position_buckets": 6,
    "vocab_size": 48,
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
    ids = {
        key: value
        for key, value in config.items()
        if key.endswith("token_id") and isinstance(value, int) and value >= 44
    }
    small |= {key: "" for key in NOTES if key in config}
    for number, value in enumerate(sorted(set(ids.values()))):
        for key in (key for key in ids if ids[key] == value):
            small[key] = 44 + number
    return small


class Drawn:
    """Tensors of any name and shape, besides those that are listed."""

    listed = ()

    def __init__(self, folder):
        self.names = list(self.listed) or [""]
        self.largest = 10**6

    def __contains__(self, name):
        return name in self.names

    def take(self, name, shape):
        rng = np.random.default_rng(sum(map(ord, name)))
        return rng.normal(0, 0.1, shape).astype("float32")

    def finish(self, of_no_matter):
        patterns = [re.compile(each) for each in of_no_matter]
        for name in self.listed:
            is_known = any(each.fullmatch(name) for each in patterns)
            is_taken = name in TAKEN
            assert is_known or is_taken, f"{name} is not accounted for"

    def digests(self):
        return {}


# Names that are listed to tell the type, and are in the model too.
TAKEN = {
    "bert.embeddings.word_embeddings.weight",
    "bert.encoder.layer.0.attention.self.query.weight",
}


@pytest.fixture(scope="module")
def loading(tmp_path_factory):
    """Loads a config, once for all that are the same when they are small.

    Returns the model's labels and its output's shape, or the error.
    """
    folder = tmp_path_factory.mktemp("encoder")

    @functools.cache
    def loading(config, also, options):
        (folder / "config.json").write_text(config)
        Drawn.listed = also
        try:
            model = kp.load_hugging_face(
                folder, verbose=False, **json.loads(options)
            )
        except ValueError as error:
            return str(error)
        return model.labels, model.output_shape

    with pytest.MonkeyPatch.context() as patched:
        for module in (hugging_face, model_types):
            patched.setattr(module, "Tensors", Drawn)
        yield loading


@pytest.mark.parametrize("name", LISTED)
def test_public_checkpoint(name, loading):
    config = shrunk(config_of(name))
    options = {"from_ids": True, **inherited(name, "options", {})}
    found = loading(
        json.dumps(config, sort_keys=True),
        tuple(inherited(name, "also", ())),
        json.dumps(options),
    )
    does = LISTED[name]["does"]
    if does != LOADS:
        assert does in found
        return
    assert not isinstance(found, str), found
    labels, shape = found
    expected = list(config["id2label"].values()) if labels else None
    assert (labels and list(labels)) == expected
    assert shape[-1] == (len(expected) if labels else 16)


def test_list_is_of_many():
    assert sum(each["does"] == LOADS for each in LISTED.values()) >= 130
    assert {each.get("like", "") for each in LISTED.values()} <= {"", *LISTED}
