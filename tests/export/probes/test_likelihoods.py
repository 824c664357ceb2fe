"""Quantized generators: compared by likelihoods, not token by token."""

import dataclasses
import json

import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.probes import generate
from keras_posenc.export.probes.likelihoods import of_targets
from keras_posenc.export.probes.reference import Memory, runner_of
from keras_posenc.export.signatures.resolve import resolve_signatures
from keras_posenc.generation.likelihoods import drawn_pairs, rescored
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
    outputs[0]["token_score"][:, 900:] = 0  # padding
    found = of_targets(*outputs, True)
    exact = np.sum(np.exp(model) * (model - file))
    more = (file - model)[tokens[:, :900]]
    error = np.std(np.expm1(more) - more) / np.sqrt(90_000)
    assert found.tokens == found.drawn == 90_000
    assert found.kl == pytest.approx(exact, abs=4 * error)
    assert error < 0.02 * exact
    mean = np.mean(model[tokens[:, :900]])
    assert found.perplexity == pytest.approx(np.exp(-mean))
    mean = np.mean(file[tokens[:, :900]])
    assert found.file_perplexity == pytest.approx(np.exp(-mean))


@pytest.fixture(scope="module")
def made():
    model = kp.TransformerDecoderModel(
        30,
        **{**SIZES, "d_model": 32, "num_layers": 2},
    )
    return kp.Generator(shaken(model, noise=0.1), max_length=4, end_ids=3)


def test_the_model_reads_what_was_generated(made):
    """As the logits of its parallel pass say, up to the end symbol."""
    source = np.array([[5, 6, 7], [8, 9, 0]], "int32")
    ids = np.array([[9, 4, 3, 0], [1, 2, 8, 6]], "int32")
    found = rescored(made.search, made._scoring, source, ids)
    is_token, scores, best = (
        np.asarray(found[name])
        for name in ("is_token", "token_score", "best_score")
    )
    assert is_token.tolist() == (ids != 0).tolist()
    for row, prompt in enumerate(([5, 6, 7], [8, 9])):
        text = [*prompt, *ids[row][ids[row] != 0]]
        logits = log_softmax(np.asarray(made.model(np.array([text])))[0])
        places = np.arange(len(prompt) - 1, len(text) - 1)
        wanted = logits[places, text[len(prompt) :]]
        np.testing.assert_allclose(
            scores[row][: len(wanted)], wanted, atol=1e-5
        )
        most = logits[places, 1:].max(axis=-1)  # 0 is never generated
        np.testing.assert_allclose(best[row][: len(most)], most, atol=1e-5)


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
    assert report.likelihoods.largest_loss < 0.01
    assert report.likelihoods.perplexity_ratio == pytest.approx(1, abs=0.01)
    assert "nats lost per token (allowed 0.1)" in str(report)
    # The perplexity is that of the texts, by Python alone.
    total, tokens = 0.0, 0
    pairs = drawn_pairs(
        made.search, [prompts], lambda call, *x: np.asarray(call(*x))
    )
    for pair, _ in pairs:
        target = pair["target"]
        tokens += int(np.sum(target != 0))
        total += float(np.sum(made.score(pair["source"], target)))
    assert report.likelihoods.tokens == tokens
    wanted = np.exp(-total / tokens)
    assert report.likelihoods.perplexity == pytest.approx(wanted, rel=1e-4)
    found = report.to_dict()["likelihoods"]
    assert json.loads(json.dumps(found)) == found
    assert not dataclasses.replace(report, max_kl=1e-9).passed
    assert not dataclasses.replace(report, max_perplexity_ratio=1e-3).passed
    # One block's weights are another's.
    kernel = made.model.decoder.blocks[1].feed_forward.output_projection.kernel
    kept = kernel.numpy()
    rng = np.random.default_rng(0)
    kernel.assign(rng.normal(0, 1, kernel.shape))
    try:
        report = kp.verify(
            made, path, samples=prompts, max_length=4, verbose=False
        )
    finally:
        kernel.assign(kept)
    assert not report.passed
    assert report.likelihoods.largest_loss > 0.1
    assert "The file is a worse language model" in str(report)


def test_limits_are_of_quantized_generators(made, tmp_path):
    for name, wrong in (("max_kl", 0.2), ("max_perplexity_ratio", 1.2)):
        with pytest.raises(ValueError, match=rf"`{name}` .* not quantized"):
            kp.export_litert(
                made, tmp_path / "m.tflite", verbose=False, **{name: wrong}
            )
    with pytest.raises(ValueError, match=r"`max_perplexity_ratio` must be"):
        kp.export_litert(
            made,
            tmp_path / "m.tflite",
            quantization="int8",
            max_perplexity_ratio=0.9,
            verbose=False,
        )


def test_many_weights_have_few_cases(made, monkeypatch):
    (signature,) = resolve_signatures(made, {"serving_default": made.from_ids})

    def shapes(longest):
        probes = generate.make_probes(signature, [], longest, lambda _: True)
        return [probe.inputs["ids"].shape for probe in probes]

    assert len(shapes(64)) == 8
    monkeypatch.setattr(generate, "MANY_WEIGHTS", 1000)
    assert shapes(64) == [(1, 1), (3, 17), (1, 64)]
    monkeypatch.setattr(generate, "_MOST_WORK", 100 * made.count_params())
    assert generate.Probes.fit([signature]).max_length == 100
    # Its outputs are those of the graph, and the same.
    inputs = {"ids": np.array([[5, 6, 7]], "int32")}
    found = runner_of(signature, Memory())(inputs)
    wanted = made.predict(inputs["ids"], verbose=0)
    np.testing.assert_array_equal(found["ids"], wanted["ids"])
