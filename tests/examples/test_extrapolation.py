"""The study of longer texts: its data, and that all of it runs."""

import json

import keras
import numpy as np
import pytest

from keras_posenc import analysis
from tests.examples import scripts

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def example():
    return scripts.load("extrapolation")


def test_every_scheme_is_asked(example):
    assert set(example.KINDS) == {
        *analysis.SCHEMES,
        "none",
        "randomized",
    }


def test_every_scheme_can_see_the_order(example):
    """No norm or pooling takes it out again, as it does an added index."""
    ids = np.arange(1, 13, dtype="int32")
    draw = np.random.default_rng(0)
    orders = np.stack([ids, *(draw.permutation(ids) for _ in range(16))])
    for name in example.KINDS:
        keras.utils.set_random_seed(0)
        answers = np.array(example.make_model(name, 20)(orders))[:, 0]
        # One order alone may be answered like another, by chance.
        difference = np.abs(answers - answers[0]).max()
        if name == "none":
            assert difference < 1e-6
        else:
            assert difference > 1e-5, name


@pytest.mark.slow
def test_quick_run(tmp_path):
    scripts.run("extrapolation", "--quick", folder=tmp_path)
    out = tmp_path / "extrapolation"
    found = json.loads((out / "accuracies.json").read_text())
    assert list(found) == ["none", "sinusoidal", "alibi"]
    # Without positions both orders give one answer, whatever was learned.
    assert set(found["none"][0].values()) == {0.5}
    for (run,) in found.values():
        assert len(run) == 6
    table = (out / "accuracies.md").read_text(encoding="utf-8")
    assert len(table.splitlines()) == 2 + 3
    assert (out / "accuracies.png").read_bytes().startswith(b"\x89PNG")
