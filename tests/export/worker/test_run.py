"""The worker runs an exported model without Keras."""

import itertools
import os

import keras
import numpy as np
import pytest

import keras_posenc as kp
from keras_posenc.export.worker_client import Limits, run_in_worker
from keras_posenc_worker import codec, run

pytestmark = pytest.mark.tensorflow

# Runs `run` in a worker, and then looks around in it.
PROBE = """
import sys
from keras_posenc_worker import run


def is_blocked(name):
    try:
        __import__(name)
    except ImportError:
        return True
    return False


def main(folder, names):
    run.main(folder)
    loaded = {
        name for name, module in sys.modules.items() if module is not None
    }
    return {
        "loaded": [name for name in names if name in loaded],
        "blocked": [name for name in names if is_blocked(name)],
    }
"""
NAMES = (
    "keras",
    "keras.layers",
    "keras_posenc",
    "keras_posenc.ops.masks",
    "tf_keras",
    "tensorflow",
    "numpy",
)


def write_request(folder, kind, artifact, cases):
    folder.mkdir()
    request = {
        "kind": kind,
        "exported": str(artifact),
        "times": 2,
        "cases": cases,
    }
    codec.write(folder / run.REQUEST, request)


def run_probe(folder):
    """What the worker has loaded, and what it cannot load."""
    (folder / "probe.py").write_text(PROBE)
    limits = Limits(memory=None, seconds=None)
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        return run_in_worker("probe", str(folder), NAMES, limits=limits)


def read_response(folder):
    return codec.read(folder / run.RESPONSE)


IDS = np.array([[4, 44, 0], [1, 2, 3]], "int32")
SHORT = np.array([[4, 44, 0, 0]], "int32")
CASES = [
    ("serving_default", {"ids": IDS}),
    ("short", {"ids": SHORT}),
    ("missing", {"ids": IDS}),
    ("serving_default", {"tokens": IDS}),
]


@pytest.fixture(scope="module", params=["litert", "saved_model"])
def answered(request, tmp_path_factory):
    """A file's kind, the response's folder, and what the probe saw."""
    artifact = request.getfixturevalue(request.param).path
    folder = tmp_path_factory.mktemp("worker") / "request"
    write_request(folder, request.param, artifact, CASES)
    return request.param, folder, run_probe(folder)


def test_keras_and_the_package_cannot_be_imported(answered):
    kind, _, probe = answered
    blocked = list(NAMES[:5])
    if kind == "litert":
        blocked.append("tensorflow")
    assert probe["blocked"] == blocked
    assert "numpy" in probe["loaded"]
    assert not set(probe["loaded"]) & set(blocked)
    assert ("tensorflow" in probe["loaded"]) == (kind == "saved_model")


def test_answers_are_the_models(answered, model):
    _, folder, _ = answered
    response = read_response(folder)
    assert response["load_seconds"] > 0
    for case, ids in zip(response["cases"], (IDS, SHORT), strict=False):
        assert case["milliseconds"] > 0
        np.testing.assert_allclose(
            case["outputs"]["scores"], model(ids).numpy(), rtol=0, atol=1e-6
        )


def test_failure_of_a_case_is_an_answer(answered):
    _, folder, _ = answered
    _, _, missing, other_input = read_response(folder)["cases"]
    assert missing["error"] == "KeyError: 'missing'"
    assert "tokens" in other_input["error"]
    assert missing["outputs"] == other_input["outputs"] == {}


def test_case_after_one_that_failed_is_the_models(tmp_path):
    """LiteRT keeps what it had begun for a row of length 0."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(20, 64, mask_zero=True),
            kp.PositionalEncoding(),
            kp.TransformerEncoder(2, num_heads=2, intermediate_dim=64),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, name="scores"),
        ]
    )
    path = kp.export_litert(
        model, tmp_path / "m.tflite", verify=False, verbose=False
    ).path
    ids = np.random.default_rng(0).integers(1, 20, (1, 500)).astype("int32")
    none = np.zeros((1, 0), "int32")
    cases = [("serving_default", {"ids": each}) for each in (none, ids)]
    folder = tmp_path / "request"
    write_request(folder, "litert", path, cases)
    run_probe(folder)
    failed, good = read_response(folder)["cases"]
    assert "failed to prepare" in failed["error"]
    np.testing.assert_allclose(
        good["outputs"]["scores"], model(ids), rtol=0, atol=1e-5
    )


def test_every_second_case_has_an_interpreter_of_its_own(monkeypatch):
    """Some err from the second run of a shape on: here all but the first."""
    count, x = itertools.count(), np.ones((1, 3), "float32")

    def load(path):
        errs, calls = next(count) > 0, itertools.count()
        return {"f": lambda inputs: {"y": x + errs * (next(calls) > 0)}}

    monkeypatch.setattr(run, "load_litert", load)
    cases = [("f", {"x": x})] * 4
    response = run._respond("litert", "m.tflite", cases, 5)
    wrong = [each["outputs"]["y"][0, 0] for each in response["cases"]]
    assert wrong == [1, 2, 1, 2]


def test_messages_hold_arrays_of_any_kind_and_shape(tmp_path):
    texts = [["one", "Ünïcödé"], ["", "a\0b"]]
    message = {
        "list": [1, None, "text", {"x": np.arange(6).reshape(2, 3)}],
        # Whatever inputs and outputs are called.
        "names": {"shape": np.float32(0.5), "\0": np.array([True])},
        "marks": {"\0numbers": "0", "\0texts": ["x"]},
        "texts": np.array(texts, object),
        "bytes": np.array([b"\xff", b""], object),
        "empty": np.zeros((0, 2), object),
    }
    codec.write(tmp_path / "m.npz", message)
    found = codec.read(tmp_path / "m.npz")
    *plain, arrays = found["list"]
    assert plain == [1, None, "text"]
    np.testing.assert_array_equal(arrays["x"], message["list"][-1]["x"])
    assert arrays["x"].dtype == message["list"][-1]["x"].dtype
    assert found["names"] == {"shape": 0.5, "\0": [True]}
    assert found["names"]["shape"].dtype == "float32"
    assert found["marks"] == message["marks"]
    assert found["texts"].dtype == object
    decoded = [[text.decode() for text in row] for row in found["texts"]]
    assert decoded == texts
    assert found["bytes"].tolist() == [b"\xff", b""]
    assert found["empty"].shape == (0, 2)
