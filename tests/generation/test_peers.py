"""The samplers of keras-hub serve through the same `next`."""

import numpy as np
import pytest
from keras import ops

from tests.generation.searches import beam_search, greedy_search
from tests.generation.toy import END, Toy

samplers = pytest.importorskip("keras_hub").samplers
pytestmark = pytest.mark.tensorflow


@pytest.fixture
def toy():
    toy = Toy()
    toy.logits[..., 0] = -50.0  # which keras-hub chooses like any other
    return toy


def until_end(rows):
    """Rows of ids, each without what stands behind its first end symbol."""
    rows = ops.convert_to_numpy(rows)
    ends = np.cumsum(rows == END, axis=1) - (rows == END)
    return np.where(ends, 0, rows)


def test_their_greedy_sampler_finds_what_ours_does(toy):
    prompt, cache = ops.array(toy.prompt([1, 2, 3])), toy.cache([1, 2, 3])
    ours = greedy_search(toy.next, prompt, cache=cache, end_ids=[END])
    theirs = samplers.GreedySampler()(
        toy.next, prompt, cache=cache, index=1, stop_token_ids=[END]
    )
    np.testing.assert_array_equal(ours.ids, until_end(theirs))


def test_their_beam_sampler_finds_what_ours_does_where_nothing_ends(toy):
    """It neither freezes beams that have ended nor has a length penalty."""
    prompt = ops.array(toy.prompt([1, 2, 3]))
    last = ops.zeros((3,), "int32")

    def next(prompt, cache, index):  # theirs takes no scalars in a cache
        logits, hidden, both = toy.next(
            prompt, {"before": cache, "slot": 0}, index
        )
        return logits, hidden, both["before"]

    ours = beam_search(toy.next, prompt, beams=4, cache=toy.cache([1, 2, 3]))
    theirs = samplers.BeamSampler(num_beams=4)(
        next, prompt, cache=last, index=1
    )
    np.testing.assert_array_equal(ours.ids[:, 0], theirs)
