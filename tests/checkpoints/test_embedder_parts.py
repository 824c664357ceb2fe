"""Encoders in two halves, as LiteRT-LM runs them, against `transformers`."""

from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.transformer._from_embeddings import (
    encoded_from_embeddings,
    looked_up,
)

FIXTURES = Path(__file__).parent.parent / "fixtures" / "hugging_face"
# As in `test_parity.py`.
TOLERANCE = 5e-6
# Ways from a table of tokens to the first block: norms, a narrow table and its
# projection, positions that count tokens, and positions inside attention.
FAMILIES = (
    "deberta_v2",
    "electra_narrow",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm_roberta",
)


@pytest.mark.parametrize("name", FAMILIES)
def test_computes_what_transformers_does(name):
    encoder = kp.load_hugging_face(
        FIXTURES / name, from_ids=True, encoder_only=True, verbose=False
    ).encoder
    with np.load(FIXTURES / name / "expected.npz") as arrays:
        ids, mask = arrays["ids"], arrays["mask"].astype("float32")
        hidden = arrays["hidden"]
    token = keras.Input((None,), dtype="int32")
    embedder = keras.Model(token, looked_up(encoder, token))
    rows = keras.Input(embedder.output_shape[1:])
    tokens = keras.Input((None,))
    rest = keras.Model(
        [rows, tokens], encoded_from_embeddings(encoder, rows, tokens)
    )
    given = np.where(mask[..., None] > 0, np.array(embedder(ids)), np.nan)
    found = keras.ops.convert_to_numpy(rest([given, mask]))
    error = np.abs(np.where(mask[..., None] > 0, found - hidden, 0)).max()
    assert error <= TOLERANCE * np.abs(hidden).max()
