"""Public checkpoints, by the keys of their configs: what loads, what not.

`checkpoints.json` lists them, as `public.py` says. Sizes are made small there.
`tokenizer_kinds.json` has a tiny tokenizer of each kind. What models compute is
compared in other tests.
"""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints import loading as pipeline
from keras_posenc.generation.search import vocabulary_of
from tests.checkpoints.folders import add_modules
from tests.checkpoints.public import (
    DOES,
    LISTED,
    LOADS,
    config_of,
    inherited,
    shrunk,
)
from tests.checkpoints.test_tokenizers import write as write_zipped
from tests.text.files import FIXTURES, zipped

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")
FILE = Path(__file__).parents[1] / "fixtures" / "tokenizer_kinds.json"
FIXTURE = json.loads(FILE.read_text("utf-8"))
GENERATORS = zipped(FIXTURES / "generator_tokenizers.json.gz")["cases"]


class Drawn:
    """Tensors of any name and shape, besides those that are listed."""

    listed = ()

    def __init__(self, folder):
        self.names = list(self.listed) or [""]
        self.largest = 10**6
        self.taken = set()

    def __contains__(self, name):
        return name in self.names

    def take(self, name, shape):
        self.taken.add(name)
        return np.ones(shape, "float32")

    def check_shape(self, name, shape):
        """Accepts all: tensors are of any shape."""

    def finish(self, of_no_matter):
        patterns = [re.compile(each) for each in of_no_matter]
        for name in self.listed:
            is_known = any(each.fullmatch(name) for each in patterns)
            assert is_known or name in self.taken, (
                f"{name} is not accounted for"
            )

    def digests(self):
        return {}


def write(folder, files):
    """Writes files of a tokenizer."""
    for name, content in files.items():
        path = folder / name
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def loading(tmp_path_factory):
    """Loads a config, once for all that are the same when they are small.

    Returns the model, or the error.
    """

    @functools.cache
    def loading(config, also, kind, options, is_of_sentences):
        folder = tmp_path_factory.mktemp("checkpoint")
        if kind in GENERATORS:
            write_zipped(folder, GENERATORS[kind]["files"])
        elif kind:
            write(folder, FIXTURE["kinds"].get(kind, {}))
        if is_of_sentences:
            add_modules(folder)
        (folder / "config.json").write_text(config)
        Drawn.listed = also
        try:
            return kp.load_hugging_face(
                folder, verbose=False, **json.loads(options)
            )
        except (ValueError, FileNotFoundError) as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pipeline, "Tensors", Drawn)
        yield loading


def small_config(name):
    """A checkpoint's config, made small; with as many ids as tokens."""
    config = shrunk(config_of(name))
    if inherited(name, "tokenizer", None) in GENERATORS:
        sizes = ("vocab_size", "decoder_vocab_size")
        sizes += ("vocab_size_per_layer_input",)
        for each in (config, config.get("text_config", {})):
            each |= {key: 2000 for key in sizes if key in each}
    return config


def loaded(loading, name, from_texts, **more):
    options = {**inherited(name, "options", {}), **more}
    if from_texts:
        options.pop("pad_id", None)
    else:
        options = {"from_ids": True, **options}
    config = json.dumps(small_config(name), sort_keys=True)
    kind = inherited(name, "tokenizer", None) if from_texts else None
    also = tuple(inherited(name, "also", ()))
    is_of_sentences = LISTED[name]["does"] == "encodes"
    return loading(config, also, kind, json.dumps(options), is_of_sentences)


@pytest.mark.parametrize("name", LISTED)
def test_public_checkpoint(name, loading):
    does, refused = LISTED[name]["does"], inherited(name, "texts", None)
    has_texts = inherited(name, "tokenizer", None) is not None
    found = loaded(loading, name, has_texts and refused is None)
    if does not in (LOADS, *DOES):
        assert does in found
        return
    assert not isinstance(found, str), found
    config = small_config(name)
    if does == "generates":
        size = config.get("text_config", config)["vocab_size"]
        assert vocabulary_of(found.model) == size
        ends = config["eos_token_id"]
        assert list(np.ravel(ends)) == list(found.end_ids)
        assert found.model.pad_id == -1  # a text may spell the padding
        return
    assert found.labels or does != "classifies"
    labels, shape = found.labels, found.output_shape
    expected = list(config["id2label"].values()) if labels else None
    assert (labels and list(labels)) == expected
    assert shape[-1] == (len(expected) if labels else 16)
    if refused is not None:
        message = loaded(loading, name, True)
        assert refused in message
        assert "from_ids=True" in message
