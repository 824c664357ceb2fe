"""The seeds that conftest.py sets are those that a test draws with."""

import random

import keras
import pytest


def initializer():
    """Without a seed, it draws one from the same generator."""
    return keras.initializers.RandomNormal().seed


@pytest.fixture(scope="module")
def shared():
    return initializer()


def test_draws_are_the_same_in_every_run():
    assert random.random() == random.Random(0).random()
    first = initializer()
    keras.utils.set_random_seed(0)
    random.random()
    assert initializer() == first


@pytest.mark.parametrize("drawn", [3, 5])
def test_what_tests_share_is_the_same_in_every_order(drawn, request):
    for _ in range(drawn):
        random.random()
    shared = request.getfixturevalue("shared")
    keras.utils.set_random_seed(0)
    assert initializer() == shared
