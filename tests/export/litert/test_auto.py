"""LiteRT files of the fewest bits that keep a share of quality."""

import json
import re
import sys

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc import progress
from keras_posenc.export.formats import litert_auto

pytestmark = pytest.mark.tensorflow

DIM, KEEP = 64, 0.95
SAMPLES = np.random.default_rng(0).normal(size=(300, DIM)).astype("float32")
SAMPLES[:, 0] = 0


@pytest.fixture(scope="module")
def model():
    """One kernel has outliers for a number that is always 0.

    They change no output, and leave no bits for its other weights.
    """
    keras.utils.set_random_seed(0)
    inputs = keras.Input((DIM,), name="numbers")
    fragile = layers.Dense(DIM, "tanh", name="fragile")
    x = fragile(inputs)
    scores = layers.Dense(32, name="scores")(x)
    vector = layers.UnitNormalization(name="unit")(
        layers.Dense(DIM, name="vector")(x)
    )
    model = keras.Model(inputs, {"scores": scores, "vector": vector})
    kernel = fragile.kernel.numpy()
    kernel[0] = 500
    fragile.kernel.assign(kernel)
    return model


def export(model, path, **arguments):
    given = {"quantization": "auto", "samples": SAMPLES, **arguments}
    return kp.export_litert(model, path, verbose=False, **given)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("auto") / "m.tflite"
    return export(model, path, keep=KEEP)


def test_sensitive_weight_has_more_bits(exported):
    found = exported.report.auto
    modes = {each.name.split("/")[0]: each.mode for each in found.weights}
    assert modes.pop("fragile") == "float16"
    assert len(modes) == 2
    assert {*modes.values()} <= {"int4", "int8", "int8-weights"}
    lost = {each.name.split("/")[0]: each.losses for each in found.weights}
    worst = lost.pop("fragile")["int8"]
    assert all(worst > 10 * each["int8"] for each in lost.values())
    assert exported.report.passed
    (line,) = (x for x in str(exported).splitlines() if x.startswith("auto: "))
    assert "1 weight in float16" in line
    assert "fragile/kernel: 4,096, float16 (int4 " in exported.report.details()


def test_quality_is_that_of_samples_held_out(exported, model, run_litert):
    found = exported.report.auto
    assert found.quality >= KEEP
    assert (found.held_out, found.samples) == (150, 300)
    held_out = np.random.default_rng(0).permutation(300)[:150]
    run, wanted = run_litert(exported.path), model.predict(SAMPLES, verbose=0)
    rows = [run(numbers=row[None]) for row in SAMPLES]
    got = {name: np.concatenate([x[name] for x in rows]) for name in wanted}

    def nearest(vectors):
        scores = vectors @ vectors.T
        np.fill_diagonal(scores, -2)
        return np.argsort(-scores, axis=1)[held_out, :10]

    pairs = zip(nearest(wanted["vector"]), nearest(got["vector"]), strict=True)
    recall = np.mean([len({*one} & {*other}) / 10 for one, other in pairs])
    choices = [np.argmax(x["scores"], -1)[held_out] for x in (wanted, got)]
    agreement = np.mean(choices[0] == choices[1])
    assert found.quality == pytest.approx(min(recall, agreement), abs=1e-9)


def test_recipe_makes_the_same_file(exported, model, tmp_path):
    report = json.loads(json.dumps(exported.report.to_dict()))
    again = export(
        model,
        tmp_path / "m.tflite",
        quantization=report["auto"]["recipe"],
        samples=SAMPLES[:64],
    )
    assert again.path.read_bytes() == exported.path.read_bytes()
    assert report["auto"]["float32_bytes"] > again.report.size_bytes


def test_without_enough_quality_the_file_is_in_float32(tmp_path):
    """Beyond the range of float16, nothing is left."""
    inputs = keras.Input((DIM,), name="numbers")
    dense = layers.Dense(32, name="scores")
    model = keras.Model(inputs, dense(inputs))
    kernel = np.random.default_rng(0).normal(size=(DIM, 32))
    kernel[0] = 1e6
    dense.kernel.assign(kernel)
    path = tmp_path / "m.tflite"
    report = export(model, path, keep=KEEP).report
    assert report.auto.recipe == []
    assert report.quantization is None
    assert kp.inspect_export(path).quantization is None
    assert "the file is in float32" in str(report)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": 1.5}, "above 0 and at most 1.*keep=1.5"),
        ({"keep": 0}, "above 0 and at most 1.*keep=0"),
        ({"keep": "0.9"}, "above 0 and at most 1"),
        ({"quantization": "int8", "keep": 0.9}, "quantization='int8'"),
        ({"samples": None}, "needs `samples`.*598"),
        ({"keep": 0.95, "samples": None}, r"texts\[:118\]"),
        ({}, "keep=0.99 needs 598 samples.*300 .* at most 0.98$"),
        (
            {"samples": SAMPLES[[0] * 300], "keep": KEEP},
            "Received: 1 different sample",
        ),
        ({"samples": SAMPLES[:, :5]}, "has shape"),
        (
            {"samples": np.where(SAMPLES, SAMPLES, np.nan), "keep": KEEP},
            "NaN or infinity in 'scores'",
        ),
        ({"verify": False}, "with verify=False"),
    ],
)
def test_refuses(model, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "m.tflite", **arguments)
    assert not [*tmp_path.iterdir()]


def test_refuses_models_without_a_measure(tmp_path):
    inputs = keras.Input((DIM,), name="numbers")
    number = keras.Model(inputs, layers.Dense(1, name="price")(inputs))
    path, two = tmp_path / "m.tflite", {"a": number, "b": number}
    with pytest.raises(ValueError, match="are neither: price"):
        export(number, path, keep=KEEP)
    of_two = {"a": (number, {"numbers": (2, DIM)})}
    with pytest.raises(ValueError, match="batches of one size"):
        export(number, path, signatures=of_two, samples=SAMPLES[:2])
    with pytest.raises(ValueError, match=r"one signature\. Received: a, b"):
        export(number, path, signatures=two)
    decoder = kp.TransformerDecoderModel(
        9, d_model=4, num_layers=1, num_heads=2, intermediate_dim=4
    )
    generator = kp.Generator(decoder, max_length=4)
    with pytest.raises(ValueError, match="generates sequences"):
        export(generator, path, samples=np.ones((1, 3), "int32"))


def test_needs_the_extra(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_quantizer", None)
    with pytest.raises(ImportError, match=r"keras-posenc\[quantize\]"):
        export(model, tmp_path / "m.tflite")


def test_samples_needed():
    """So many that a file that keeps less shows no loss once in 20 draws."""
    held_out = litert_auto.needed_samples(0.99) / 2
    assert 0.99**held_out <= 0.05 < 0.99 ** (held_out - 1)
    assert litert_auto.needed_samples(1) == litert_auto.needed_samples(0.99)
    assert litert_auto.needed_samples(0.5, has_vectors=True) == 100


def test_samples_that_were_run_are_counted(model, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(progress, "_SECONDS", 0)
    kp.export_litert(
        model,
        tmp_path / "m.tflite",
        quantization="auto",
        samples=SAMPLES,
        keep=KEEP,
    )
    shown = capfd.readouterr().err
    assert re.search(r"Running it: \d+ of 300 samples", shown)
    assert re.search(r"smallest first: \d+ of 300 samples", shown)
