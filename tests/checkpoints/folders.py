"""Folders of checkpoints: copies that are changed, and a tokenizer's file."""

import json
import shutil
from pathlib import Path

from tests.text.files import FIXTURES

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
GONE = object()  # no value at all
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *(f"word{number}" for number in range(43))]
WORDPIECE = {
    "added_tokens": [
        {"id": number, "content": token} for number, token in enumerate(SPECIAL)
    ],
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]"}},
            {"Sequence": {"id": "A"}},
            {"SpecialToken": {"id": "[SEP]"}},
        ],
        "special_tokens": {"[CLS]": {"ids": [2]}, "[SEP]": {"ids": [3]}},
    },
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "vocab": {token: id for id, token in enumerate(VOCABULARY)},
    },
}


def at(name):
    """Returns the folder of a fixture by its name."""
    groups = (
        "hugging_face",
        "language_models",
        "encoder_decoders",
        "jina_bert",
    )
    (folder,) = (x for g in groups if (x := FIXTURES / g / name).exists())
    return folder


def copied(original, parent, tensors=None, **keys):
    """Copies a folder, with other keys in its config and other tensors.

    `tensors` is a function from its tensors to those of the copy.
    """
    folder = Path(shutil.copytree(original, parent / original.name))
    for key, value in keys.items():
        changed(folder / "config.json", [key], value)
    if tensors is not None:
        from safetensors.numpy import load_file, save_file

        save_file(tensors(load_file(folder / WEIGHTS)), folder / WEIGHTS)
    return folder


def changed(path, keys, value):
    """Gives a place in a JSON file another value, or none."""
    whole = json.loads(path.read_text("utf-8"))
    *outer, last = keys
    part = whole
    for key in outer:
        part = part[key]
    part.pop(last, None)
    if value is not GONE:
        part[last] = value
    path.write_text(json.dumps(whole), "utf-8")


def add_modules(folder):
    """Makes an encoder's folder that of a sentence encoder, by means."""
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in (("Transformer", ""), ("Pooling", "1"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1").mkdir()
    (folder / "1" / "config.json").write_text('{"pooling_mode": "mean"}')
