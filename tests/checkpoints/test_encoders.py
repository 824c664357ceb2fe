"""Public checkpoints, by the keys of their configs: what loads, what not.

`encoders.json` lists them, as `public.py` says. Sizes are made small there, and
tensors drawn when they are asked for. `tokenizer_kinds.json` has a tiny
tokenizer of each kind, and what transformers computes with it.
"""

import base64
import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.checkpoints import hugging_face, model_types
from tests.checkpoints.public import (
    LISTED,
    LOADS,
    config_of,
    drawn,
    inherited,
    shrunk,
    works,
)

pytestmark = pytest.mark.tensorflow
pytest.importorskip("tensorflow_text")
FILE = Path(__file__).parents[1] / "fixtures" / "tokenizer_kinds.json"
FIXTURE = json.loads(FILE.read_text("utf-8"))
# Relative to the largest sum of a text's vectors.
TOLERANCE = 5e-6


class Drawn:
    """Tensors of any name and shape, besides those that are listed."""

    listed = ()

    def __init__(self, folder):
        self.names = list(self.listed) or [""]
        self.largest = 10**6

    def __contains__(self, name):
        return name in self.names

    def take(self, name, shape):
        return drawn(name, shape)

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


def write(folder, files):
    """Writes files of a tokenizer, in place of those of another."""
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        path = folder / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif "base64" in content:
            path.write_bytes(base64.b64decode(content["base64"]))
        else:
            path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="module")
def loading(tmp_path_factory):
    """Loads a config, once for all that are the same when they are small.

    Returns the model, or the error.
    """
    folder = tmp_path_factory.mktemp("encoder")

    @functools.cache
    def loading(config, also, kind, options):
        write(folder, FIXTURE["kinds"][kind] if kind else {})
        (folder / "config.json").write_text(config)
        Drawn.listed = also
        try:
            return kp.load_hugging_face(
                folder, verbose=False, **json.loads(options)
            )
        except ValueError as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patched:
        for module in (hugging_face, model_types):
            patched.setattr(module, "Tensors", Drawn)
        yield loading


def loaded(loading, name, from_texts, **more):
    options = {**inherited(name, "options", {}), **more}
    if from_texts:
        options.pop("pad_id", None)
    else:
        options = {"from_ids": True, **options}
    config = json.dumps(shrunk(config_of(name)), sort_keys=True)
    kind = inherited(name, "tokenizer", None) if from_texts else None
    also = tuple(inherited(name, "also", ()))
    return loading(config, also, kind, json.dumps(options))


@pytest.mark.parametrize("name", LISTED)
def test_public_checkpoint(name, loading):
    does, refused = LISTED[name]["does"], inherited(name, "texts", None)
    has_texts = inherited(name, "tokenizer", None) is not None
    found = loaded(loading, name, has_texts and refused is None)
    if does != LOADS:
        assert does in found
        return
    assert not isinstance(found, str), found
    config = shrunk(config_of(name))
    labels, shape = found.labels, found.output_shape
    expected = list(config["id2label"].values()) if labels else None
    assert (labels and list(labels)) == expected
    assert shape[-1] == (len(expected) if labels else 16)
    if refused is not None:
        message = loaded(loading, name, True)
        assert refused in message
        assert "from_ids=True" in message


@pytest.mark.parametrize("work", works())
def test_outputs_from_texts(work, loading):
    model = loaded(loading, works()[work], True)
    if model.labels:
        model = loaded(loading, works()[work], True, encoder_only=True)
    # At padding outputs are 0.
    found = np.array(model(FIXTURE["texts"])).sum(axis=1)
    expected = np.array(FIXTURE["expected"][work])
    largest = np.abs(expected).max()
    assert np.abs(found - expected).max() <= TOLERANCE * largest


def test_list_is_of_many():
    assert sum(each["does"] == LOADS for each in LISTED.values()) >= 130
    assert {each.get("like", "") for each in LISTED.values()} <= {"", *LISTED}
