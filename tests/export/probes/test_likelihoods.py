"""Quantized generators: compared by likelihoods, not token by token."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.check import compare, unmeasured
from keras_posenc.export.probes import generate
from keras_posenc.export.probes.likelihoods import (
    Likelihoods,
    of_generated,
    of_targets,
)
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.resolve import resolve_signatures
from keras_posenc.generation.decoding import TransformersDecoding, takes
from keras_posenc.generation.likelihoods import drawn_pairs
from tests.generation.toy import SIZES, shaken

pytestmark = pytest.mark.tensorflow


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def test_the_estimate_is_the_divergence_in_the_mean():
    """Against its definition, sum p log p/q; within four standard errors."""
    rng = np.random.default_rng(0)
    model = log_softmax(rng.normal(0, 2, 50))
    file = log_softmax(model + rng.normal(0, 0.4, 50))
    tokens = rng.choice(50, (100, 1000), p=np.exp(model))
    outputs = [{"token_score": scores[tokens]} for scores in (model, file)]
    for each in outputs:
        each["token_score"][:, 900:] = 0  # padding
    found = of_targets(*outputs, True)
    exact = np.sum(np.exp(model) * (model - file))
    more = (file - model)[tokens[:, :900]]
    error = np.std(np.expm1(more) - more) / np.sqrt(90_000)
    assert found.tokens == found.drawn == 90_000
    assert found.kl == pytest.approx(exact, abs=4 * error)
    assert error < 0.02 * exact
    mean = np.mean(model[tokens[:, :900]])
    assert found.model / found.tokens == pytest.approx(mean)
    mean = np.mean(file[tokens[:, :900]])
    assert found.file / found.tokens == pytest.approx(mean)


@pytest.fixture(scope="module")
def made():
    model = kp.TransformerDecoderModel(30, **{**SIZES, "d_model": 32})
    return kp.Generator(shaken(model, noise=0.1), max_length=4, end_ids=3)


def test_the_model_reads_what_was_generated(made):
    """As the logits of its parallel pass say, up to the end symbol."""
    source = np.array([[5, 6, 7], [8, 9, 0]], "int32")
    ids = np.array([[9, 4, 3, 0], [1, 2, 8, 6]], "int32")
    found = {
        name: np.asarray(value)
        for name, value in made.rescore({"ids": source}, {"ids": ids}).items()
    }
    scores = found["token_score"]
    assert found["is_token"].tolist() == (ids != 0).tolist()
    for row, prompt in enumerate(([5, 6, 7], [8, 9])):
        text = [*prompt, *ids[row][ids[row] != 0]]
        logits = log_softmax(np.asarray(made.model(np.array([text])))[0])
        places = np.arange(len(prompt) - 1, len(text) - 1)
        wanted = logits[places, text[len(prompt) :]]
        np.testing.assert_allclose(
            scores[row][: len(wanted)], wanted, atol=1e-5
        )
    given = {"token_score": scores - np.float32(np.log(2))}
    chosen = of_generated({}, given, lambda *_: found)
    assert chosen.drawn == 7
    assert chosen.kl == pytest.approx(1 - np.log(2), rel=1e-5)


@pytest.mark.slow
def test_a_quantized_generator_passes_and_a_wrong_one_fails(made, tmp_path):
    prompts = np.array([[5, 6, 7, 8], [9, 10, 11, 12]], "int32")
    path = tmp_path / "made.tflite"
    report = kp.export_litert(
        made,
        path,
        quantization="int8",
        samples=prompts,
        max_length=4,
        verbose=False,
    ).report
    assert report.by_likelihood == ["score", "serving_default"]
    for found in report.likelihoods_of.values():
        assert found.kl < 0.01
    ratio = report.likelihoods_of["score"].perplexity_ratio
    assert ratio == pytest.approx(1, abs=0.01)
    assert " nats per token (at most 0.1)" in str(report)
    # The perplexity is that of the texts, by Python alone.
    total, tokens = 0.0, 0
    pairs = drawn_pairs(
        made.search, [prompts], lambda call, *x: np.asarray(call(*x))
    )
    for pair, _ in pairs:
        target = pair["target"]
        tokens += int(np.sum(target != 0))
        total += float(np.sum(made.score(pair["source"], target)))
    found = report.likelihoods_of["score"]
    assert found.tokens == tokens
    assert found.model == pytest.approx(total, rel=1e-4)
    for name in ("kl", "perplexity"):
        limits = {**report.limits, name: 1e-9}
        assert not dataclasses.replace(report, limits=limits).passed
    # One block's weights are another's.
    kernel = made.model.decoder.blocks[0].feed_forward.output_projection.kernel
    kept = kernel.numpy()
    rng = np.random.default_rng(0)
    kernel.assign(rng.normal(0, 1, kernel.shape))
    try:
        report = kp.verify_export(
            path, made, samples=prompts, max_length=4, verbose=False
        )
    finally:
        kernel.assign(kept)
    assert not report.passed
    assert report.likelihoods_of["score"].kl > 0.1
    assert "file is too far from the model: " in str(report)
    assert "score: KL" in str(report)


def unknown(outputs):
    outputs["ids"][..., 0] = 99


def overrated(outputs):
    outputs["token_score"] += 3 * (outputs["ids"] != 0)


def of_nan(outputs):
    outputs["token_score"][..., 0] = np.nan


@takes(TransformersDecoding)
class ByRules(kp.Generator):
    def __init__(self, model, **options):
        rules = {"no_repeat_ngram_size": 2, "forced_end_id": 3}
        super().__init__(model, **rules, **options)


def reference_of(generator, name):
    models = {
        "serving_default": generator.offered_signatures()["from_ids"],
        "score": generator.scorer_from_ids,
    }
    signatures = resolve_signatures(generator, {name: models[name]})
    return compute_reference(
        generate.Probes.fit(signatures, max_length=2), quantization="int8"
    )


def altered(reference, change):
    """The report of a file with other outputs, without any export."""
    cases = []
    for probe in reference.probes:
        outputs = {key: np.array(x) for key, x in probe.outputs.items()}
        change(outputs)
        response = {"outputs": outputs, "milliseconds": 1.0}
        cases.append(compare(probe, response, reference))
    return VerificationReport(
        path=Path("made.tflite"),
        kind="litert",
        size_bytes=1,
        foreign_operators=[],
        unverified=sorted(unmeasured(reference, cases)),
        tolerance=reference.tolerance,
        cases=cases,
        quantization="int8",
        limits=dict(reference.limits),
        by_likelihood=sorted(reference.by_likelihood),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beams": 2, "n_best": 2, "length_penalty": 0.6},
        {"top_k": 3, "seed": 1},
        {"make": ByRules, "prefix_ids": [5], "beams": 2},
        {"name": "score"},
    ],
)
def test_altered_outputs_fail(made, options):
    options = dict(options)
    name = options.pop("name", "serving_default")
    make = options.pop("make", kp.Generator)
    generator = make(made.model, max_length=4, end_ids=3, **options)
    reference = reference_of(generator, name)
    report = altered(reference, lambda outputs: None)
    assert report.passed, report.details()
    assert not report.unverified
    for change in (unknown, overrated, of_nan)[2 * (name == "score") :]:
        assert not altered(reference, change).passed, change.__name__


def test_nan_and_one_bad_signature_pass_no_limit():
    limits = {"kl": 0.1, "perplexity": 1.1}
    for wrong in (
        Likelihoods(tokens=5, drawn=5, divergence=np.nan),
        Likelihoods(tokens=5, model=-np.inf, file=-np.inf),
        Likelihoods(tokens=10, model=-1.0, file=-3.0),
        Likelihoods(tokens=10, file=np.nan),
    ):
        assert wrong.exceeded(limits)
    assert not Likelihoods(tokens=10, file=-0.5).exceeded(limits)
    # Tokens of probability 1 are no padding.
    scores = np.array([[-50, -50, -50, 0]], "float32")
    outputs = {"token_score": 0 * scores}, {"token_score": scores}
    found = of_targets(*outputs, True)
    assert found.tokens == 3
    assert found.exceeded(limits) == ["kl", "perplexity"]


def test_noise_is_within_its_limits_and_at_them(made):
    """Noise is in [0, 1): more is no input, and less would show less."""
    drawn = kp.Generator(made.model, max_length=4, temperature=0.9)
    models = drawn.offered_signatures()
    (signature,) = resolve_signatures(drawn, {"a": models["from_ids"]})
    probes = generate.make_probes(signature, [], 2, lambda _: True)
    noise = np.concatenate([probe.inputs["noise"] for probe in probes])
    assert noise.shape[1] == 4
    assert noise.min() == 0
    assert noise.max() == 1 - 2.0**-24  # the largest float32 below 1
    for edge in (noise.min(), noise.max()):
        assert np.any(np.all(noise == edge, axis=1))
        assert np.any(noise[:, 0] == edge)
    assert np.any((noise > 0.1) & (noise < 0.9))
