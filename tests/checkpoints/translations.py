"""Folders of tiny encoder-decoders, of which `translations.json` says more.

Needs NumPy and the standard library alone, except for `write_files`.
"""

import base64
import json
import zlib

import numpy as np

from tests.text.files import FIXTURES, zipped

FILE = FIXTURES / "translations.json"


def write_files(folder, name):
    """Writes the tokenizer's files, which have no rules of normalization."""
    case = zipped(FIXTURES / "generator_tokenizers.json.gz")["cases"][name]
    for file, said in case["files"].items():
        if "base64" in said:
            (folder / file).write_bytes(base64.b64decode(said["base64"]))
        else:
            (folder / file).write_text(json.dumps(said), encoding="utf-8")


def weights(shapes, seed, end):
    """Returns tensors that depend on their names, the seed and the end alone.

    The end's embedding is larger than others, so that some texts end.
    """
    found = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        is_of_norm = len(shape) == 1 and name.endswith("weight")
        found[name] = rng.normal(is_of_norm, 0.4, shape).astype("float32")
        if name.endswith("shared.weight"):
            found[name][end] *= 3
    return found


def write_folder(folder, name, case):
    """Writes a checkpoint."""
    from safetensors.numpy import save_file

    folder.mkdir()
    write_files(folder, name)
    for file in ("config", "generation_config"):
        text = json.dumps(case[file])
        (folder / f"{file}.json").write_text(text, encoding="utf-8")
    end = case["config"]["eos_token_id"]
    tensors = weights(case["shapes"], case["seed"], end)
    save_file(tensors, folder / "model.safetensors")
