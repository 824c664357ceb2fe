"""CTranslate2's contestant; the only file here that needs CTranslate2."""

import atexit
import tempfile
from collections.abc import Sequence
from typing import Any

import ctranslate2
import numpy as np
from _contest import (
    DIM,
    END,
    FEED_FORWARD,
    HEADS,
    THREADS,
    VOCABULARY,
    Size,
    Work,
)
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation


def prepare(name: str, size: Size) -> Work:
    """Its greedy search in float32, which writes as many tokens as are asked.

    Its files hold the table of the embeddings three times: a converter of
    tied weights shares them.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    _spec(size.layers).save(folder.name)
    translator = ctranslate2.Translator(
        folder.name, compute_type="float32", intra_threads=THREADS
    )
    rng = np.random.default_rng(0)
    ids = rng.integers(END + 1, VOCABULARY, (size.batch, size.seq))
    texts = [list(map(str, row)) for row in ids]
    steps = max(size.steps, 1)

    def run() -> None:
        found = translator.translate_batch(
            texts,
            beam_size=1,
            min_decoding_length=steps,
            max_decoding_length=steps,
        )
        assert {len(each.hypotheses[0]) for each in found} == {steps}

    return run


def _spec(layers: int) -> TransformerSpec:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, shape[-1] ** -0.5, shape).astype("float32")

    def linear(spec: Any, width: int, units: int) -> None:
        spec.weight, spec.bias = weights(units, width), weights(units)

    def norm(spec: Any) -> None:
        spec.gamma = np.ones(DIM, "float32")
        spec.beta = np.zeros(DIM, "float32")

    def attention(spec: Any, widths: Sequence[int]) -> None:
        norm(spec.layer_norm)
        for each, units in zip(spec.linear, widths, strict=True):
            linear(each, DIM, units)

    spec = TransformerSpec.from_config(
        layers, HEADS, pre_norm=False, activation=Activation.GELU
    )
    table = weights(VOCABULARY, DIM)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    for layer in (*spec.encoder.layer, *spec.decoder.layer):
        attention(layer.self_attention, (3 * DIM, DIM))
        if hasattr(layer, "attention"):
            attention(layer.attention, (DIM, 2 * DIM, DIM))
        norm(layer.ffn.layer_norm)
        linear(layer.ffn.linear_0, DIM, FEED_FORWARD)
        linear(layer.ffn.linear_1, FEED_FORWARD, DIM)
    ids = ["<unk>", "<blank>", "<s>", "</s>"]
    ids += map(str, range(len(ids), VOCABULARY))
    spec.register_source_vocabulary(ids)
    spec.register_target_vocabulary(ids)
    spec.validate()
    spec.optimize()
    return spec
