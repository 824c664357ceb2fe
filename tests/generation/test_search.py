"""Searches against those of `reference.py`, and against enumeration."""

import numpy as np
import pytest
from keras import ops

from keras_posenc.generation.generated import IMPOSSIBLE
from keras_posenc.generation.sampling import Sampling
from tests import reference
from tests.generation.searches import beam_search, greedy_search, sample
from tests.generation.toy import (
    END,
    LENGTH,
    VOCABULARY,
    Toy,
    compiled,
    eager,
    in_graph,
)


@pytest.fixture
def toy():
    return Toy()


STARTS = [1, 2, 3]
# A sum of 4 scores in float32, each of a log-softmax of logits below 8.
# Of float32: the score of what is impossible.
LOWEST = np.finfo("float32").min

BOUND = 4 * 8 * 2.0**-23
SETTINGS = [((END,), 0), ((END, 2), 0), ((END,), 3), ((), 0)]


def numpy(found):
    return [ops.convert_to_numpy(x) for x in found]


def generated(row, start=1):
    """What follows the prompt, without padding."""
    return tuple(int(token) for token in row[start:] if token)


@pytest.mark.parametrize(
    ("run", "ends", "least"),
    [
        (eager, *SETTINGS[1]),
        (eager, *SETTINGS[2]),
        (in_graph, *SETTINGS[1]),
        (compiled, *SETTINGS[2]),
    ],
)
def test_greedy_is_the_likeliest_token_each_time(toy, run, ends, least):
    def search(prompt):
        return greedy_search(
            toy.next,
            prompt,
            cache=toy.cache(prompt),
            end_ids=ends,
            min_length=least,
        )

    ids, score, each = numpy(run(search)(ops.array(toy.prompt(STARTS))))
    for row, start in enumerate(STARTS):
        expected, scores = reference.greedy_search(
            toy.log_probabilities, [start], LENGTH, ends, least
        )
        assert generated(ids[row]) == expected
        padded = np.zeros(LENGTH + 1)
        padded[1 : 1 + len(scores)] = scores
        np.testing.assert_allclose(each[row], padded, atol=BOUND, rtol=0)
        assert abs(score[row] - sum(scores)) <= BOUND


@pytest.mark.parametrize(
    ("run", "beams", "alpha", "ends", "least"),
    [
        (eager, 1, 0.0, *SETTINGS[0]),
        (eager, 4, 2.0, *SETTINGS[0]),
        (in_graph, 20, 0.0, *SETTINGS[3]),
        (eager, 4, 0.6, *SETTINGS[2]),
        (compiled, 20, 0.6, *SETTINGS[1]),
    ],
)
def test_beams_are_those_of_plain_lists(toy, run, beams, alpha, ends, least):
    """All of them, in order, though the search ends as soon as it may."""

    def search(prompt):
        return beam_search(
            toy.next,
            prompt,
            beams=beams,
            n_best=beams,
            length_penalty=alpha,
            cache=toy.cache(prompt),
            end_ids=ends,
            min_length=least,
        )

    ids, score, each = numpy(run(search)(ops.array(toy.prompt(STARTS))))
    assert ids.shape == each.shape == (3, beams, LENGTH + 1)
    for row, start in enumerate(STARTS):
        expected = reference.beam_search(
            toy.log_probabilities, [start], LENGTH, beams, ends, alpha, least
        )
        for beam, (rank, tokens) in enumerate(expected):
            assert generated(ids[row, beam]) == tokens
            assert abs(score[row, beam] - rank) <= BOUND
            total = rank * ((5 + len(tokens)) / 6) ** alpha
            assert abs(each[row, beam].sum() - total) <= BOUND


