"""What an output is judged as, and whether quantized vectors keep direction."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.check import compare
from keras_posenc.export.probes.compare import kinds_of, losses
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import (
    Memory,
    compute_reference,
    runner_of,
)
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.resolve import resolve_signatures

pytestmark = pytest.mark.tensorflow

WIDTH = 128


def encoder(*heads, pooled=True, blocks=1):
    """Ids to vectors, and through what follows."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(300, WIDTH, mask_zero=True)(ids)
    x = kp.TransformerEncoder(blocks, num_heads=4, intermediate_dim=256)(
        kp.PositionalEncoding()(x)
    )
    if pooled:
        x = kp.MaskedAveragePooling1D()(x)
    for head in heads:
        x = head(x)
    return keras.Model(ids, x)


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(300, 8)

    def call(self, ids):
        return {"vectors": self.embedding(ids)}


def subclass():
    model = Subclass()
    model(np.ones((1, 2), "int32"))
    return model


def nested():
    head = keras.Sequential(
        [layers.Dense(8, activation="relu"), layers.Dense(5)]
    )
    return encoder(head, layers.Activation("linear", dtype="float32"))


def normalized(x):
    return keras.ops.normalize(x, axis=-1)


SHAPES = {"ids": keras.InputSpec(shape=(None, None), dtype="int32")}
KINDS = {
    "softmax": (lambda: encoder(layers.Dense(5, "softmax")), "scores"),
    "softmax_apart": (
        lambda: encoder(layers.Dense(5), layers.Softmax()),
        "scores",
    ),
    "multi_label": (lambda: encoder(layers.Dense(5, "sigmoid")), "scores"),
    "logits": (lambda: encoder(layers.Dense(5)), "logits"),
    "nested_logits": (nested, "logits"),
    "language_model": (
        lambda: encoder(layers.Dense(300), pooled=False),
        "logits",
    ),
    "sentences": (encoder, "vectors"),
    "normalized": (lambda: encoder(layers.UnitNormalization()), "vectors"),
    "projected": (lambda: encoder(layers.Dense(32), normalized), "vectors"),
    "tanh": (lambda: encoder(layers.Dense(32, "tanh")), "vectors"),
    "relu": (lambda: encoder(layers.Dense(32, "relu")), "vectors"),
    "tokens": (lambda: encoder(pooled=False), "vectors"),
    "regression": (lambda: encoder(layers.Dense(1)), None),
    "subclass": (subclass, "vectors"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kind(name):
    make, kind = KINDS[name]
    model = make()
    given = (model, SHAPES) if name == "subclass" else model
    (signature,) = resolve_signatures(model, {"serving_default": given})
    rng = np.random.default_rng(0)
    answers = [
        {
            key: keras.ops.convert_to_numpy(value)
            for key, value in signature.call(
                {"ids": rng.integers(1, 300, shape).astype("int32")}
            ).items()
        }
        for shape in ((1, 3), (4, 7))
    ]
    found = [each.name for each in kinds_of(signature, answers).values()]
    assert found == [kind] * (kind is not None)


@pytest.mark.parametrize("kind", ["logits", "vectors"])
def test_losses(kind):
    """Against their definitions; both are half of a small movement squared."""
    rng = np.random.default_rng(0)
    wanted = rng.normal(size=(50, 8))
    got = wanted + 1e-3 * rng.normal(size=wanted.shape)
    if kind == "vectors":
        sizes = [np.sqrt((x**2).sum(-1)) for x in (wanted, got)]
        expected = 1 - (wanted * got).sum(-1) / (sizes[0] * sizes[1])
    else:
        p, q = (
            np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (wanted, got)
        )
        expected = (p * np.log(p / q)).sum(-1)
    # Sums of 8 products of size 1, in float64.
    np.testing.assert_allclose(
        losses(kind, wanted, got), expected, rtol=0, atol=64 * 2.0**-52
    )
    assert losses(kind, wanted, wanted).max() <= 64 * 2.0**-52
    halved = losses(kind, wanted, wanted + (got - wanted) / 2)
    # The next term is 1e-3 of the first for each unit of what is relative.
    np.testing.assert_allclose(4 * halved, losses(kind, wanted, got), rtol=0.05)


def test_vectors_that_point_elsewhere_are_refused(tmp_path):
    ids = np.random.default_rng(0).integers(1, 300, (12, 9)).astype("int32")
    model = encoder()
    exported = kp.export_litert(
        model,
        tmp_path / "vectors.tflite",
        quantization="int8",
        samples=ids,
        max_length=9,
        verbose=False,
    )
    text = str(exported.report)
    assert "score" not in text
    assert ", over 12 vectors" in text
    assert " on the 12 samples, " in text
    (shift,) = [
        weight for weight in model.weights if weight.path.endswith("beta")
    ][-1:]
    signs = np.random.default_rng(1).choice([-1, 1], shift.shape)
    shift.assign(shift + 0.12 * signs)
    report = kp.verify(
        exported.path, model, samples=ids, max_length=9, verbose=False
    )
    # Each number is within what rounding may do to one.
    assert report.largest_difference <= report.tolerance
    with pytest.raises(
        kp.ExportVerificationError,
        match=r"vectors have other directions .+ vector 0\.9\d+ "
        r"\(required 0\.99\d+\).+`tolerance`",
    ):
        report.require_success()
    probes = Probes.fit(resolve_signatures(model), max_length=2, tolerance=0.3)
    assert not compute_reference(probes, quantization="int8").allowed_losses


def test_rounded_vectors_that_point_elsewhere_are_refused():
    """Each integer is within what rounding may do to one; together they turn.

    Without an export: another model's outputs are taken for the file's.
    """
    model = encoder(kp.Int8Quantization(name="vectors"))
    signatures = resolve_signatures(model, {"serving_default": model})
    ids = np.random.default_rng(0).integers(1, 300, (12, 9)).astype("int32")
    probes = Probes.fit(signatures, samples=ids, max_length=9)
    reference = compute_reference(probes, quantization="int8")
    kinds = reference.kinds["serving_default"]
    assert str(kinds["vectors"]) == "vectors (rounded to int8)"

    def report():
        """Of a file with the model's present weights."""
        run = runner_of(signatures[0], Memory())
        cases = [
            {"outputs": run(probe.inputs), "milliseconds": 1.0}
            for probe in reference.probes
        ]
        return VerificationReport(
            path=Path("vectors.tflite"),
            kind="litert",
            size_bytes=1,
            load_seconds=0.0,
            foreign_operators=[],
            unverified=[],
            tolerance=reference.tolerance,
            cases=[
                compare(probe, case, reference)
                for probe, case in zip(reference.probes, cases, strict=True)
            ],
            quantization="int8",
            allowed_losses=reference.allowed_losses,
        )

    rounded = [x for x in model.weights if x.path.endswith("kernel")][-1]
    kept = rounded.numpy()
    step = np.max(np.abs(kept), axis=0) / 127
    rounded.assign(np.round(kept / step) * step)
    assert report().passed
    rounded.assign(kept)
    (shift,) = [x for x in model.weights if x.path.endswith("beta")][-1:]
    signs = np.random.default_rng(1).choice([-1, 1], shift.shape)
    shift.assign(shift + 0.12 * signs)
    found = report()
    assert found.largest_difference <= found.tolerance
    assert not found.passed
    assert "vectors have other directions" in str(found)
