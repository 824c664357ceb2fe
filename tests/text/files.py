"""The fixtures of tokenizers, as `tokenizer.json` would hold them."""

import base64
import copy
import gzip
import json
import pathlib

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"


def zipped(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def content(name):
    return zipped(FIXTURES / f"{name}_parity.json.gz")


def sentencepiece_json(whitespace="model"):
    """What Hugging Face's file of the SentencePiece model would hold."""
    from keras_posenc.text.sentencepiece_model import model_class

    fixture = content("sentencepiece")
    said = copy.deepcopy(fixture["tokenizers"][whitespace]["json"])
    model = model_class().FromString(base64.b64decode(fixture["model"]))
    said["model"]["vocab"] = [
        *((name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")),
        *((each.piece, each.score) for each in model.pieces[3:]),
        ("<mask>", 0.0),
    ]
    rules = model.normalizer_spec.precompiled_charsmap
    said["normalizer"]["normalizers"][0]["precompiled_charsmap"] = (
        base64.b64encode(rules).decode()
    )
    return said