@pytest.mark.parametrize(
    ("run", "scale"), [(eager, 1e5), (eager, 1e30), (compiled, 1e30)]
)
def test_scores_are_as_low_as_they_are(run, scale):
    """... in the order of plain lists, and what is forbidden is no token."""
    toy = Toy(scale=scale)
    toy.logits[..., 0] = 0  # padding, by far the likeliest where all are below
    toy.logits[..., 1:] -= 10 * np.float32(scale)
    options = {"end_ids": [END], "min_length": 2}

    def search(prompt):
        cache = toy.cache(prompt)
        kept = beam_search(
            toy.next, prompt, beams=4, n_best=4, cache=cache, **options
        )
        return kept, greedy_search(toy.next, prompt, cache=cache, **options)

    kept, likeliest = run(search)(ops.array(toy.prompt(STARTS)))
    ids, score, _ = numpy(kept)
    likeliest, total, _ = numpy(likeliest)
    for row, start in enumerate(STARTS):
        expected = reference.beam_search(
            toy.log_probabilities, [start], LENGTH, 4, [END], 0.0, 2
        )
        for beam, (rank, tokens) in enumerate(expected):
            assert generated(ids[row, beam]) == tokens
            assert score[row, beam] == pytest.approx(rank, rel=BOUND)
        tokens, scores = reference.greedy_search(
            toy.log_probabilities, [start], LENGTH, [END], 2
        )
        assert generated(likeliest[row]) == tokens
        assert total[row] == pytest.approx(sum(scores), rel=BOUND)


@pytest.mark.parametrize(
    "options",
    [{"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.2, "temperature": 0.5}],
)
def test_logits_that_are_moved_draw_the_same(options):
    """... however far down: a softmax knows differences alone."""
    toy = Toy()
    # Multiples of a step that float32 holds there.
    toy.logits = np.round(toy.logits * 64) / 64
    noise = np.random.default_rng(0).random((200, LENGTH), "float32")
    found = []
    for far in (0, 2**17):
        toy.logits -= np.float32(far)
        prompt = toy.prompt([2] * 200)
        cache = toy.cache(prompt)
        drawn = sample(toy.next, prompt, noise=noise, cache=cache, **options)
        found.append(numpy(drawn))
    assert np.all(found[0][0][:, 1:] > 0)
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, atol=BOUND)


@pytest.mark.parametrize("run", [eager, compiled])
def test_sequences_that_do_not_exist_are_padding(toy, run):
    """... whose score is that of what is impossible."""

    def search(prompt):
        found = beam_search(
            toy.next,
            prompt,
            beams=5,
            n_best=5,
            cache=toy.cache(prompt),
            end_ids=[1, 2, 3, 4],
        )
        return found

    ids, score, each = numpy(run(search)(ops.array(toy.prompt(STARTS))))
    np.testing.assert_array_equal(
        ids[..., 0], np.array(STARTS)[:, None] + [0] * 5
    )
    assert np.all(np.sort(ids[:, :4, 1]) == [1, 2, 3, 4])
    assert np.all(score[:, 4] == LOWEST)
    assert np.all(score[:, :4] > LOWEST)
    assert not ids[:, 4, 1:].any()
    assert not each[:, 4].any()


@pytest.mark.parametrize(
    ("seed", "beams", "alpha"), [(0, 4, 0.0), (1, 20, 0.6), (0, 64, 0.6)]
)
def test_beams_find_the_best_of_all_sequences(seed, beams, alpha):
    toy = Toy(seed)
    best = beam_search(
        toy.next,
        toy.prompt(STARTS),
        beams=beams,
        length_penalty=alpha,
        cache=toy.cache(STARTS),
        end_ids=[END],
    )
    ids, score, _ = numpy(best)
    for row, start in enumerate(STARTS):
        every = reference.all_sequences(
            toy.log_probabilities, [start], LENGTH, [END], alpha
        )
        rank, tokens = every[0]
        assert generated(ids[row, 0]) == tokens
        assert abs(score[row, 0] - rank) <= BOUND


def test_a_search_goes_on_while_a_longer_one_may_still_win():
    """Under a penalty of short ones, the best so far need not be the best."""
    for seed in range(6):
        toy = Toy(seed, scale=1.0)
        found = beam_search(
            toy.next,
            toy.prompt(STARTS, length=12),
            beams=3,
            length_penalty=2.0,
            cache=toy.cache(STARTS),
            end_ids=[END],
        )
        for row, start in enumerate(STARTS):
            expected = reference.beam_search(
                toy.log_probabilities, [start], 12, 3, [END], 2.0
            )
            # Ranks, for two orders of the same steps are equally good.
            rank = numpy(found)[1][row, 0]
            assert abs(rank - expected[0][0]) <= 3 * BOUND


def test_searches_stop_when_nothing_can_change():
    """Ended rows are asked for nothing more, nor beams that cannot win."""
    toy = Toy()
    toy.logits[..., END] = 9.0
    prompt = toy.prompt(STARTS, length=50)
    options = {"cache": toy.cache(STARTS), "end_ids": [END]}
    greedy_search(toy.next, prompt, **options)
    assert toy.calls <= 2  # JAX traces it once, PyTorch and eager run it
    toy.calls = 0
    beam_search(toy.next, prompt, beams=4, length_penalty=0.6, **options)
    assert toy.calls <= 2


@pytest.mark.parametrize(("temperature", "top_k"), [(0.5, None), (2.0, 3)])
def test_what_is_forbidden_is_so_at_any_temperature(temperature, top_k):
    """... also where nothing else is left, and the first token is taken."""
    sampling = Sampling(temperature=temperature, top_k=top_k)
    logits = np.full((2, 5), IMPOSSIBLE, "float32")
    logits[1, 3] = -9.0
    tokens = sampling(ops.array(logits), ops.array([0.9, 0.9], "float32"))
    assert ops.convert_to_numpy(tokens).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("run", "options"),
    [
        (eager, {"top_k": 99, "top_p": 0.6}),
        (in_graph, {"top_p": 0.6, "min_p": 0.3}),
        (
            compiled,
            {"temperature": 2.0, "top_k": 3, "top_p": 0.8, "min_p": 0.3},
        ),
    ],
)
def test_evenly_spread_noise_draws_every_token_its_share(run, options):
    toy, count = Toy(3), 2000
    noise = (np.arange(count) / count).astype("float32")[:, np.newaxis]

    def draw(prompt):
        return sample(
            toy.next, prompt, noise=noise, cache=toy.cache(prompt), **options
        )

    prompt = ops.array(toy.prompt([2] * count, length=1))
    ids, score, _ = numpy(run(draw)(prompt))
    logits = toy.logits[0, 2].astype("float64")
    logits[0] = -1e30  # padding
    expected = reference.sampling_distribution(logits, **options)
    shares = np.bincount(ids[:, 1], minlength=VOCABULARY) / count
    np.testing.assert_allclose(shares, expected, atol=1.5 / count, rtol=0)
    own = toy.log_probabilities([2])[ids[:, 1]]
    np.testing.assert_allclose(score, own, atol=BOUND, rtol=0)


