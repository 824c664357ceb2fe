"""The comparison of positions in decoders: what it learns, and that it runs."""

import keras
import numpy as np
import pytest

from tests.examples import scripts

# The kinds themselves are tested with each change.
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


@pytest.fixture(scope="module")
def example():
    return scripts.load("causal_positions")


def test_every_kind_sees_the_order_and_nothing_later(example):
    """Of a causal model without positions the last token sees no order."""
    assert set(example.KINDS) == set(example.kinds())
    draw = np.random.default_rng(0)
    ids = np.stack([draw.permutation(np.arange(1, 13)) for _ in range(8)])
    ids[:, -1] = 5
    later = np.block([[ids, ids[::-1]], [ids, ids]])
    for name in example.KINDS:
        keras.utils.set_random_seed(0)
        model = example.make_model(name)
        answers, others = np.split(np.array(model(later))[:, 11], 2)
        np.testing.assert_allclose(others, answers, atol=1e-4, err_msg=name)
        # The second block reads what the first one has seen of earlier tokens.
        assert np.ptp(answers, axis=0).max() > 1e-3, name
