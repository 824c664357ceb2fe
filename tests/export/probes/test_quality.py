"""What a quantized file loses: SQNR, agreement and cosine."""

import numpy as np
import pytest

from keras_posenc.export.probes.quality import qualities, quality_of
from keras_posenc.export.probes.tolerance import limits_of

pytestmark = pytest.mark.tensorflow


def test_numbers_are_those_of_their_definitions():
    """In float64, as sums of 400 products."""
    rng = np.random.default_rng(0)
    wanted = rng.normal(3, 1, (50, 8))
    got = wanted + 0.1 * rng.normal(size=wanted.shape)
    halves = [(wanted[:20], got[:20]), (wanted[20:], got[20:])]
    found = quality_of(halves)
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
    found = quality_of([(wanted + 1e4, got + 1e4)])
    signal = 0.09 * np.sum((wanted + 1e4) ** 2)
    assert found.sqnr == pytest.approx(10 * np.log10(signal / noise), abs=1e-6)


def test_what_numbers_are_decides_what_is_measured():
    scores = np.array([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.0, 1.0]])
    found = quality_of([(scores, scores[[0, 2, 2, 3]])])
    assert (found.agreement, found.cosine) == (0.75, None)
    # Of one class throughout, the lead may be less than rounding.
    assert quality_of([(scores[:2], scores[:2])]).agreement is None
    labels = np.array([1, 2, 3])
    assert quality_of([(labels, labels)]).agreement == 1
    bits = np.array([[0b1010]], "uint8"), np.array([[0b1000]], "uint8")
    # A file of zeros alone would have six of eight.
    assert quality_of([bits]).agreement == (7 - 6) / (8 - 6)
    rare = np.array([0] * 17 + [1] * 3)
    assert quality_of([(rare, 0 * rare)]).agreement == 0
    assert quality_of([(np.zeros((0, 3)), np.zeros((0, 3)))]) is None
    lost = quality_of([(4 * scores, np.zeros_like(scores))])
    assert lost.exceeded({"sqnr": 6.0, "cosine": 0.7}) == ["sqnr", "cosine"]
    # Vectors that the model rounds are vectors; texts are left out.
    whole = np.array([[3, -4], [5, 0]], "int8")
    outputs = {"v": whole, "t": np.array(["a"], object)}
    found = qualities([("a", outputs, {"v": whole // 2, "t": outputs["t"]})])
    assert [*found] == ["a/v"]
    assert found["a/v"].cosine == pytest.approx(11 / 5 / 5**0.5)


@pytest.mark.parametrize("hidden", [-1e9, np.finfo("float32").min, -np.inf])
def test_masked_numbers_hide_nothing(hidden):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (20, 9))
    logits[:, [0, 4]] = hidden
    noise = np.where(logits == hidden, hidden, rng.normal(0, 50, logits.shape))
    found = quality_of([(logits, noise)])
    assert found.exceeded({"sqnr": 4.0, "cosine": 0.7}) == ["sqnr", "cosine"]
    near = np.where(logits == hidden, hidden, logits + 1e-3)
    assert quality_of([(logits, near)]).sqnr > 60
    # Large numbers of a regression hide nothing either.
    found = quality_of([(1e9 * rng.normal(size=(9, 1)), np.ones((9, 1)))])
    assert found.exceeded({"sqnr": 4.0}) == ["sqnr"]
    near[0, 0] = 0.0  # no longer hidden
    assert quality_of([(logits, near)]).exceeded({"sqnr": 4.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, {"sqnr": 3}, None), "for quantized files only, and this"),
        (("int8", None, 1e-3), "`tolerance` is of files in float32"),
        (("int8", {"dB": 3}, None), "by name, .* sqnr, .* Received: .*dB"),
        (("int8", {"kl": -1}, None), r"kl \(at least 0\) .* Received: .*kl"),
        (("int8", [3], None), "must be numbers by name"),
    ],
)
def test_limits_that_do_not_fit_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        limits_of(*arguments)


def test_limits_that_are_given_replace_the_defaults():
    assert limits_of(None, None, 1e-3) == {}
    found = limits_of("int4", {"cosine": 0.9}, None)
    assert (found["sqnr"], found["cosine"]) == (4.0, 0.9)