def test_noise_up_to_its_last_bit_draws_what_may_be_drawn():
    toy = Toy(3)
    for highest in (np.nextafter(np.float32(1), np.float32(0)), 0.0):
        found = sample(
            toy.next,
            toy.prompt([2]),
            noise=np.full((1, LENGTH), highest, "float32"),
            top_p=0.6,
            cache=toy.cache([0]),
        )
        ids = ops.convert_to_numpy(found.ids)
        assert np.all((ids > 0) & (ids < VOCABULARY))


def test_what_was_said_is_not_said_again():
    """A penalty without end: each token once, the prompt's not at all."""
    toy = Toy()
    toy.logits = np.abs(toy.logits) + 1
    found = greedy_search(
        toy.next,
        toy.prompt([2], length=3),
        cache=toy.cache([0]),
        repetition_penalty=1e6,
    )
    assert sorted(generated(numpy(found)[0][0])) == [1, 3, 4]


@pytest.mark.parametrize(
    ("search", "options"),
    [(greedy_search, {}), (sample, {"noise": np.full((1, 6), 0.5, "float32")})],
)
def test_padding_is_not_what_a_penalty_leaves(search, options):
    """Not even where all tokens have been said that may be."""
    toy = Toy()
    toy.logits = -np.abs(toy.logits) - 1
    found = search(
        toy.next,
        toy.prompt([2], length=6),
        cache=toy.cache([0]),
        repetition_penalty=1e6,
        **options,
    )
    assert len(generated(numpy(found)[0][0])) == 6
