"""The seeds that conftest.py sets are those that a test draws with."""

import random

import keras


def test_draws_are_the_same_in_every_run():
    assert random.random() == random.Random(0).random()
    # Initializers without a seed draw theirs from the same generator.
    first = keras.initializers.RandomNormal().get_config()
    keras.utils.set_random_seed(0)
    random.random()
    assert keras.initializers.RandomNormal().get_config() == first
