"""What tests share: fixed seeds, and the error bounds they judge by."""

import collections
import contextlib
import functools
import gc
import os
import subprocess
import sys
import typing
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings

from tests import forked_workers

# Scripts that wrote the fixtures: they need what the tests do not.
collect_ignore_glob = ["fixtures/*.py"]

# Whether the disk has what was written shows after a power failure alone, and
# each export waits for it ten times.
os.fsync = lambda descriptor: None

settings.register_profile(
    "project", deadline=None, derandomize=True, max_examples=20
)
# More and other ones each night; a failure prints the code that repeats it.
settings.register_profile("nightly", deadline=None, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "project")
settings.load_profile(PROFILE)

# TensorFlow asks of every tensor whether it keeps to a protocol. Python 3.11
# collects that one's members anew each time: 6% of what layers cost eagerly.
if sys.version_info < (3, 12):
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)


def pytest_configure(config):
    """Keep pytest-randomly to the order: its seeds differ in every run.

    It sets them after `fixed_seeds`, as a test is called, and Keras draws the
    seeds of initializers from what it sets.
    """
    if hasattr(config.option, "randomly_reset_seed"):
        config.option.randomly_reset_seed = False


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spare the tests what they pay for again and again, and do not need.

    Python from going through all that is imported, and through what is in use:
    `collected_garbage` does that once for each file. TensorFlow from noting the
    whole stack, of a hundred frames, with each operation of a graph. Keras from
    having XLA compile each model: tests of that say so.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        if "tensorflow" in sys.modules:
            ops = sys.modules["tensorflow.python.framework.ops"]
            ops._create_c_op = functools.partial(
                ops._create_c_op, extract_traceback=False
            )
            forked_workers.install()
            share_merges()
            # What is traced here runs once or twice: to make it fast costs more
            # than it saves. Each night all is as users have it.
            if PROFILE == "project":
                keras, tf = (sys.modules[x] for x in ("keras", "tensorflow"))
                keras.Model._resolve_auto_jit_compile = lambda model: False
                tf.config.optimizer.set_experimental_options(
                    {"disable_meta_optimizer": True}
                )


def share_merges():
    """Has tokenizers of equal merges share their graph, which none changes."""
    from keras_posenc.text import byte_pair_tokenizer

    make, made = byte_pair_tokenizer.BytePairs, {}

    def shared(*args):
        key = repr(args)
        made[key] = made.get(key) or make(*args)
        return made[key]

    byte_pair_tokenizer.BytePairs = shared


# Their files share what takes seconds to make.
TOGETHER = ("tests/cli/", "tests/scoring/")
# They load `.keras` files too, in workers whose server imports Keras.
WITH_THE_COMMAND = ("tests/export/verification/test_record.py",)


