"""What the worker does to its own process is undone in that of the tests."""

import pytest


@pytest.fixture(autouse=True)
def _optimizer():
    yield
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": False}
    )
