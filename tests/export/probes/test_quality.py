"""What a quantized file loses: SQNR, agreement and cosine."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp
from keras_posenc.export.probes.compare import kinds_of
from keras_posenc.export.probes.quality import quality_of
from keras_posenc.export.probes.tolerance import limits_of
from keras_posenc.export.signatures.resolve import resolve_signatures

pytestmark = pytest.mark.tensorflow

WIDTH = 128


def encoder(*heads, pooled=True):
    """Ids to vectors, and through what follows."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(300, WIDTH, mask_zero=True)(ids)
    x = kp.TransformerEncoder(1, num_heads=4, intermediate_dim=256)(
        kp.PositionalEncoding()(x)
    )
    if pooled:
        x = kp.Pooling1D("mean")(x)
    for head in heads:
        x = head(x)
    return keras.Model(ids, x)


def winner(x):
    return keras.ops.argmax(x, axis=-1)


KINDS = {
    "softmax": (lambda: encoder(layers.Dense(5), layers.Softmax()), "classes"),
    "sigmoid": (lambda: encoder(layers.Dense(1, "sigmoid")), "classes"),
    "logits": (lambda: encoder(layers.Dense(5)), "vectors"),
    "unit": (lambda: encoder(layers.UnitNormalization()), "vectors"),
    "tokens": (lambda: encoder(pooled=False), "vectors"),
    "number": (lambda: encoder(layers.Dense(1)), "vectors"),
    "label": (lambda: encoder(winner), "integers"),
    "int8": (lambda: encoder(kp.Int8Quantization()), "vectors"),
    "binary": (lambda: encoder(kp.BinaryQuantization()), "bits"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kind(name):
    make, kind = KINDS[name]
    (signature,) = resolve_signatures(
        model := make(), {"serving_default": model}
    )
    rng = np.random.default_rng(0)
    outputs = [
        {
            key: keras.ops.convert_to_numpy(value)
            for key, value in signature.call(
                {"ids": rng.integers(1, 300, shape).astype("int32")}
            ).items()
        }
        for shape in ((1, 3), (4, 7))
    ]
    assert [*kinds_of(signature, outputs).values()] == [kind]


def test_numbers_are_those_of_their_definitions():
    """In float64, as sums of 400 products."""
    rng = np.random.default_rng(0)
    wanted = rng.normal(3, 1, (50, 8))
    got = wanted + 0.1 * rng.normal(size=wanted.shape)
    halves = [(wanted[:20], got[:20]), (wanted[20:], got[20:])]
    found = quality_of("vectors", halves)
    signal = np.sum((wanted - wanted.mean(axis=0)) ** 2)
    noise = np.sum((wanted - got) ** 2)
    assert found.rows == 50
    assert found.sqnr == pytest.approx(10 * np.log10(signal / noise), abs=1e-9)
    cosines = np.sum(wanted * got, axis=1) / (
        np.linalg.norm(wanted, axis=1) * np.linalg.norm(got, axis=1)
    )
    assert found.cosine == pytest.approx(cosines.min(), abs=1e-12)
    assert found.agreement is None
    # Numbers that hardly vary count as if they did by 0.3 of their size.
    found = quality_of("vectors", [(wanted + 1e4, got + 1e4)])
    signal = 0.09 * np.sum((wanted + 1e4) ** 2)
    assert found.sqnr == pytest.approx(10 * np.log10(signal / noise), abs=1e-6)


def test_classes_and_labels_agree():
    scores = np.array([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.0, 1.0]])
    found = quality_of("classes", [(scores, scores[[0, 2, 2, 3]])])
    assert (found.agreement, found.cosine) == (0.75, None)
    # Of one class throughout, the lead may be less than rounding.
    assert quality_of("classes", [(scores[:2], scores[:2])]).agreement is None
    labels = np.array([1, 2, 3])
    assert quality_of("integers", [(labels, labels)]).agreement == 1
    bits = np.array([[0b1010]], "uint8"), np.array([[0b1000]], "uint8")
    # A file of zeros alone would have six of eight.
    assert quality_of("bits", [bits]).agreement == (7 - 6) / (8 - 6)
    rare = np.array([0] * 17 + [1] * 3)
    assert quality_of("integers", [(rare, 0 * rare)]).agreement == 0
    assert quality_of("vectors", [(np.zeros((0, 3)), np.zeros((0, 3)))]) is None
    lost = quality_of("vectors", [(scores, np.zeros_like(scores))])
    assert lost.exceeded({"sqnr": 6.0, "cosine": 0.7}) == ["sqnr", "cosine"]


@pytest.mark.parametrize("hidden", [-1e9, np.finfo("float32").min, -np.inf])
def test_masked_numbers_hide_nothing(hidden):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (20, 9))
    logits[:, [0, 4]] = hidden
    noise = np.where(logits == hidden, hidden, rng.normal(0, 50, logits.shape))
    found = quality_of("vectors", [(logits, noise)])
    assert found.exceeded({"sqnr": 4.0, "cosine": 0.7}) == ["sqnr", "cosine"]
    near = np.where(logits == hidden, hidden, logits + 1e-3)
    assert quality_of("vectors", [(logits, near)]).sqnr > 60
    # Large numbers of a regression hide nothing either.
    found = quality_of(
        "vectors", [(1e9 * rng.normal(size=(9, 1)), np.ones((9, 1)))]
    )
    assert found.exceeded({"sqnr": 4.0}) == ["sqnr"]
    near[0, 0] = 0.0  # no longer hidden
    assert quality_of("vectors", [(logits, near)]).exceeded({"sqnr": 4.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, {"sqnr": 3}, None), "this file is not quantized"),
        (("int8", None, 1e-3), "`tolerance` .* is of files in float32"),
        (("int8", {"dB": 3}, None), "names are sqnr, .* Received: .*dB"),
        (("int8", {"kl": -1}, None), r"kl \(at least 0\) .* Received: .*kl"),
        (("int8", [3], None), "must be a dict"),
    ],
)
def test_limits_that_do_not_fit_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        limits_of(*arguments)


def test_limits_that_are_given_replace_the_defaults():
    assert limits_of(None, None, 1e-3) == {}
    found = limits_of("int4", {"cosine": 0.9}, None)
    assert (found["sqnr"], found["cosine"]) == (4.0, 0.9)