def unit_of(nodeid):
    """What stays in one process: a test's file, or several."""
    file = nodeid.partition("::")[0]
    if file in WITH_THE_COMMAND:
        return TOGETHER[0]
    return next((each for each in TOGETHER if file.startswith(each)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distributes files, and those that stay together as one."""
    from xdist.scheduler import LoadFileScheduling

    class ByUnit(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return unit_of(nodeid)

    is_by_file = config.getvalue("dist") == "loadfile"
    return ByUnit(config, log) if is_by_file else None


def pytest_collection_modifyitems(items):
    """Units of many tests come first, and last what takes a moment each.

    So processes that share them end together.
    """
    sizes = collections.Counter(unit_of(item.nodeid) for item in items)
    items.sort(
        key=lambda item: (
            isinstance(item, pytest.DoctestItem),
            -sizes[unit_of(item.nodeid)],
        )
    )


@pytest.fixture(scope="module", autouse=True)
def collected_garbage():
    """Circles of a file's objects go with it.

    What stays is not looked at again: else each file takes longer than the one
    before it.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def plain_workers(monkeypatch):
    """Workers that are started as users' are."""
    from keras_posenc.export import worker_client

    worker_client.end_spares()
    monkeypatch.setattr(worker_client, "subprocess", subprocess)
    yield
    worker_client.end_spares()


@pytest.fixture(autouse=True)
def fixed_seeds():
    """The same weights and dropout masks in every run."""
    set_seeds()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    """... and in what several tests share, whichever of them is first."""
    if fixturedef.scope != "function":
        set_seeds()
    return (yield)


def set_seeds():
    """Seeds all that Keras draws from.

    But for TensorFlow's own generator, which neither Keras nor the package
    draws from: to seed that is to forget every kernel, and to make them anew
    is a quarter of what a cheap test costs.
    """
    if "keras" not in sys.modules:  # some tests do without it
        return
    with contextlib.ExitStack() as stack:
        if "tensorflow" in sys.modules:
            random = sys.modules["tensorflow"].random
            stack.enter_context(mock.patch.object(random, "set_seed"))
        sys.modules["keras"].utils.set_random_seed(0)


def as_float64(x):
    """Numbers of any dtype, on any backend or none, in NumPy float64."""
    if "keras" in sys.modules and sys.modules["keras"].ops.is_tensor(x):
        x = sys.modules["keras"].ops.convert_to_numpy(x)
    return np.asarray(x).astype("float64")


def half_ulp(values, dtype):
    """What rounding numbers of this size to `dtype` costs at most."""
    bits, smallest = {
        "float16": (11, -13),
        "bfloat16": (8, -125),
        "float32": (24, -125),
        "float64": (53, -1021),
    }[dtype]
    values = as_float64(values)
    exponent = np.where(values == 0, smallest, np.frexp(values)[1])
    return np.ldexp(0.5, np.maximum(exponent, smallest) - bits)


def encoding_bound(positions, expected, dtype="float32"):
    """How far the encodings of `positions` may be from those expected.

    k tables composed cost (3.12 k - 2.82) 2**-24 in float32: 2 tables below
    position 4 096, 3 below 262 144, 4 beyond; the fraction of a real position
    counts as one more. Lower dtypes round that. float64 composes tables whose
    entries are off by a whole unit rather than half of one, which doubles the
    cost, and whose angles carry the rounding of the frequencies (an exponent,
    a power) and of their product with the position: for a frequency
    w = n**-x that is w (x log(n) + 3) <= 3 units of the position, where a
    negative one counts up from a multiple of 64 below it.
    """
    positions = as_float64(positions)
    distance = np.abs(positions)
    tables = 2.0 + (distance >= 64**2) + (distance >= 64**3)
    tables += positions != np.floor(positions)
    bound = (3.12 * tables - 2.82)[..., np.newaxis]
    if dtype == "float64":
        shares = distance[..., np.newaxis] + 128
        return (2 * bound + 3 * shares) * 2.0**-53
    bound = bound * 2.0**-24
    if dtype == "float32":
        return bound
    return bound + half_ulp(np.abs(expected) + bound, dtype)


def assert_near(actual, expected, tolerance=0.0):
    """Equal shapes, no NaN, every entry within its absolute tolerance."""
    actual, expected = as_float64(actual), as_float64(expected)
    assert actual.shape == expected.shape
    error = np.abs(actual - expected)
    within = error <= tolerance  # False for NaN
    if not np.all(within):
        where = tuple(np.argwhere(~within)[0])
        tolerance = np.broadcast_to(tolerance, error.shape)
        pytest.fail(
            f"{np.sum(~within)} of {within.size} entries too far off; at "
            f"{where} {actual[where]} is {error[where]} from "
            f"{expected[where]}, tolerance {tolerance[where]}"
        )


# Test files cannot import one another, so the helpers travel as fixtures.


@pytest.fixture(scope="session", name="half_ulp")
def half_ulp_fixture():
    return half_ulp


@pytest.fixture(scope="session", name="encoding_bound")
def encoding_bound_fixture():
    return encoding_bound


@pytest.fixture(scope="session")
def near():
    return assert_near
