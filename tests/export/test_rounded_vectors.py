"""Exports of vectors as integers: exact, except where two are as near."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.check import compare
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.signatures.resolve import resolve_signatures
from tests.export.files import EXPORTS

pytestmark = pytest.mark.tensorflow
# To three numbers: one between two integers or next to zero, and others.
NEAR = {
    kp.Int8Quantization: [[1, 0.5 / 127, 0.03], [0, 0, 0]],
    kp.BinaryQuantization: [[1, 1, 1], [0, -1, 0]],
}


def model_of(layer, table, pooling=None):
    """From ids to the mean of their vectors, rounded."""
    embedding = keras.layers.Embedding(
        *table.shape, mask_zero=True, name="table"
    )
    embedding.build()
    embedding.set_weights([table])
    ids = keras.Input((None,), dtype="int32", name="ids")
    pooling = pooling or kp.Pooling1D("mean")
    return keras.Sequential([ids, embedding, pooling, layer])


@pytest.mark.parametrize("layer", NEAR)
def test_near_ties(layer):
    """What another runtime gives is right where the model is as near to it."""
    x = keras.Input((1,), name="x")
    both, last = (layers.Dense(n, use_bias=False) for n in (2, 3))
    model = keras.Model(x, layer(name="rounded")(last(both(x))))
    both.set_weights([np.ones((1, 2))])
    last.set_weights([np.array(NEAR[layer])])
    signatures = resolve_signatures(model)
    reference = compute_reference(Probes.fit(signatures))
    probe = reference.usual[-1]
    wanted = probe.outputs["rounded"]
    if layer is kp.Int8Quantization:
        tie, wrong = wanted.copy(), wanted.copy()
        tie[:, 1] = np.where(wanted[:, 1], 0, np.sign(wanted[:, 0]))
        wrong[:, 2] += 1
    else:
        tie, wrong = wanted ^ 0b01000000, wanted ^ 0b10000000
    for got, is_right in ((wanted, True), (tie, True), (wrong, False)):
        response = {"outputs": {"rounded": got}}
        assert compare(probe, response, reference).is_right == is_right


@pytest.mark.parametrize("layer", NEAR)
@pytest.mark.parametrize(
    "kind", ["litert", pytest.param("onnx", marks=pytest.mark.slow)]
)
def test_exports(layer, kind, tmp_path):
    export, name = EXPORTS[kind]
    table = np.random.default_rng(0).normal(size=(12, 24)).astype("float32")
    pooling = kp.Pooling1D(["last", "mean_sqrt_length", "weighted_mean"])
    model = model_of(layer(name="embedding"), table, pooling)
    artifact = export(model, tmp_path / name, verbose=False)
    assert artifact.report.passed
    other = model_of(layer(name="embedding"), -table, pooling)
    report = kp.verify_export(artifact.path, other, verbose=False)
    assert report.largest_difference == np.inf
